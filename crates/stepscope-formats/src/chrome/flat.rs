//! Wanted members of objects that hold no other object, found by the ends of their names.
//!
//! Of each block of 64 bytes, bit masks say where texts close, and a table lookup which bytes wanted names
//! end with: only where a text closes behind such a byte is looked closer. Nothing else of what stands
//! there is looked at, so this is for text that was read before.
#![allow(
    unsafe_code,
    reason = "calls what is compiled for processors with AVX2 or AVX-512"
)]

use stepscope_model::ArgKeys;

use super::mask;
use super::scan::{block_at, skip_space};

/// Walks the members of an object that bear wanted names and hold no other object: `each` gets the number
/// of the name and where its value begins, and gives whether to go on. Gives the byte after the object's
/// brace; `None` when the walk was ended, when an object or a backslash is in it, and when the text ends
/// first.
pub(super) fn wanted_of_flat(
    bytes: &[u8],
    brace: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    #[cfg(target_arch = "x86_64")]
    {
        if mask::avx512::is_here() {
            // SAFETY: it is.
            return unsafe { wanted_by_avx512(bytes, brace, keys, each) };
        }
        if mask::avx2::is_here() {
            // SAFETY: it is.
            return unsafe { wanted_by_avx2(bytes, brace, keys, each) };
        }
    }
    wanted_by_colons(bytes, brace, keys, each)
}

/// A block is one register here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bw,avx2,bmi1,popcnt,pclmulqdq")]
fn wanted_by_avx512(
    bytes: &[u8],
    brace: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let masks = |block: &[u8; 64]| {
        let places = mask::avx512::places(block, FLAT);
        (places, mask::avx512::ends(block, keys) << 1)
    };
    let wanted = wanted_ends(bytes, brace, keys, each);
    flat_by(
        bytes,
        brace,
        masks,
        |bits| mask::avx2::prefix_xor(bits),
        wanted,
    )
}

/// A block is two registers here.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,popcnt,pclmulqdq")]
fn wanted_by_avx2(
    bytes: &[u8],
    brace: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let masks = |block: &[u8; 64]| {
        let places = mask::avx2::places(block, FLAT);
        (places, mask::avx2::ends(block, keys) << 1)
    };
    let wanted = wanted_ends(bytes, brace, keys, each);
    flat_by(
        bytes,
        brace,
        masks,
        |bits| mask::avx2::prefix_xor(bits),
        wanted,
    )
}

/// Where no table can be asked for many bytes at once.
fn wanted_by_colons(
    bytes: &[u8],
    brace: usize,
    keys: ArgKeys,
    each: impl FnMut(usize, usize) -> bool,
) -> Option<usize> {
    let masks = |block: &[u8; 64]| (mask::places(block, FLAT), u64::MAX);
    let wanted = wanted_ends(bytes, brace, keys, each);
    flat_by(bytes, brace, masks, mask::prefix_xor, wanted)
}

/// The bytes that [`flat_by`] is about.
const FLAT: [u8; 4] = [b'"', b'\\', b'{', b'}'];

/// Whether to go on behind the quote that closes a text.
#[allow(clippy::inline_always, reason = "part of the loop over blocks")]
#[inline(always)]
fn wanted_ends(
    bytes: &[u8],
    brace: usize,
    keys: ArgKeys,
    mut each: impl FnMut(usize, usize) -> bool,
) -> impl FnMut(usize) -> bool {
    move |quote| {
        let name = bytes.get(brace..quote).unwrap_or_default();
        let Some(key) = keys.position_of_quoted_end(name) else {
            return true;
        };
        let colon = skip_space(bytes, quote + 1);
        bytes.get(colon) != Some(&b':') || each(key, skip_space(bytes, colon + 1))
    }
}

/// Calls `each` with the place of each quote that closes a text, of those that `masks_of` marks besides
/// the places of [`FLAT`]; the first of a block always is.
#[allow(
    clippy::inline_always,
    reason = "compiled for the processor that the caller is for"
)]
#[inline(always)]
fn flat_by(
    bytes: &[u8],
    brace: usize,
    masks_of: impl Fn(&[u8; 64]) -> ([u64; 4], u64),
    prefix_xor: impl Fn(u64) -> u64,
    mut each: impl FnMut(usize) -> bool,
) -> Option<usize> {
    let mut here = brace + 1;
    let mut in_string: u64 = 0;
    loop {
        let mut padded = [b' '; 64];
        let block = block_at(bytes, here, &mut padded)?;
        let ([quote, backslash, open, close], marked) = masks_of(block);
        let inside = prefix_xor(quote) ^ in_string;
        in_string = ((inside as i64) >> 63) as u64;
        let close = close & !inside;
        // What stands in front of the object's end.
        let within = close.wrapping_sub(1) & !close;
        if (backslash | open & !inside) & within != 0 {
            return None;
        }
        let mut closing = quote & !inside & within & (marked | 1);
        while closing != 0 {
            if !each(here + closing.trailing_zeros() as usize) {
                return None;
            }
            closing &= closing - 1;
        }
        if close != 0 {
            return Some(here + close.trailing_zeros() as usize + 1);
        }
        here += 64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Way = fn(&[u8], &mut dyn FnMut(usize, usize) -> bool) -> Option<usize>;

    #[test]
    fn wanted_members_of_flat_objects_are_found_at_every_alignment() {
        const KEYS: ArgKeys = ArgKeys::new(&["a:{b}", "c", "Dims"]);
        let walk = |text: &str| {
            let ways: [Way; 3] = [
                |bytes, each| wanted_of_flat(bytes, 0, KEYS, each),
                |bytes, each| wanted_by_colons(bytes, 0, KEYS, each),
                |bytes, each| {
                    #[cfg(target_arch = "x86_64")]
                    if mask::avx2::is_here() {
                        // SAFETY: it is.
                        return unsafe { wanted_by_avx2(bytes, 0, KEYS, each) };
                    }
                    wanted_by_colons(bytes, 0, KEYS, each)
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
        };
        for pad in 0..140 {
            let pad = " ".repeat(pad);
            let text = format!(
                r#"{{{pad}"a:{{b}}":[1,[2]],"c" : "}}:\"c\"",{pad}"d":3,"xc":"c","Dims":"Dims"}},"e":4}}"#
            )
            .replace("\\\"", "'");
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
            for other in [r#""a":{}"#, r#""a":"\n""#, r#""\u0061":1"#] {
                assert_eq!(walk(&format!("{{{pad}{other}}}")).0, None);
            }
        }
        assert_eq!(wanted_of_flat(b"{\"c\":1}", 0, KEYS, |_, _| false), None);
    }
}
