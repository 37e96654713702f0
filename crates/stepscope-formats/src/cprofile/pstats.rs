//! `cProfile` statistics: one marshalled dictionary,
//! `{(file, line, name): (primitive calls, calls, own time, total time, {caller: ...})}`.

use std::collections::hash_map::Entry;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use stepscope_model::vocabulary::producer::Producer;
use stepscope_model::{
    Diagnostic, EventSink, Profile, ProfileCaller, ProfileKind, ProfileRow, ReadContext,
    SharedBytes,
};

use super::marshal::{Begun, Broken, Marshal, Slot};
use crate::FormatError;

/// Number of functions between two checks for cancellation.
const LOOK_EVERY: usize = 1_024;

/// Reads a whole file.
///
/// # Errors
/// Returns [`FormatError::Malformed`] if the first function is unreadable, and
/// [`FormatError::Cancelled`].
pub fn read<S: EventSink>(
    bytes: &SharedBytes,
    context: &ReadContext,
    sink: &mut S,
) -> Result<(), FormatError> {
    let bytes: &[u8] = (**bytes).as_ref();
    let mut reader = Reader {
        marshal: Marshal::new(bytes),
        numbers: FxHashMap::default(),
        functions: Vec::new(),
        order: Vec::new(),
    };
    let broken = reader.all(context)?;
    context.advance(bytes.len() as u64)?;
    let bad_texts = reader.marshal.bad_texts;
    let mut odd_numbers = 0;
    let profile = reader.finish(&mut odd_numbers);
    if let Some(broken) = broken {
        if profile.rows.is_empty() {
            return Err(FormatError::Malformed {
                reason: broken.what.to_owned(),
                offset: broken.at as u64,
            });
        }
        let what = if broken.cut {
            Diagnostic::Truncated
        } else {
            Diagnostic::Unreadable
        };
        sink.diagnose(what, 1, &format!("{} at byte {}", broken.what, broken.at));
    }
    if bad_texts > 0 {
        sink.diagnose(Diagnostic::BadText, bad_texts, "");
    }
    if odd_numbers > 0 {
        sink.diagnose(
            Diagnostic::BadTime,
            odd_numbers,
            "counts or times that make no sense are taken for 0",
        );
    }
    Producer::Python.emit(sink);
    sink.profile(profile);
    Ok(())
}

/// A function, with its statistics once they have been read.
struct Function {
    file: Arc<str>,
    line: i64,
    name: Arc<str>,
    figures: Option<Figures>,
}

struct Figures {
    values: [f64; 4],
    /// Number of the caller, with its calls, primitive calls, own time and total time.
    callers: Vec<(u32, [f64; 4])>,
}

struct Reader<'b> {
    marshal: Marshal<'b>,
    numbers: FxHashMap<(Arc<str>, i64, Arc<str>), u32>,
    functions: Vec<Function>,
    /// Numbers of the functions with statistics, in the file's order: `pstats` keeps this order for
    /// rows with equal values. Callers are numbered at their first occurrence, which is a different
    /// order.
    order: Vec<u32>,
}

