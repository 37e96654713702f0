//! rustc's self-profiles: files written here, damaged ones, and a real one.

use std::sync::Arc;

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError, arg_source, read};
use stepscope_model::{Diagnostic, Limits, ReadContext, SharedBytes};
use stepscope_test_data::{self as traces, Corpus};

fn emitted(bytes: &[u8]) -> Result<Probe, FormatError> {
    let bytes: SharedBytes = Arc::new(bytes.to_vec());
    let mut probe = Probe::new();
    let context = ReadContext::new(Limits::default());
    read(Format::Measureme, &bytes, &context, &mut probe)?;
    assert!(arg_source(Format::Measureme, &bytes, &context).is_ok());
    Ok(probe)
}

/// Id of the text about the whole recording.
const METADATA: u64 = 100_000_001;
/// This id stands for the first byte of the stream of texts.
const FIRST: u64 = 100_000_003;

/// Writes a file of version 8 or 9.
struct Writer {
    version: u32,
    texts: Vec<u8>,
    index: Vec<u8>,
    events: Vec<u8>,
}

impl Writer {
    fn new(version: u32) -> Self {
        let header = |magic: &[u8]| [magic, &version.to_le_bytes()].concat();
        Self {
            version,
            texts: header(b"MMSD"),
            index: header(b"MMSI"),
            events: header(b"MMES"),
        }
    }

    fn id(&self, id: u64) -> Vec<u8> {
        let length = if self.version == 9 { 8 } else { 4 };
        id.to_le_bytes()[..length].to_vec()
    }

    /// Adds a text of plain parts and references; returns its id.
    fn text(&mut self, parts: &[Result<&str, u64>]) -> u64 {
        let address = self.texts.len() as u64;
        for part in parts {
            match part {
                Ok(plain) => self.texts.extend(plain.as_bytes()),
                Err(id) => {
                    self.texts.push(0xfe);
                    let id = self.id(*id);
                    self.texts.extend(id);
                }
            }
        }
        self.texts.push(0xff);
        FIRST + address
    }

    fn map(&mut self, id: u64, text: u64) {
        let entry = [self.id(id), self.id(text - FIRST)].concat();
        self.index.extend(entry);
    }

    fn event(&mut self, kind: u64, label: u64, thread: u32, first: u64, second: u64) {
        let upper = (first >> 32 << 16) | (second >> 32);
        let mut record = [self.id(kind), self.id(label)].concat();
        for field in [u64::from(thread), first, second, upper] {
            record.extend(&field.to_le_bytes()[..4]);
        }
        self.events.extend(record);
    }

    /// Returns the file; the events are cut into pages of this size.
    fn finish(self, page: usize) -> Vec<u8> {
        let mut out = [&b"MMPD"[..], &self.version.to_le_bytes()].concat();
        let mut put = |tag: u8, content: &[u8]| {
            out.push(tag);
            out.extend(u32::try_from(content.len()).unwrap().to_le_bytes());
            out.extend(content);
        };
        for content in self.events.chunks(page) {
            put(0, content);
        }
        put(1, &self.texts);
        put(2, &self.index);
        out
    }
}

const INSTANT: u64 = 0xffff_ffff_ffff;
const VALUE: u64 = INSTANT - 1;

fn small(version: u32) -> Vec<u8> {
    let mut file = Writer::new(version);
    let metadata = r#"{"start_time":1700000000000000007,"process_id":43,"cmd":"rustc a.rs"}"#;
    let metadata = file.text(&[Ok(metadata)]);
    file.map(METADATA, metadata);
    let kind = file.text(&[Ok("Query")]);
    let label = file.text(&[Ok("type"), Ok("ck")]);
    let item = file.text(&[Ok("main::f")]);
    let with_argument = file.text(&[Err(label), Ok("\u{1e}"), Err(item)]);
    file.map(5, with_argument);
    let size = file.text(&[Ok("ArtifactSize")]);
    let object = file.text(&[Ok("object_file\u{1e}a.o")]);
    // Beyond 32 bits: 2^33 ns.
    file.event(kind, label, 1, 1_000, (1 << 33) + 7);
    file.event(kind, 5, 2, 2_000, 2_500);
    file.event(kind, label, 1, 3_000, INSTANT);
    file.event(size, object, 1, 1 << 40, VALUE);
    file.event(size, object, 1, 5, VALUE);
    file.finish(64)
}

