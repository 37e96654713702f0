//! A library in CUPTI's place, for the tests: it replays records of a real one.
//!
//! * `CUPTI_RECORDS=FILE`: each call of `stand_in_work` delivers the records of the file, as if the device had done
//!   that work now.
//! * `CUPTI_REAL=LIBRARY` too: it passes every call on to NVIDIA's library, and writes what that delivers into the file.
//!   This is how `tests/data/cupti` was made.
//! * `CUPTI_FAILS=NUMBER`: `cuptiSubscribe` returns this error.
//! * `CUPTI_VERSION=NUMBER`: `cuptiGetVersion` returns this version.
//!
//! A file has a line for each record and each name of a call: `record HEX OFFSET=TEXT...`, `call DOMAIN NUMBER NAME`.
#![allow(
    non_snake_case,
    unsafe_code,
    clippy::missing_panics_doc,
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    missing_docs,
    reason = "an interface of C, for tests"
)]

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::sync::{Mutex, OnceLock};

type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// Room of a replayed record: more than the largest.
const STRIDE: usize = 256;

static CALLBACKS: Mutex<Option<(Requested, Completed)>> = Mutex::new(None);
static ENABLED: Mutex<Vec<u32>> = Mutex::new(Vec::new());
static SUBSCRIBED: Mutex<bool> = Mutex::new(false);

/// Offsets of the times and of the texts in a record of this kind.
fn layout(kind: u32) -> (&'static [usize], &'static [usize]) {
    match kind {
        1 | 2 | 22 => (&[16, 24], &[]),
        4 | 5 | 38 => (&[8, 16], &[]),
        8 => (&[], &[136]),
        10 => (&[16, 24], &[104]),
        12 => (&[8], &[40]),
        _ => (&[], &[]),
    }
}

/// A record, and the text that it points to from this offset.
struct Record {
    bytes: Vec<u8>,
    text: Option<(usize, CString)>,
}

struct Replayed {
    records: Vec<Record>,
    names: BTreeMap<(u32, u32), CString>,
}

fn replayed() -> &'static Replayed {
    static FILE: OnceLock<Replayed> = OnceLock::new();
    FILE.get_or_init(|| {
        let text = std::env::var("CUPTI_RECORDS")
            .ok()
            .and_then(|path| fs::read_to_string(path).ok())
            .unwrap_or_default();
        let mut found = Replayed {
            records: Vec::new(),
            names: BTreeMap::new(),
        };
        for line in text.lines() {
            let mut words = line.split(' ');
            match words.next() {
                Some("record") => {
                    let hex = words.next().unwrap();
                    let bytes = (0..hex.len() / 2)
                        .map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
                    // Texts have blanks: the rest of the line is one.
                    let rest = words.collect::<Vec<_>>().join(" ");
                    let text = rest.split_once('=').map(|(offset, text)| {
                        (offset.parse().unwrap(), CString::new(text).unwrap())
                    });
                    found.records.push(Record {
                        bytes: bytes.collect(),
                        text,
                    });
                }
                Some("call") => {
                    let [domain, number] =
                        [words.next(), words.next()].map(|word| word.unwrap().parse().unwrap());
                    let name = CString::new(words.next().unwrap()).unwrap();
                    found.names.insert((domain, number), name);
                }
                _ => {}
            }
        }
        found
    })
}

fn now_ns() -> u64 {
    stepscope_model::clock::unix_now_ns().cast_unsigned()
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().unwrap()
}

