//! Fuzzes format detection with arbitrary bytes, with and without a name; when the content decides,
//! the result must not depend on the name.

#![no_main]

use libfuzzer_sys::fuzz_target;
use stepscope_formats::detect::{Evidence, detect};

fuzz_target!(|bytes: &[u8]| {
    let blind = detect(bytes, "x");
    for name in [
        "h.xplane.pb",
        "a.pftrace",
        "a.json.gz",
        "\u{0}/../.json",
        "",
    ] {
        let named = detect(bytes, name);
        if let (Ok(blind), Ok(named)) = (&blind, &named)
            && blind.evidence == Evidence::Content
            && named.evidence == Evidence::Content
        {
            assert_eq!(blind.format, named.format);
        }
        if let Err(error) = named {
            let told = error.to_string();
            assert!(!told.is_empty() && !told.contains('\u{1b}'));
        }
    }
});