impl Reader<'_> {
    /// Reads up to the end or the first error; returns that error.
    fn all(&mut self, context: &ReadContext) -> Result<Option<Broken>, FormatError> {
        let mut work = || -> Result<Result<(), Broken>, FormatError> {
            if let Err(broken) = self.marshal.dictionary() {
                return Ok(Err(broken));
            }
            for count in 0.. {
                if count % LOOK_EVERY == 0 {
                    context.advance(0)?;
                }
                match self.entry() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(broken) => return Ok(Err(broken)),
                }
            }
            Ok(Ok(()))
        };
        Ok(work()?.err())
    }

    /// Reads one function and its statistics; returns `false` at the end.
    fn entry(&mut self) -> Result<bool, Broken> {
        if self.marshal.ends()? {
            return Ok(false);
        }
        let function = self.function()?;
        let Begun::Tuple(5, _) = self.marshal.tuple()? else {
            return Err(self.unexpected("a function has no five figures"));
        };
        let values = self.four()?;
        self.marshal.dictionary()?;
        let mut callers = Vec::new();
        while !self.marshal.ends()? {
            let by = self.function()?;
            callers.push((by, self.calls()?));
        }
        if let Some(known) = self.functions.get_mut(function as usize) {
            if known.figures.is_none() {
                self.order.push(function);
            }
            known.figures = Some(Figures { values, callers });
        }
        Ok(true)
    }

    /// Reads the statistics of one caller: four numbers, or a single count in files of `profile`
    /// (instead of `cProfile`).
    fn calls(&mut self) -> Result<[f64; 4], Broken> {
        if self.marshal.is_int() {
            let count = float(&self.marshal.number()?);
            return Ok([count, count, 0.0, 0.0]);
        }
        match self.marshal.tuple()? {
            Begun::Tuple(4, place) => {
                let values = self.four()?;
                self.marshal.keep(place, || Slot::Calls(values));
                Ok(values)
            }
            Begun::Known(Slot::Calls(values)) => Ok(values),
            Begun::Known(slot @ Slot::Int(_)) => Ok([float(&slot), float(&slot), 0.0, 0.0]),
            _ => Err(self.unexpected("a caller has no four figures")),
        }
    }

    fn four(&mut self) -> Result<[f64; 4], Broken> {
        let mut values = [0.0; 4];
        for value in &mut values {
            *value = float(&self.marshal.number()?);
        }
        Ok(values)
    }

    /// Reads the next function; returns its number.
    fn function(&mut self) -> Result<u32, Broken> {
        match self.marshal.tuple()? {
            Begun::Tuple(3, place) => {
                let file = self.marshal.text()?;
                let Slot::Int(line) = self.marshal.number()? else {
                    return Err(self.unexpected("a line is no whole number"));
                };
                let name = self.marshal.text()?;
                let fresh = u32::try_from(self.functions.len()).unwrap_or(u32::MAX);
                let key = (Arc::clone(&file), line, Arc::clone(&name));
                let number = match self.numbers.entry(key) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(new) => {
                        self.functions.push(Function {
                            file,
                            line,
                            name,
                            figures: None,
                        });
                        *new.insert(fresh)
                    }
                };
                self.marshal.keep(place, || Slot::Function(number));
                Ok(number)
            }
            Begun::Known(Slot::Function(number)) => Ok(number),
            _ => Err(self.unexpected("no function where one belongs")),
        }
    }

    fn unexpected(&self, what: &'static str) -> Broken {
        Broken {
            at: self.marshal.at,
            what,
            cut: false,
        }
    }

    /// Builds the profile. Functions with statistics become rows; callers without statistics are
    /// dropped.
    fn finish(mut self, odd_numbers: &mut u64) -> Profile {
        let mut row_of = vec![None; self.functions.len()];
        for (row, number) in (0_u32..).zip(&self.order) {
            row_of[*number as usize] = Some(row);
        }
        let mut profile = Profile {
            kind: ProfileKind::Functions,
            ..Profile::default()
        };
        let (mut own, mut calls, mut primitive) = (0.0, 0_u64, 0_u64);
        for number in self.order {
            let function = &mut self.functions[number as usize];
            let Some(figures) = function.figures.take() else {
                continue;
            };
            let [primitive_calls, all_calls, self_s, total_s] = figures.values;
            let row = ProfileRow {
                name: Arc::clone(&function.name),
                file: Arc::clone(&function.file),
                line: u32::try_from(function.line).unwrap_or(0),
                calls: Some(count(all_calls, odd_numbers)),
                primitive_calls: Some(count(primitive_calls, odd_numbers)),
                total_s: Some(seconds(total_s, odd_numbers)),
                self_s: Some(seconds(self_s, odd_numbers)),
                mean_s: None,
                self_mean_s: None,
                percent: None,
                callers: figures
                    .callers
                    .into_iter()
                    .filter_map(|(by, [calls, primitive_calls, self_s, total_s])| {
                        Some(ProfileCaller {
                            row: (*row_of.get(by as usize)?)?,
                            calls: count(calls, odd_numbers),
                            primitive_calls: count(primitive_calls, odd_numbers),
                            total_s: seconds(total_s, odd_numbers),
                            self_s: seconds(self_s, odd_numbers),
                        })
                    })
                    .collect(),
            };
            own += row.self_s.unwrap_or(0.0);
            calls = calls.saturating_add(row.calls.unwrap_or(0));
            primitive = primitive.saturating_add(row.primitive_calls.unwrap_or(0));
            profile.rows.push(row);
        }
        profile.total_s = Some(own);
        profile.calls = Some(calls);
        profile.primitive_calls = Some(primitive);
        profile
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "counts past two to the fifty-third are none"
)]
fn float(number: &Slot) -> f64 {
    match number {
        Slot::Int(value) => *value as f64,
        Slot::Float(value) => *value,
        _ => 0.0,
    }
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be a whole number that an f64 holds"
)]
fn count(value: f64, odd_numbers: &mut u64) -> u64 {
    if (0.0..9.0e15).contains(&value) && value.fract() == 0.0 {
        value as u64
    } else {
        *odd_numbers += 1;
        0
    }
}

/// Converts a time. Times can be slightly negative, because the profiler subtracts the clock's
/// overhead.
fn seconds(value: f64, odd_numbers: &mut u64) -> f64 {
    if value.is_finite() && value.abs() < 1e12 {
        value
    } else {
        *odd_numbers += 1;
        0.0
    }
}
