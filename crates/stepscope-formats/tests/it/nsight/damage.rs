//! Damaged exports, and databases of other programs.

use stepscope_formats::detect::{Evidence, detect};
use stepscope_formats::probe::Probe;
use stepscope_formats::{Format, FormatError};
use stepscope_model::Diagnostic;

use super::{emitted, export};

/// Size of the pages of `early.sqlite`.
const PAGE_BYTES: usize = 512;

/// Builds a database of one page whose tables have no rows: each a `CREATE TABLE` statement.
fn database(tables: &[&str], encoding: u8) -> Vec<u8> {
    const SIZE: usize = 4_096;
    let mut page = vec![0; SIZE];
    page[..16].copy_from_slice(b"SQLite format 3\0");
    page[16] = 0x10;
    page[18..24].copy_from_slice(&[1, 1, 0, 64, 32, 32]);
    page[59] = encoding;
    page[100] = 13;
    let mut end = SIZE;
    for (number, sql) in tables.iter().enumerate() {
        let name = sql.split([' ', '(']).nth(2).unwrap();
        let mut record = Vec::new();
        let mut header = Vec::new();
        for text in ["table", name, name] {
            header.push(u8::try_from(13 + 2 * text.len()).unwrap());
            record.extend(text.as_bytes());
        }
        header.push(1);
        // The root is beyond the end of the file.
        record.push(9);
        let length = 13 + 2 * sql.len();
        assert!(length < 1 << 14);
        header.extend([
            0x80 | u8::try_from(length >> 7).unwrap(),
            u8::try_from(length & 127).unwrap(),
        ]);
        record.extend(sql.as_bytes());
        header.insert(0, u8::try_from(header.len() + 1).unwrap());
        let payload = [header, record].concat();
        let size = payload.len();
        let mut cell = vec![
            0x80 | u8::try_from(size >> 7).unwrap(),
            u8::try_from(size & 127).unwrap(),
        ];
        cell.push(u8::try_from(number + 1).unwrap());
        cell.extend(payload);
        end -= cell.len();
        page[end..end + cell.len()].copy_from_slice(&cell);
        let pointer = 108 + 2 * number;
        page[pointer..pointer + 2].copy_from_slice(&u16::try_from(end).unwrap().to_be_bytes());
        page[104] = u8::try_from(number + 1).unwrap();
    }
    page
}

#[test]
fn a_database_is_recognised_by_its_tables() {
    let nsight = database(
        &[
            "CREATE TABLE a(b)",
            "CREATE TABLE StringIds (id INTEGER, value TEXT)",
        ],
        1,
    );
    for name in ["x", "x.json", "x.sqlite"] {
        let found = detect(&nsight, name).unwrap();
        assert_eq!(
            (found.format, found.evidence),
            (Format::NsightSystems, Evidence::Content)
        );
    }
    let message = |bytes: &[u8]| detect(bytes, "x.sqlite").unwrap_err().to_string();
    let other = database(
        &[
            "CREATE TABLE cookies(b)",
            "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(c)",
        ],
        1,
    );
    assert_eq!(
        message(&other),
        "not a recognised trace: an SQLite database without tables of Nsight Systems; its tables are cookies, \
         CUPTI_ACTIVITY_KIND_KERNEL"
    );
    let rocpd = database(&["CREATE TABLE rocpd_string(b)"], 1);
    assert!(message(&rocpd).contains("`rocpd convert -i FILE"));
    assert!(message(&database(&[], 1)).ends_with("an SQLite database without tables"));
    // What is not in the first bytes is left to the reader, which says the same.
    let cut = detect(&other[..64], "x").unwrap();
    assert_eq!(
        (cut.format, cut.evidence),
        (Format::NsightSystems, Evidence::Extension)
    );
    let refused = emitted(&other).err().unwrap().to_string();
    assert!(
        refused.contains("without tables of Nsight Systems"),
        "{refused}"
    );
}

#[test]
fn texts_in_utf_16_are_refused() {
    let wide = database(&["CREATE TABLE StringIds(id, value)"], 2);
    let refused = emitted(&wide).err().unwrap();
    assert!(refused.to_string().contains("UTF-16"), "{refused}");
}

#[test]
fn reports_of_nsight_systems_say_how_to_export_them() {
    let advice = "run `nsys export --type sqlite FILE`, and open the result";
    for (bytes, name) in [
        (&b"NVIDIA Tegra Profiler Report 1.\n"[..], "x"),
        (b"\x01\x02\x03", "report1.nsys-rep"),
        (b"\x01\x02\x03", "REPORT.QDREP"),
    ] {
        let refused = detect(bytes, name).unwrap_err().to_string();
        assert!(refused.contains(advice), "{refused}");
    }
}