/// Does the recorded work now: its first record begins at this time.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_work() {
    let Some((requested, completed)) = *CALLBACKS.lock().unwrap() else {
        return;
    };
    let file = replayed();
    let kind = |record: &[u8]| u32::from_ne_bytes(number(record, 0));
    let times = file.records.iter().flat_map(|record| {
        let (times, _) = layout(kind(&record.bytes));
        times
            .iter()
            .map(|at| u64::from_ne_bytes(number(&record.bytes, *at)))
    });
    let times = times.filter(|time| *time > 0);
    let (first, last) = times.fold((u64::MAX, 0), |(first, last), time| {
        (first.min(time), last.max(time))
    });
    let first = first.min(last);
    let shift = now_ns() - first;
    let enabled = ENABLED.lock().unwrap().clone();
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    for Record { bytes, text } in &file.records {
        let kind = kind(bytes);
        if !enabled.contains(&kind) {
            continue;
        }
        let mut record = bytes.clone();
        record.resize(STRIDE, 0);
        for at in layout(kind).0 {
            let time = u64::from_ne_bytes(number(&record, *at));
            if time > 0 {
                record[*at..*at + 8].copy_from_slice(&(time + shift).to_ne_bytes());
            }
        }
        if let Some((at, text)) = text {
            let pointer = text.as_ptr() as usize as u64;
            record[*at..*at + 8].copy_from_slice(&pointer.to_ne_bytes());
        }
        wanted.push(record);
    }
    // As the real one: buffers are completed on another thread, some of them not full.
    let deliver = std::thread::Builder::new().name("cupti".to_owned());
    let deliver = deliver.spawn(move || {
        for part in wanted.chunks(1_000) {
            let (mut buffer, mut size, mut most) = (std::ptr::null_mut(), 0, 0);
            unsafe {
                requested(&raw mut buffer, &raw mut size, &raw mut most);
                if buffer.is_null() {
                    continue;
                }
                for (at, record) in part.iter().enumerate() {
                    std::ptr::copy_nonoverlapping(record.as_ptr(), buffer.add(at * STRIDE), STRIDE);
                }
                completed(std::ptr::null_mut(), 0, buffer, size, part.len() * STRIDE);
            }
        }
    });
    deliver.unwrap().join().unwrap();
    // The work takes its time.
    while now_ns() < last + shift {
        std::thread::yield_now();
    }
}

/// A function of the real library, if there is one.
fn real(name: &CStr) -> Option<*mut c_void> {
    static REAL: OnceLock<usize> = OnceLock::new();
    let library = *REAL.get_or_init(|| {
        let Some(path) = std::env::var("CUPTI_REAL").ok() else {
            return 0;
        };
        let path = CString::new(path).unwrap();
        unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) as usize }
    });
    if library == 0 {
        return None;
    }
    let found = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

macro_rules! passed_on {
    ($name:ident ( $($argument:ident : $type:ty),* ) or $other:expr) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            let name = CString::new(stringify!($name)).unwrap();
            match real(&name) {
                Some(found) => unsafe {
                    let found: unsafe extern "C" fn($($type),*) -> c_int = std::mem::transmute(found);
                    found($($argument),*)
                },
                None => $other,
            }
        }
    };
}

type Callback = unsafe extern "C" fn(*mut c_void, u32, u32, *const c_void);