#[test]
fn both_versions_are_read() {
    for version in [8, 9] {
        let bytes = small(version);
        let probe = emitted(&bytes).unwrap();
        assert_eq!(probe.diagnostics, []);
        let slices: Vec<_> = probe
            .slices
            .iter()
            .map(|one| {
                let name = (&*one.track, &*one.name, &*one.category);
                (name, one.start_ps, one.dur_ps)
            })
            .collect();
        let whole = ((1 << 33) + 7 - 1_000) * 1_000;
        let first = ("thread/1", "typeck", "Query");
        let second = ("thread/2", "typeck", "Query");
        assert_eq!(
            slices,
            [(first, 1_000_000, whole), (second, 2_000_000, 500_000)]
        );
        assert!(probe.slices[0].args.is_none());
        let args = probe.args(probe.slices[1].args);
        assert_eq!(
            args,
            [("argument 1".to_owned(), "Str(\"main::f\")".to_owned())]
        );
        assert_eq!(probe.instants[0].at_ps, 3_000_000);
        let fact = |key: &str| {
            let found = probe.facts.iter().find(|fact| fact.0 == key);
            found.map(|fact| &*fact.1)
        };
        assert_eq!(
            fact("ArtifactSize.object_file.a.o"),
            Some("Int(1099511627781)")
        );
        assert_eq!(fact("pid"), Some("Int(43)"));
        assert_eq!(fact("command"), Some("Str(\"rustc a.rs\")"));
        let unix_ns = probe.epoch.and_then(|epoch| epoch.unix_ns);
        assert_eq!(unix_ns, Some(1_700_000_000_000_000_007));
        let found = detect(&bytes, "x").unwrap();
        let expected = (Format::Measureme, Evidence::Content);
        assert_eq!((found.format, found.evidence), expected);
    }
}

#[test]
fn texts_that_refer_to_themselves_end() {
    let mut file = Writer::new(9);
    let own = FIRST + file.texts.len() as u64;
    let looped = file.text(&[Ok("a"), Err(own), Err(own)]);
    assert_eq!(looped, own);
    let long = file.text(&[Ok(&"x".repeat(3_000))]);
    let twice = file.text(&[Err(long), Err(long), Err(long)]);
    file.event(looped, twice, 1, 9, 4);
    file.event(1, u64::MAX, 1, 4, 9);
    let probe = emitted(&file.finish(1 << 10)).unwrap();
    assert_eq!(probe.slices[0].name.len(), 4_096);
    assert!(probe.slices[0].category.len() <= 32);
    assert_eq!(probe.slices[0].dur_ps, 0);
    assert_eq!(probe.slices[1].name, format!("text {}", u64::MAX));
    assert_eq!(probe.count(Diagnostic::NegativeDuration), 1);
    assert_eq!(probe.count(Diagnostic::MissingMetadata), 2);
}

#[test]
fn other_versions_and_empty_files_are_refused() {
    let mut old = small(9);
    old[4] = 7;
    let refused = |bytes: &[u8]| emitted(bytes).map(|_| ()).unwrap_err().to_string();
    assert!(refused(&old).contains("version 7"));
    assert!(refused(b"MMES\x05\0\0\0").contains("old compiler"));
    assert!(refused(b"MMPD\x09\0\0\0").contains("no events"));
    assert!(refused(b"").contains("no header"));
}

#[test]
fn files_cut_anywhere_give_what_came_before() {
    let bytes = small(9);
    let mut most = 0;
    for at in 0..bytes.len() {
        match emitted(&bytes[..at]) {
            Ok(probe) => {
                assert!(probe.count(Diagnostic::Truncated) <= 1);
                most = most.max(probe.slices.len());
            }
            Err(FormatError::Malformed { .. }) => {}
            Err(other) => panic!("{other} at {at}"),
        }
    }
    assert_eq!(most, 2);
}

#[test]
fn flipped_bits_are_survived() {
    for version in [8, 9] {
        let bytes = small(version);
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                if let Ok(probe) = emitted(&damaged) {
                    assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
                }
            }
        }
    }
}

/// The figures are those that measureme's own tests expect of this file.
#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn a_real_profile_has_the_figures_of_measureme() {
    let corpus = Corpus::collected();
    let packed = traces::bytes(&corpus.path("rust/rustc_v9.mm_profdata.gz"));
    let bytes = stepscope_formats::gzip::inflate_prefix(&packed, 16 << 20);
    let probe = emitted(&bytes).unwrap();
    // The index of the file lacks the labels of six queries.
    let (what, detail) = (
        Diagnostic::MissingMetadata,
        "references to texts that the file does not have",
    );
    assert_eq!(probe.diagnostics, [(what, 6, detail.to_owned())]);
    let count = |kind: &str| {
        let of_kind = probe.slices.iter().filter(|slice| slice.category == kind);
        of_kind.count()
    };
    assert_eq!(count("GenericActivity"), 5_125);
    assert_eq!(count("IncrementalResultHashing"), 1_844);
    assert_eq!(count("Query"), 1_877);
    let sizes = probe.facts.iter();
    let sizes = sizes.filter(|fact| fact.0.starts_with("ArtifactSize."));
    assert_eq!(sizes.count(), 24);
    let mut activities = probe
        .slices
        .iter()
        .filter(|one| one.category == "GenericActivity");
    let middle = activities.nth(5_125 / 2).unwrap();
    assert_eq!(middle.name, "metadata_decode_entry_item_attrs");
    assert_eq!(middle.dur_ps, 376_000);
}