#[test]
fn an_export_without_rows_is_empty() {
    let probe = emitted(&database(&["CREATE TABLE StringIds(id, value)"], 1)).unwrap();
    assert!(probe.slices.is_empty());
    // Its root is beyond the end of the file.
    assert!(probe.count(Diagnostic::Unreadable) > 0);
}

#[test]
fn a_file_cut_anywhere_gives_the_rows_of_the_pages_that_are_left() {
    let whole = export("early");
    // Slices of samples have no category: more samples can join them.
    let recorded = |probe: &Probe| {
        let slices = probe.slices.iter();
        slices.filter(|slice| !slice.category.is_empty()).count()
    };
    let all = recorded(&emitted(&whole).unwrap());
    let mut found = Vec::new();
    for end in (0..whole.len()).step_by(PAGE_BYTES / 2 - 1) {
        match emitted(&whole[..end]) {
            Ok(probe) => {
                assert!(probe.count(Diagnostic::Truncated) > 0, "at {end}");
                let lost = recorded(&probe) < all;
                assert!(!lost || probe.count(Diagnostic::Unreadable) > 0, "at {end}");
                found.push(recorded(&probe));
            }
            Err(FormatError::Malformed { .. } | FormatError::NotATrace { .. }) => {}
            Err(other) => panic!("at {end}: {other}"),
        }
    }
    assert!(found.is_sorted(), "{found:?}");
    assert!(found.first() < found.last() && *found.last().unwrap() > all / 2);
}

#[test]
fn flipped_bits_do_no_harm() {
    for name in ["early", "current"] {
        let whole = export(name);
        let all = emitted(&whole).unwrap().slices.len();
        // Every byte of the header and of the first page, and one in some hundred of the others.
        let far = (PAGE_BYTES..whole.len()).step_by(if name == "early" { 331 } else { 2_003 });
        for at in (0..PAGE_BYTES).chain(far) {
            let mut damaged = whole.clone();
            damaged[at] ^= 1 << (at % 8);
            if let Ok(probe) = emitted(&damaged) {
                assert!(
                    probe.slices.len() <= 2 * all,
                    "at {at}: {}",
                    probe.slices.len()
                );
                assert!(probe.slices.iter().all(|slice| slice.dur_ps >= 0));
                for slice in probe.slices.iter().step_by(97) {
                    let _ = probe.args(slice.args);
                }
            }
        }
    }
}

/// Returns the number of the first interior page of a table (from 1) other than the first page.
fn interior_page(bytes: &[u8]) -> usize {
    let pages = bytes.chunks(PAGE_BYTES).skip(1);
    2 + pages.clone().position(|page| page[0] == 5).unwrap()
}

#[test]
fn circles_of_pages_end_and_are_named() {
    let whole = export("early");
    let all = emitted(&whole).unwrap().slices.len();
    let page = interior_page(&whole);
    let start = (page - 1) * PAGE_BYTES;
    // The last child becomes the page itself.
    let mut circle = whole.clone();
    let own = u32::try_from(page).unwrap().to_be_bytes();
    circle[start + 8..start + 12].copy_from_slice(&own);
    let probe = emitted(&circle).unwrap();
    assert!(probe.slices.len() <= all);
    let named = format!("page {page}: it has been read already");
    let details = probe.diagnostics.iter().map(|one| &one.2);
    assert!(
        details.clone().any(|detail| detail.ends_with(&named)),
        "{:?}",
        probe.diagnostics
    );
}

#[test]
fn every_page_replaced_by_another_one_is_survived() {
    let whole = export("early");
    let count = whole.len() / PAGE_BYTES;
    for page in 1..count {
        let mut damaged = whole.clone();
        let other = (page * 7 + 3) % count * PAGE_BYTES;
        damaged.copy_within(other..other + PAGE_BYTES, page * PAGE_BYTES);
        let _ = emitted(&damaged);
    }
}

#[test]
fn a_database_in_write_ahead_mode_has_a_note() {
    let mut bytes = export("early");
    bytes[18] = 2;
    bytes[19] = 2;
    let probe = emitted(&bytes).unwrap();
    let details = probe.diagnostics.iter().map(|one| &one.2);
    assert!(details.clone().any(|detail| detail.contains("-wal")));
}
