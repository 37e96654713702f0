//! Statistics without a timeline in a trace and in its cache image.

use stepscope_model::{
    Profile, ProfileCaller, ProfileKind, ProfileRow, SampleFrame, SampleLabel, SampleType,
    StackSample, StackSamples,
};

use crate::image::contents::{Contents, ContentsReader};
use crate::image::error::CacheError;
use crate::read::facts::FileFacts;
use crate::read::trace::{Trace, Track};

impl Trace {
    /// Returns the statistics without a timeline, file by file in the file's order; those of attached traces follow.
    pub fn profiles(&self) -> impl Iterator<Item = (&FileFacts, &Profile)> {
        let attached = self.attached().iter().flat_map(|trace| trace.files());
        self.files()
            .iter()
            .chain(attached)
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
    put_samples(to, &profile.samples);
}

fn put_samples(to: &mut Contents<'_>, samples: &StackSamples) {
    to.count(samples.types.len());
    for one in &samples.types {
        to.text(&one.name);
        to.text(&one.unit);
    }
    to.number(u64::from(samples.default_type));
    to.count(samples.locations.len());
    for frames in &samples.locations {
        to.count(frames.len());
        for frame in frames {
            to.number(u64::from(frame.row));
            to.number(u64::from(frame.line));
        }
    }
    to.count(samples.label_sets.len());
    for labels in &samples.label_sets {
        to.count(labels.len());
        for label in labels {
            to.text(&label.key);
            to.text(&label.value);
        }
    }
    to.count(samples.samples.len());
    for sample in &samples.samples {
        to.count(sample.stack.len());
        for location in &sample.stack {
            to.number(u64::from(*location));
        }
        to.count(sample.values.len());
        for value in &sample.values {
            to.signed(*value);
        }
        to.number(u64::from(sample.labels));
    }
}

fn take_samples(from: &mut ContentsReader<'_>) -> Result<StackSamples, CacheError> {
    Ok(StackSamples {
        types: from.list(|from| {
            Ok(SampleType {
                name: from.text()?.into(),
                unit: from.text()?.into(),
            })
        })?,
        default_type: from.small()?,
        locations: from.list(|from| {
            let frames = from.list(|from| {
                Ok(SampleFrame {
                    row: from.small()?,
                    line: from.small()?,
                })
            })?;
            Ok(frames.into())
        })?,
        label_sets: from.list(|from| {
            from.list(|from| {
                Ok(SampleLabel {
                    key: from.text()?.into(),
                    value: from.text()?.into(),
                })
            })
        })?,
        samples: from.list(|from| {
            Ok(StackSample {
                stack: from.list(ContentsReader::small)?.into(),
                values: from.list(ContentsReader::signed)?.into(),
                labels: from.small()?,
            })
        })?,
    })
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
        samples: take_samples(from)?,
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
