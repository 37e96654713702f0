//! Wanted members of an entry's arguments that hold no other object, found by the ends of their names.
//!
//! Of each block of 64 bytes, bit masks say where quotes and braces are, and a table lookup which bytes
//! wanted names end with. A quote behind such a byte closes a text: one that opens a text stands behind
//! a blank, a comma, a colon or a bracket. So only there is looked closer, and what is inside of texts
//! matters only in blocks with braces. This is for text that was read before.
#![allow(
    unsafe_code,
    reason = "calls what is compiled for processors with AVX2 or AVX-512"
)]

use stepscope_model::ArgKeys;

use super::mask;
use super::scan::{block_at, skip_space};
use super::some_args::is_of_args;

/// Walks the members of `args` that bear wanted names: `each` gets the number of the name and where its
/// value begins, and gives whether to go on. `from` is a place outside of texts in the entry, before
/// `args`. Gives the byte after the brace of `args`; `None` when the walk was ended, when `args` is not
/// the first object behind `from`, when another object is in it, when a backslash is on the way, and
/// when the text ends first.
pub(super) fn wanted_of_args(
    bytes: &[u8],
    from: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        if mask::avx512::is_here() {
            // SAFETY: it is.
            return unsafe { wanted_by_avx512(bytes, from, keys, each) };
        }
        if mask::avx2::is_here() {
            // SAFETY: it is.
            return unsafe { wanted_by_avx2(bytes, from, keys, each) };
        }
    }
    wanted_by_quotes(bytes, from, keys, each)
}

/// A block is one register here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bw,avx2,bmi1,popcnt,pclmulqdq")]
fn wanted_by_avx512(
    bytes: &[u8],
    from: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let masks = |block: &[u8; 64]| {
        let places = mask::avx512::places(block, FLAT);
        (places, mask::avx512::ends(block, keys))
    };
    let prefix_xor = |bits| mask::avx2::prefix_xor(bits);
    flat_by(
        bytes,
        from,
        masks,
        prefix_xor,
        wanted_ends(bytes, keys, each),
    )
}

/// A block is two registers here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,popcnt,pclmulqdq")]
fn wanted_by_avx2(
    bytes: &[u8],
    from: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let masks = |block: &[u8; 64]| {
        let places = mask::avx2::places(block, FLAT);
        (places, mask::avx2::ends(block, keys))
    };
    let prefix_xor = |bits| mask::avx2::prefix_xor(bits);
    flat_by(
        bytes,
        from,
        masks,
        prefix_xor,
        wanted_ends(bytes, keys, each),
    )
}

/// Where no table can be asked for many bytes at once: each quote is looked at.
fn wanted_by_quotes(
    bytes: &[u8],
    from: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let masks = |block: &[u8; 64]| (mask::places(block, FLAT), u64::MAX);
    flat_by(
        bytes,
        from,
        masks,
        mask::prefix_xor,
        wanted_ends(bytes, keys, each),
    )
}

/// The bytes that [`flat_by`] is about.
const FLAT: [u8; 4] = [b'"', b'\\', b'{', b'}'];

/// Whether to go on behind a quote, of an object whose brace stands at the first place.
#[allow(clippy::inline_always, reason = "part of the loop over blocks")]
#[inline(always)]
fn wanted_ends(
    bytes: &[u8],
    keys: ArgKeys,
    mut each: impl FnMut(usize, usize) -> bool,
) -> impl FnMut(usize, usize) -> bool {
    move |brace, quote| {
        let name = bytes.get(brace..quote).unwrap_or_default();
        let Some(key) = keys.position_of_quoted_end(name) else {
            return true;
        };
        let colon = skip_space(bytes, quote + 1);
        bytes.get(colon) != Some(&b':') || each(key, skip_space(bytes, colon + 1))
    }
}