passed_on!(cuptiSubscribe(subscriber: *mut *mut c_void, callback: Callback, data: *mut c_void) or {
    let _ = (callback, data);
    let fails = std::env::var("CUPTI_FAILS").ok().and_then(|number| number.parse().ok());
    let mut subscribed = SUBSCRIBED.lock().unwrap();
    match fails {
        Some(status) => status,
        // CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
        None if *subscribed => 39,
        None => {
            *subscribed = true;
            unsafe { *subscriber = std::ptr::dangling_mut() };
            0
        }
    }
});
passed_on!(cuptiGetVersion(version: *mut u32) or {
    let given = std::env::var("CUPTI_VERSION").ok().and_then(|number| number.parse().ok());
    unsafe { *version = given.unwrap_or(130_000) };
    0
});
passed_on!(cuptiUnsubscribe(subscriber: *mut c_void) or {
    let _ = subscriber;
    *SUBSCRIBED.lock().unwrap() = false;
    0
});
passed_on!(cuptiActivityEnable(kind: u32) or {
    ENABLED.lock().unwrap().push(kind);
    0
});
passed_on!(cuptiActivityDisable(kind: u32) or {
    ENABLED.lock().unwrap().retain(|enabled| *enabled != kind);
    0
});
passed_on!(cuptiActivityFlushAll(flag: u32) or { let _ = flag; 0 });
passed_on!(cuptiActivityFlushPeriod(time: u32) or { let _ = time; 0 });
passed_on!(cuptiSetThreadIdType(kind: u32) or { let _ = kind; 0 });
passed_on!(cuptiActivityGetNumDroppedRecords(context: *mut c_void, stream: u32, dropped: *mut usize) or {
    let _ = (context, stream);
    unsafe { *dropped = 0 };
    0
});
passed_on!(cuptiActivityGetNextRecord(buffer: *mut u8, valid: usize, record: *mut *mut u8) or {
    unsafe {
        let next = if (*record).is_null() { buffer } else { (*record).add(STRIDE) };
        if next as usize >= buffer as usize + valid {
            // CUPTI_ERROR_MAX_LIMIT_REACHED
            return 12;
        }
        *record = next;
    }
    0
});
passed_on!(cuptiGetCallbackName(domain: u32, number: u32, name: *mut *const c_char) or {
    match replayed().names.get(&(domain, number)) {
        Some(known) => {
            unsafe { *name = known.as_ptr() };
            0
        }
        None => 1,
    }
});
passed_on!(cuptiGetResultString(status: c_int, text: *mut *const c_char) or {
    let known = match status {
        35 => c"CUPTI_ERROR_INSUFFICIENT_PRIVILEGES",
        39 => c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED",
        _ => return 1,
    };
    unsafe { *text = known.as_ptr() };
    0
});

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Requested,
    completed: Completed,
) -> c_int {
    *CALLBACKS.lock().unwrap() = Some((requested, completed));
    match real(c"cuptiActivityRegisterCallbacks") {
        Some(found) => unsafe {
            let found: unsafe extern "C" fn(Requested, Completed) -> c_int =
                std::mem::transmute(found);
            found(requested, written)
        },
        None => 0,
    }
}

/// Writes the records of a real buffer into the file, then passes it on.
unsafe extern "C" fn written(
    context: *mut c_void,
    stream: u32,
    buffer: *mut u8,
    size: usize,
    valid: usize,
) {
    let mut records: Vec<*mut u8> = Vec::new();
    let mut record = std::ptr::null_mut();
    while unsafe { cuptiActivityGetNextRecord(buffer, valid, &raw mut record) } == 0 {
        records.push(record);
    }
    let end = buffer as usize + valid;
    let mut text = String::new();
    for (at, record) in records.iter().enumerate() {
        let next = records.get(at + 1).map_or(end, |next| *next as usize);
        let bytes = unsafe { std::slice::from_raw_parts(*record, next - *record as usize) };
        let kind = u32::from_ne_bytes(number(bytes, 0));
        let mut bytes = bytes.to_vec();
        let mut texts = String::new();
        for offset in layout(kind).1 {
            let pointer = u64::from_ne_bytes(number(&bytes, *offset)) as usize as *const c_char;
            bytes[*offset..*offset + 8].fill(0);
            if !pointer.is_null() {
                let found = unsafe { CStr::from_ptr(pointer) }.to_string_lossy();
                let _ = write!(texts, " {offset}={found}");
            }
        }
        let hex: String = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = writeln!(text, "record {hex}{texts}");
        if let 4 | 5 = kind {
            let domain = if kind == 4 { 1 } else { 2 };
            let call = u32::from_ne_bytes(number(&bytes, 4));
            let mut name = std::ptr::null();
            if unsafe { cuptiGetCallbackName(domain, call, &raw mut name) } == 0 {
                let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
                let _ = writeln!(text, "call {domain} {call} {name}");
            }
        }
    }
    if let Some(path) = std::env::var_os("CUPTI_RECORDS") {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
    }
    let completed = CALLBACKS.lock().unwrap().map(|(_, completed)| completed);
    if let Some(completed) = completed {
        unsafe { completed(context, stream, buffer, size, valid) };
    }
}
