//! Statistics without a timeline in a trace and in its cache image.

use stepscope_model::{Profile, ProfileCaller, ProfileKind, ProfileRow};

use crate::image::contents::{Contents, ContentsReader};
use crate::image::error::CacheError;
use crate::read::facts::FileFacts;
use crate::read::trace::{Trace, Track};

impl Trace {
    /// Returns the statistics without a timeline, file by file in the file's order.
    pub fn profiles(&self) -> impl Iterator<Item = (&FileFacts, &Profile)> {
        self.files()
            .iter()
            .flat_map(|file| file.profiles.iter().map(move |profile| (file, profile)))
    }

    /// Returns whether the trace holds statistics only: at least one profile and no event with a
    /// time.
    pub fn is_without_timeline(&self) -> bool {
        let is_empty =
            |track: &Track| track.slices == 0 && track.instants == 0 && track.samples == 0;
        self.profiles().next().is_some() && self.tracks().iter().all(is_empty)
    }
}

/// Writes one profile.
pub(crate) fn put(to: &mut Contents<'_>, profile: &Profile) {
    let kind = ProfileKind::ALL
        .iter()
        .position(|kind| *kind == profile.kind);
    to.count(kind.unwrap_or(0));
    to.text(&profile.name);
    to.text(&profile.stage);
    to.optional(profile.rank, |to, rank| to.number(u64::from(rank)));
    to.optional(profile.total_s, put_float);
    to.optional(profile.calls, Contents::number);
    to.optional(profile.primitive_calls, Contents::number);
    to.optional(profile.rows_before, Contents::number);
    to.text(&profile.restriction);
    to.optional(profile.rounded_to_s, put_float);
    to.count(profile.rows.len());
    for row in &profile.rows {
        to.text(&row.name);
        to.text(&row.file);
        to.number(u64::from(row.line));
        to.optional(row.calls, Contents::number);
        to.optional(row.primitive_calls, Contents::number);
        for value in [
            row.total_s,
            row.self_s,
            row.mean_s,
            row.self_mean_s,
            row.percent,
        ] {
            to.optional(value, put_float);
        }
        to.count(row.callers.len());
        for caller in &row.callers {
            to.number(u64::from(caller.row));
            to.number(caller.calls);
            to.number(caller.primitive_calls);
            put_float(to, caller.total_s);
            put_float(to, caller.self_s);
        }
    }
}

/// Reads a profile that [`put`] wrote.
pub(crate) fn take(from: &mut ContentsReader<'_>) -> Result<Profile, CacheError> {
    let number = ContentsReader::number;
    let kind = from.count()?;
    Ok(Profile {
        kind: *ProfileKind::ALL.get(kind).ok_or(CacheError::Damaged {
            what: "a profile is of an unknown kind",
        })?,
        name: from.text()?,
        stage: from.text()?,
        rank: from.optional(ContentsReader::small)?,
        total_s: from.optional(take_float)?,
        calls: from.optional(number)?,
        primitive_calls: from.optional(number)?,
        rows_before: from.optional(number)?,
        restriction: from.text()?,
        rounded_to_s: from.optional(take_float)?,
        rows: from.list(|from| {
            Ok(ProfileRow {
                name: from.text()?.into(),
                file: from.text()?.into(),
                line: from.small()?,
                calls: from.optional(number)?,
                primitive_calls: from.optional(number)?,
                total_s: from.optional(take_float)?,
                self_s: from.optional(take_float)?,
                mean_s: from.optional(take_float)?,
                self_mean_s: from.optional(take_float)?,
                percent: from.optional(take_float)?,
                callers: from.list(|from| {
                    Ok(ProfileCaller {
                        row: from.small()?,
                        calls: from.number()?,
                        primitive_calls: from.number()?,
                        total_s: take_float(from)?,
                        self_s: take_float(from)?,
                    })
                })?,
            })
        })?,
    })
}

fn put_float(to: &mut Contents<'_>, value: f64) {
    to.meta.extend_from_slice(&value.to_le_bytes());
}

fn take_float(from: &mut ContentsReader<'_>) -> Result<f64, CacheError> {
    let (bytes, rest) = from.meta.split_first_chunk().ok_or(CacheError::Damaged {
        what: "its table of contents ends early",
    })?;
    from.meta = rest;
    Ok(f64::from_le_bytes(*bytes))
}