/// Calls `each` with the brace of `args` and the place of each quote of it behind a byte that
/// `masks_of` marks besides the places of [`FLAT`].
#[allow(
    clippy::inline_always,
    reason = "compiled for the processor that the caller is for"
)]
#[inline(always)]
fn flat_by(
    bytes: &[u8],
    from: usize,
    masks_of: impl Fn(&[u8; 64]) -> ([u64; 4], u64),
    prefix_xor: impl Fn(u64) -> u64,
    mut each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let mut here = from;
    let mut in_text = false;
    // Of the byte before the block.
    let mut marked_before = 0;
    let mut brace = None;
    loop {
        let mut padded = [b' '; 64];
        let block = block_at(bytes, here, &mut padded)?;
        let ([quote, backslash, open, close], marked) = masks_of(block);
        let mut wanted = quote & (marked << 1 | marked_before);
        marked_before = marked >> 63;
        let mut end = 0;
        if backslash | open | close != 0 {
            let carried = if in_text { u64::MAX } else { 0 };
            let outside = !(prefix_xor(quote) ^ carried);
            let (open, close) = (open & outside, close & outside);
            // Where `args` has not begun, all of it is behind the first brace.
            let mut within = u64::MAX;
            if brace.is_none() {
                let first = open | close;
                let first = first & first.wrapping_neg();
                if backslash & first.wrapping_sub(1) != 0 {
                    return None;
                }
                within = 0;
                if first != 0 {
                    let at = here + first.trailing_zeros() as usize;
                    if open & first == 0 || !is_of_args(bytes, from, at) {
                        return None;
                    }
                    brace = Some(at);
                    within = !(first | (first - 1));
                }
            }
            end = close & within;
            end &= end.wrapping_neg();
            within &= end.wrapping_sub(1);
            if (backslash | open) & within != 0 {
                return None;
            }
            wanted &= within;
        }
        if let Some(brace) = brace {
            while wanted != 0 {
                if !each(brace, here + wanted.trailing_zeros() as usize) {
                    return None;
                }
                wanted &= wanted - 1;
            }
            if end != 0 {
                return Some(here + end.trailing_zeros() as usize + 1);
            }
        }
        in_text ^= quote.count_ones() & 1 == 1;
        here += 64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Way = fn(&[u8], &mut dyn FnMut(usize, usize) -> bool) -> Option<usize>;

    const KEYS: ArgKeys = ArgKeys::new(&["a:{b}", "c", "Dims"]);

    fn walk(text: &str) -> (Option<usize>, Vec<(usize, usize)>) {
        let ways: [Way; 3] = [
            |bytes, each| wanted_of_args(bytes, 1, KEYS, each),
            |bytes, each| wanted_by_quotes(bytes, 1, KEYS, each),
            |bytes, each| {
                #[cfg(target_arch = "x86_64")]
                if mask::avx2::is_here() {
                    // SAFETY: it is.
                    return unsafe { wanted_by_avx2(bytes, 1, KEYS, each) };
                }
                wanted_by_quotes(bytes, 1, KEYS, each)
            },
        ];
        let found = ways.map(|way| {
            let mut found = Vec::new();
            let end = way(text.as_bytes(), &mut |key, at| {
                found.push((key, at));
                true
            });
            (end, found)
        });
        let [first, others @ ..] = found;
        for other in others {
            assert_eq!(other, first, "{text}");
        }
        first
    }

    #[test]
    fn wanted_members_of_flat_arguments_are_found_at_every_alignment() {
        for pad in 0..140 {
            let pad = " ".repeat(pad);
            let text = format!(
                r#"{{"n":"f<{{x}}>,}}",{pad}"args" : {{"a:{{b}}":[1,[2]],"c" : "}}:'c'",{pad}"d":3,"xc":"c","Dims":"Dims"}},"e":4}}"#
            );
            let (end, found) = walk(&text);
            assert_eq!(end, text.find("},\"e").map(|at| at + 1), "{text}");
            let keys: Vec<&str> = found.iter().map(|(key, _)| KEYS.get(*key)).collect();
            assert_eq!(keys, ["a:{b}", "c", "Dims"], "{text}");
            assert!(text[found[0].1..].starts_with("[1,[2]]"));
            assert!(text[found[1].1..].starts_with("\"}:'c'\""));
            assert!(text[found[2].1..].starts_with("\"Dims\"}"));
            for cut in 1..text.find("},\"e").unwrap_or(0) {
                assert_eq!(walk(&text[..cut]).0, None, "{}", &text[..cut]);
            }
            for other in [
                r#""n":1,"args":{"a":{}}}"#,
                r#""n":1,"args":{"a":"\n"}}"#,
                r#""n":1,"args":{"\u0061":1}}"#,
                r#""n":"\"","args":{"a":1}}"#,
                r#""n":{},"args":{"a":1}}"#,
                r#""n":1},{"args":{"a":1}}"#,
            ] {
                assert_eq!(walk(&format!("{{{pad}{other}")).0, None, "{other}");
            }
        }
        let stopped = wanted_of_args(b"{\"args\":{\"c\":1}", 1, KEYS, |_, _| false);
        assert_eq!(stopped, None);
    }

    #[test]
    fn what_stands_behind_the_arguments_is_no_part_of_them() {
        let (end, found) = walk(r#"{"c":1,"args":{"c":2,"Dims":3},"c":4,"x":{"c":5}}"#);
        assert_eq!(end, Some(30));
        assert_eq!(found, [(1, 19), (2, 28)]);
    }
}
