//! Files of web servers.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use stepscope_objects::{Environment, Object, ObjectError, ObjectErrorKind, Remote, fetch};
use stepscope_test_data::bucket::{Bucket, Faults};

use crate::{MIB, content, evidence, pattern};

fn connect(url: &str, cache: &Path) -> Remote {
    let environment = Environment::new(&[], cache);
    Remote::connect(
        Path::new(url),
        cache.join("objects"),
        evidence,
        &environment,
    )
    .unwrap()
}

fn find(bucket: &Bucket, path: &str, cache: &Path) -> Result<Arc<Object>, ObjectError> {
    let remote = connect(&format!("{}/b/{path}", bucket.endpoint()), cache);
    let listing = remote.list(Instant::now())?;
    assert!(listing.is_single);
    Ok(Arc::clone(&listing.objects[0]))
}

#[test]
fn a_file_is_fetched_with_and_without_ranges() {
    let large = pattern(20 * MIB);
    for (faults, requests) in [
        (Faults::default(), 3),
        (
            Faults {
                no_ranges: true,
                ..Faults::default()
            },
            1,
        ),
        // Without an `ETag`, ranges could be of two versions.
        (
            Faults {
                no_etag: true,
                ..Faults::default()
            },
            1,
        ),
    ] {
        let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
        bucket.put("t.json", &large, "\"1\"");
        bucket.misbehave(faults.clone());
        let object = find(&bucket, "t.json", cache.path()).unwrap();
        assert_eq!(
            (object.relative(), object.bytes()),
            ("t.json", large.len() as u64)
        );
        bucket.take_log();
        assert_eq!(object.head(4).unwrap(), large[..4]);
        bucket.take_log();
        assert_eq!(content(&object), large);
        assert_eq!(bucket.take_log().len(), requests, "{faults:?}");
        // A second client asks for the state, and fetches nothing.
        assert!(
            find(&bucket, "t.json", cache.path())
                .unwrap()
                .local()
                .is_some()
        );
        assert_eq!(bucket.take_log().len(), 1);
    }
}

#[test]
fn an_empty_file_has_no_bytes() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("t.json", b"", "\"1\"");
    let object = find(&bucket, "t.json", cache.path()).unwrap();
    assert_eq!(object.bytes(), 0);
    assert_eq!(content(&object), b"");
}

#[test]
fn a_signed_address_is_sent_and_not_shown() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("t.json", b"x", "\"1\"");
    let first = find(&bucket, "t.json?sig=secret", cache.path()).unwrap();
    assert!(!first.url().contains("secret"), "{}", first.url());
    assert_eq!(content(&first), b"x");
    let log = bucket.take_log();
    assert!(
        log.iter().all(|line| line.contains("?sig=secret")),
        "{log:?}"
    );
    // Addresses that differ in their query may be different files.
    let other = find(&bucket, "t.json?sig=other", cache.path()).unwrap();
    assert!(other.local().is_none());
    let error = find(&bucket, "absent.json?sig=secret", cache.path()).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::NotFound);
    assert!(!format!("{error:?}").contains("secret"), "{error:?}");
}

#[test]
fn servers_that_misbehave_are_errors() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("t.json", b"xyz", "\"1\"");
    let fails = |faults: Faults| {
        bucket.misbehave(faults);
        find(&bucket, "t.json", cache.path()).unwrap_err()
    };
    let denied = fails(Faults {
        denied: true,
        ..Faults::default()
    });
    assert_eq!(denied.kind, ObjectErrorKind::Denied, "{denied}");
    let around = Some(format!("{}/b/t.json", bucket.endpoint()));
    let endless = fails(Faults {
        redirect: around,
        ..Faults::default()
    });
    assert!(endless.reason.contains("redirects"), "{endless}");
    assert!(bucket.take_log().len() < 20);
    let unsized_file = fails(Faults {
        no_length: true,
        no_ranges: true,
        ..Faults::default()
    });
    assert!(unsized_file.reason.contains("size"), "{unsized_file}");
    // It is asked three times.
    let overloaded = fails(Faults {
        overloaded: 3,
        ..Faults::default()
    });
    assert!(overloaded.reason.contains("503"), "{overloaded}");
    bucket.misbehave(Faults {
        overloaded: 2,
        ..Faults::default()
    });
    let object = find(&bucket, "t.json", cache.path()).unwrap();
    bucket.misbehave(Faults {
        longer: 50 * MIB,
        ..Faults::default()
    });
    assert_eq!(fetch(&object).unwrap_err().kind, ObjectErrorKind::TooLarge);
    bucket.misbehave(Faults {
        cut: Some((1, 0)),
        ..Faults::default()
    });
    assert_eq!(
        fetch(&object).unwrap_err().kind,
        ObjectErrorKind::Unreachable
    );
    bucket.misbehave(Faults::default());
    assert_eq!(content(&object), b"xyz");
    bucket.put("t.json", b"changed", "\"2\"");
    let before = find(&bucket, "t.json", cache.path()).unwrap();
    bucket.put("t.json", b"again", "\"3\"");
    assert_eq!(fetch(&before).unwrap_err().kind, ObjectErrorKind::Changed);
}
