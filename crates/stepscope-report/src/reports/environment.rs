//! Metadata of the program, the machine and the recording, with readable labels.

use std::borrow::Cow;
use std::fmt::Write as _;

use rustc_hash::FxHashMap;
use stepscope_store::Trace;

use crate::report::{Cell, Column, Table, Unit, bytes, with_thousands};
use stepscope_analysis::names::json_on_one_line;

/// A key with its value, and the files that contain it.
struct Fact<'a> {
    /// Position of its key among the keys.
    place: usize,
    key: Cow<'a, str>,
    value: String,
    files: Vec<usize>,
}

/// Returns the metadata of the files. A value that all files share is one row; otherwise each value
/// lists its files. Values that several devices of the same files share are also one row.
pub(super) fn table(trace: &Trace) -> Table {
    let mut table = Table::new(vec![
        Column::new("label", "Fact", Unit::Text),
        Column::new("value", "Value", Unit::Text),
        Column::new("hosts", "Hosts", Unit::Text),
        Column::new("ranks", "Ranks", Unit::Number),
        Column::new("key", "Key", Unit::Text),
    ]);
    let files = trace.files();
    let mut facts: Vec<Fact<'_>> = Vec::new();
    let mut places: FxHashMap<&str, usize> = FxHashMap::default();
    let mut known: FxHashMap<(usize, String), usize> = FxHashMap::default();
    for (number, file) in files.iter().enumerate() {
        let format = ("format", file.spec.format.clone());
        let others = file.facts.iter();
        let others =
            others.map(|(key, value)| (&**key, json_on_one_line(&value.to_string()).into_owned()));
        for (key, value) in std::iter::once(format).chain(others) {
            let next = places.len();
            let place = *places.entry(key).or_insert(next);
            let at = *known.entry((place, value.clone())).or_insert(facts.len());
            if at == facts.len() {
                facts.push(Fact {
                    place,
                    key: key.into(),
                    value,
                    files: Vec::new(),
                });
            }
            facts[at].files.push(number);
        }
    }
    facts.sort_by_key(|fact| fact.place);
    for fact in of_devices_together(facts) {
        let is_common = fact.files.len() >= files.len();
        let says = fact.files.iter().filter(|_| !is_common);
        let says: Vec<_> = says.map(|number| &files[*number].spec).collect();
        let mut hosts: Vec<&str> = says.iter().map(|spec| &*spec.host).collect();
        hosts.dedup();
        let ranks = says.iter().filter_map(|spec| spec.rank).collect();
        let (label, value) = readable(&fact.key, &fact.value);
        table.push([
            label.into(),
            value.into(),
            several(hosts),
            several(ranks),
            (*fact.key).into(),
        ]);
    }
    table
}

