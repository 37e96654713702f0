//! Values of HTTP headers: entity tags and encodings.

/// Returns whether a list of entity tags contains `etag` (weak comparison).
pub(crate) fn matches_etag(list: &str, etag: &str) -> bool {
    let bare = |tag: &str| tag.trim().trim_start_matches("W/").to_owned();
    list.split(',')
        .any(|known| known.trim() == "*" || bare(known) == bare(etag))
}

/// Returns whether `Accept-Encoding` allows this coding.
pub(crate) fn accepts(accepted: &str, coding: &str) -> bool {
    accepted.split(',').any(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let named = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case(coding) || name == "*");
        let refused = parts.any(|part| {
            part.strip_prefix("q=")
                .and_then(|weight| weight.trim().parse::<f32>().ok())
                .is_some_and(|weight| weight <= 0.0)
        });
        named && !refused
    })
}

/// Returns a fingerprint of the content (FNV-1a); it does not protect against forgery.
pub(crate) fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_are_understood() {
        for (accepted, coding, expected) in [
            ("gzip, deflate, br", "br", true),
            ("gzip;q=0", "gzip", false),
            ("GZIP; q=0.5", "gzip", true),
            ("*", "br", true),
            ("identity", "gzip", false),
            ("", "gzip", false),
        ] {
            assert_eq!(accepts(accepted, coding), expected, "{accepted} {coding}");
        }
    }

    #[test]
    fn entity_tags_are_compared_weakly() {
        for (list, expected) in [
            ("W/\"a\"", true),
            ("\"a\"", true),
            ("\"b\", W/\"a\"", true),
            ("*", true),
            ("\"b\"", false),
        ] {
            assert_eq!(matches_etag(list, "W/\"a\""), expected, "{list}");
        }
    }
}
