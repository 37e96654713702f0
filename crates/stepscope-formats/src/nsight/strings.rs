//! Texts by number, the table `StringIds`: where they are, and their names in a sink.

use rustc_hash::FxHashMap;
use stepscope_model::{Cancelled, EventSink, NameId, ReadContext};

use super::export::{Column, Export, Fields, STRINGS};
use super::sqlite::{Losses, Record, RowReader, Table};

/// Offsets of the rows of all texts. The texts stay in the file.
#[derive(Debug, Default)]
pub(super) struct Strings {
    offsets: FxHashMap<i64, usize>,
    table: Option<Table>,
}

impl Strings {
    /// Finds all texts.
    pub(super) fn new(
        export: &Export<'_>,
        context: &ReadContext,
        losses: &mut Losses,
    ) -> Result<Self, Cancelled> {
        let Some(table) = export.table(STRINGS) else {
            return Ok(Self::default());
        };
        let id = Column::new(table, "id");
        let mut offsets = FxHashMap::default();
        export.scan(table, context, losses, |fields| {
            if let Some(id) = id.int(fields) {
                offsets.entry(id).or_insert(fields.row.offset);
            }
        })?;
        Ok(Self {
            offsets,
            table: Some(table.clone()),
        })
    }

    /// Passes the text of this number to `use_text`; `None` if the file has no such text.
    pub(super) fn with<R>(
        &self,
        reader: &mut RowReader<'_, '_>,
        id: i64,
        use_text: impl FnOnce(&str) -> R,
    ) -> Option<R> {
        let table = self.table.as_ref()?;
        let row = reader.row_at(*self.offsets.get(&id)?)?;
        let record = Record::new(row.payload)?;
        let fields = Fields { row, record };
        let text = Column::new(table, "value").get(&fields).text()?;
        Some(use_text(&text))
    }

    /// Returns the text of this number.
    pub(super) fn get(&self, reader: &mut RowReader<'_, '_>, id: i64) -> Option<String> {
        self.with(reader, id, str::to_owned)
    }
}

/// Names of texts in one sink; each text is read once.
#[derive(Default)]
pub(super) struct Names {
    known: FxHashMap<i64, Option<NameId>>,
    /// Names of calls, without the version.
    calls: FxHashMap<i64, Option<NameId>>,
}

impl Names {
    /// Returns the name of a text; `None` if the file has no such text.
    #[inline]
    pub(super) fn get<S: EventSink>(
        &mut self,
        id: i64,
        strings: &Strings,
        reader: &mut RowReader<'_, '_>,
        sink: &mut S,
    ) -> Option<NameId> {
        *self
            .known
            .entry(id)
            .or_insert_with(|| strings.with(reader, id, |text| sink.name(text)))
    }

    /// Returns the name of a call of CUDA without its version: `cudaLaunchKernel` of `cudaLaunchKernel_v7000`.
    #[inline]
    pub(super) fn call<S: EventSink>(
        &mut self,
        id: i64,
        strings: &Strings,
        reader: &mut RowReader<'_, '_>,
        sink: &mut S,
    ) -> Option<NameId> {
        *self
            .calls
            .entry(id)
            .or_insert_with(|| strings.with(reader, id, |text| sink.name(without_version(text))))
    }
}

/// Cuts the version of the runtime from the name of a call. Versions of the driver's calls (`cuMemAlloc_v2`) are part
/// of their names.
fn without_version(name: &str) -> &str {
    /// Number of digits of the runtime's versions: 3020 and later.
    const DIGITS: usize = 4;
    match name.rsplit_once("_v") {
        Some((call, version))
            if version.len() >= DIGITS && version.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            call
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_runtime_are_cut() {
        assert_eq!(
            without_version("cudaLaunchKernel_v7000"),
            "cudaLaunchKernel"
        );
        assert_eq!(
            without_version("cudaLaunchKernelExC_v11060"),
            "cudaLaunchKernelExC"
        );
        assert_eq!(without_version("cuMemAlloc_v2"), "cuMemAlloc_v2");
        assert_eq!(
            without_version("cuModuleGetLoadingMode"),
            "cuModuleGetLoadingMode"
        );
        assert_eq!(without_version("a_v700x"), "a_v700x");
    }
}