/// Merges the facts `device.N.WHAT` of the same files that differ only in `N` into one fact
/// `device.0-7.WHAT`, at the position of the first.
fn of_devices_together(facts: Vec<Fact<'_>>) -> Vec<Fact<'_>> {
    let mut together: Vec<(Fact<'_>, Vec<u32>)> = Vec::new();
    let mut known: FxHashMap<(String, String, Vec<usize>), usize> = FxHashMap::default();
    for fact in facts {
        let Some((number, what)) = device_of(&fact.key) else {
            together.push((fact, Vec::new()));
            continue;
        };
        let same = (what.to_owned(), fact.value.clone(), fact.files.clone());
        let at = *known.entry(same).or_insert(together.len());
        match together.get_mut(at) {
            Some((_, numbers)) => numbers.push(number),
            None => together.push((fact, vec![number])),
        }
    }
    let named = together.into_iter().map(|(mut fact, numbers)| {
        if let (2.., Some((_, what))) = (numbers.len(), device_of(&fact.key)) {
            fact.key = format!("device.{}.{what}", ranges_of(numbers)).into();
        }
        fact
    });
    named.collect()
}

/// Splits a key about one device of several (`device.3.name`) into number and word.
fn device_of(key: &str) -> Option<(u32, &str)> {
    let (number, what) = key.strip_prefix("device.")?.split_once('.')?;
    Some((number.parse().ok()?, what))
}

/// Formats numbers as ranges: `0-3,6`.
fn ranges_of(mut numbers: Vec<u32>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let runs = numbers.chunk_by(|before, next| before + 1 == *next);
    let runs = runs.filter_map(|run| Some((run.first()?, run.last()?)));
    let texts: Vec<String> = runs
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    texts.join(",")
}

/// Returns a list, or an empty cell for an empty list.
fn several<T: Into<Cell>>(values: Vec<T>) -> Cell {
    if values.is_empty() {
        Cell::Empty
    } else {
        values.into()
    }
}

/// Labels of keys that are hard to read.
const LABELS: &[(&str, &str)] = &[
    ("backend", "Collective backend"),
    ("baseTimeNanoseconds", "Zero of the clock (UTC)"),
    ("computeMajor", "compute capability, major"),
    ("computeMinor", "compute capability, minor"),
    ("displayTimeUnit", "Unit of times in Chrome"),
    ("distributedInfo", "Distributed job"),
    ("format", "File format"),
    ("has_megacore", "has a megacore"),
    ("has_merged_vmem", "has merged VMEM"),
    ("kind", "Kind of trace"),
    ("maxThreadsPerBlock", "threads per block, at most"),
    (
        "maxThreadsPerMultiprocessor",
        "threads per multiprocessor, at most",
    ),
    ("neuronStartTimestampNs", "Recording started (UTC)"),
    ("numSms", "multiprocessors"),
    (
        "peak_hbm_bw_gigabytes_per_second",
        "peak HBM bandwidth (GB/s)",
    ),
    ("peak_teraflops_per_second", "peak compute (TFLOP/s)"),
    ("pid", "Process id"),
    ("regsPerBlock", "registers per block"),
    ("regsPerMultiprocessor", "registers per multiprocessor"),
    ("schemaVersion", "Version of the format"),
    ("sharedMemPerBlock", "shared memory per block"),
    ("sharedMemPerBlockOptin", "shared memory per block, opt-in"),
    (
        "sharedMemPerMultiprocessor",
        "shared memory per multiprocessor",
    ),
    ("traceName", "File as it was written"),
    ("unix_start_ns", "Recording started (UTC)"),
    ("unix_stop_ns", "Recording ended (UTC)"),
    ("warpSize", "threads of a warp"),
    ("world_size", "Ranks of the job"),
    ("writer", "Recorded by"),
];

/// Returns a readable key, and its value with a unit: `device.0-7.memory_bytes` and 42297524224
/// become `Device 0-7: memory` and `39.4 GiB (42,297,524,224 bytes)`.
fn readable(key: &str, value: &str) -> (String, String) {
    if let (Some(word), "true") = (key.strip_prefix("kind."), value) {
        return ("Kind of trace".to_owned(), word.to_owned());
    }
    let numbered = key
        .strip_prefix("device.")
        .and_then(|rest| rest.split_once('.'))
        .filter(|(numbers, _)| numbers.starts_with(|first: char| first.is_ascii_digit()));
    let word = numbered.map_or(key, |(_, word)| word);
    let label = match LABELS.iter().find(|(known, _)| *known == word) {
        Some((_, label)) => (*label).to_owned(),
        None => words_of(word),
    };
    let label = match numbered {
        Some((numbers, _)) => format!("Device {numbers}: {label}"),
        None => capitalised(&label),
    };
    (label, readable_value(word, value))
}

/// Returns `max_threads_per_block` or `maxThreadsPerBlock` as words, with the unit in brackets.
fn words_of(key: &str) -> String {
    const UNITS: [(&str, &str); 7] = [
        ("_gigabytes_per_second", "GB/s"),
        ("_teraflops_per_second", "TFLOP/s"),
        ("_percent", "%"),
        ("_bytes", ""),
        ("_ns", "ns"),
        ("_us", "µs"),
        ("_ms", "ms"),
    ];
    let unit = UNITS.iter().find(|(end, _)| key.ends_with(end));
    let stem = unit.map_or(key, |(end, _)| key.strip_suffix(end).unwrap_or(key));
    let mut words = String::with_capacity(stem.len() + 8);
    let mut was_lower = false;
    for letter in stem.chars() {
        if letter == '_' || letter == '.' {
            words.push(' ');
        } else if letter.is_ascii_uppercase() && was_lower {
            words.push(' ');
            words.push(letter.to_ascii_lowercase());
        } else {
            words.push(letter);
        }
        was_lower = letter.is_ascii_lowercase();
    }
    if let Some((_, unit)) = unit.filter(|(_, unit)| !unit.is_empty()) {
        let _ = write!(words, " ({unit})");
    }
    words
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}

/// Returns a value with its unit, if the key names one.
fn readable_value(word: &str, value: &str) -> String {
    let Ok(number) = value.parse::<i64>() else {
        return value.to_owned();
    };
    let is_time = matches!(
        word,
        "unix_start_ns" | "unix_stop_ns" | "baseTimeNanoseconds" | "neuronStartTimestampNs"
    );
    if is_time && number > 0 {
        return utc(number.div_euclid(1_000_000_000));
    }
    if word.ends_with("_bytes") || word.starts_with("sharedMem") {
        return format!(
            "{} ({} bytes)",
            bytes(number as f64),
            with_thousands(number)
        );
    }
    value.to_owned()
}

/// Formats seconds since 1970 as `2024-10-25 20:32:51`; a time that no calendar has stays a number.
fn utc(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(
        |_| seconds.to_string(),
        |time| time.strftime("%F %T").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use stepscope_model::{ArgValue, Epoch, EventSink as _};
    use stepscope_store::{FileSpec, TraceBuilder};

    use super::*;

    #[test]
    fn facts_of_all_files_appear_once_and_others_name_their_file() {
        let mut builder = TraceBuilder::new();
        for (rank, torch) in [(0, "2.8"), (1, "2.9"), (2, "2.8")] {
            let mut sink = builder.file(FileSpec {
                host: format!("h{}", rank / 2),
                rank: Some(rank),
                format: "demo".to_owned(),
                ..FileSpec::default()
            });
            sink.epoch(Epoch::default());
            sink.fact("devices", ArgValue::Int(8));
            sink.fact("torch", ArgValue::Str(torch));
            builder.add(sink);
        }
        let json = serde_json::to_value(table(&builder.finish()).rows).unwrap();
        assert_eq!(
            json,
            serde_json::json!([
                ["File format", "demo", null, null, "format"],
                ["Devices", "8", null, null, "devices"],
                ["Torch", "2.8", ["h0", "h1"], [0, 2], "torch"],
                ["Torch", "2.9", ["h0"], [1], "torch"],
            ])
        );
    }

    #[test]
    fn equal_facts_of_several_devices_appear_once() {
        let mut builder = TraceBuilder::new();
        for rank in 0..2 {
            let mut sink = builder.file(FileSpec {
                host: format!("h{rank}"),
                rank: Some(rank),
                format: "demo".to_owned(),
                ..FileSpec::default()
            });
            sink.epoch(Epoch::default());
            for device in 0..6 {
                let name = if device == 4 { "L4" } else { "H100" };
                sink.fact(&format!("device.{device}.name"), ArgValue::Str(name));
                let memory = if device < 2 && rank == 1 { 40 } else { 80 };
                sink.fact(&format!("device.{device}.gb"), ArgValue::Int(memory));
            }
            sink.fact("device.count", ArgValue::Int(6));
            builder.add(sink);
        }
        let json = serde_json::to_value(table(&builder.finish()).rows).unwrap();
        assert_eq!(
            json,
            serde_json::json!([
                ["File format", "demo", null, null, "format"],
                [
                    "Device 0-3,5: name",
                    "H100",
                    null,
                    null,
                    "device.0-3,5.name"
                ],
                ["Device 0-1: gb", "80", ["h0"], [0], "device.0-1.gb"],
                ["Device 0-1: gb", "40", ["h1"], [1], "device.0-1.gb"],
                ["Device 2-5: gb", "80", null, null, "device.2-5.gb"],
                ["Device 4: name", "L4", null, null, "device.4.name"],
                ["Device count", "6", null, null, "device.count"],
            ])
        );
    }

    #[test]
    fn keys_have_readable_labels_and_values_units() {
        for (key, value, expected) in [
            (
                "device.0-7.regsPerMultiprocessor",
                "65536",
                ("Device 0-7: registers per multiprocessor", "65536"),
            ),
            (
                "device.0.memory_bytes",
                "42297524224",
                ("Device 0: memory", "39.4 GiB (42,297,524,224 bytes)"),
            ),
            ("kind.PyTorch", "true", ("Kind of trace", "PyTorch")),
            (
                "unix_start_ns",
                "1716423322522690655",
                ("Recording started (UTC)", "2024-05-23 00:15:22"),
            ),
            (
                "device.3.peak_sram_rd_bw_gigabytes_per_second",
                "5",
                ("Device 3: peak sram rd bw (GB/s)", "5"),
            ),
            ("jax_version", "0.10.2", ("Jax version", "0.10.2")),
            ("someCamelCase", "x", ("Some camel case", "x")),
        ] {
            let (label, text) = readable(key, value);
            assert_eq!((label.as_str(), text.as_str()), expected, "{key}");
        }
        assert_eq!(utc(0), "1970-01-01 00:00:00");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00");
        assert_eq!(utc(i64::MAX), i64::MAX.to_string());
    }
}
