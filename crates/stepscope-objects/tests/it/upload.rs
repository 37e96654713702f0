//! Files of this machine become objects.

use std::path::Path;

use stepscope_objects::{Environment, ObjectErrorKind, Upload, upload};
use stepscope_test_data::bucket::{Bucket, Faults};

use crate::{MIB, environment, pattern};

fn file(folder: &Path, name: &str, content: &[u8]) -> Upload {
    let path = folder.join(name.replace('/', "-"));
    std::fs::write(&path, content).unwrap();
    Upload {
        file: path,
        name: name.to_owned(),
        stays: name.starts_with('_'),
    }
}

fn send(
    bucket: &Bucket,
    url: &str,
    files: Vec<Upload>,
    home: &Path,
) -> Result<(), stepscope_objects::ObjectError> {
    let environment: Environment = environment(bucket, home, true);
    upload(Path::new(url), vec![files], &environment, &|_| true)
}

#[test]
fn every_cloud_takes_files() {
    for scheme in ["s3", "gs", "az"] {
        let (bucket, home) = (Bucket::serve(), tempfile::tempdir().unwrap());
        let files = vec![
            file(home.path(), "a/ü 1.pb", b"one"),
            file(home.path(), "empty", b""),
        ];
        send(&bucket, &format!("{scheme}://b/logs/"), files, home.path()).unwrap();
        let objects = bucket.objects().into_iter();
        let expected = [("logs/a/ü 1.pb", "one"), ("logs/empty", "")];
        let expected = expected.map(|(key, text)| (key.to_owned(), text.into()));
        assert_eq!(objects.collect::<Vec<_>>(), expected, "{scheme}");
    }
}

#[test]
fn long_files_are_sent_in_parts() {
    for scheme in ["s3", "gs"] {
        let (bucket, home) = (Bucket::serve(), tempfile::tempdir().unwrap());
        let sizes = [8 * MIB - 1, 8 * MIB, 30 * MIB + 7];
        let name = |size: &usize| format!("{size}.pb");
        let files = sizes.map(|size| file(home.path(), &name(&size), &pattern(size)));
        send(&bucket, &format!("{scheme}://b"), files.into(), home.path()).unwrap();
        let objects = bucket.objects();
        for size in sizes {
            assert!(objects[&name(&size)] == pattern(size), "{scheme} {size}");
        }
        assert_eq!((objects.len(), bucket.incomplete()), (3, 0));
    }
}

#[test]
fn refused_uploads_give_kind_and_hint() {
    let (bucket, home) = (Bucket::serve(), tempfile::tempdir().unwrap());
    let short = || vec![file(home.path(), "x", b"x")];
    bucket.misbehave(Faults {
        denied: true,
        ..Faults::default()
    });
    let error = send(&bucket, "s3://b/logs", short(), home.path()).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Denied);
    assert!(error.hint.unwrap().contains("s3:PutObject"));
    bucket.misbehave(Faults::default());
    let web = format!("{}/logs", bucket.endpoint());
    let error = send(&bucket, &web, short(), home.path()).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::BadUrl);
    assert!(error.hint.unwrap().contains("s3://"));
    let absent = Upload {
        file: home.path().join("absent"),
        name: "absent".to_owned(),
        stays: false,
    };
    let error = send(&bucket, "s3://b", vec![absent], home.path()).unwrap_err();
    assert!(error.reason.contains("absent cannot be read"), "{error}");
}

#[test]
fn a_cancelled_upload_creates_no_object() {
    let (bucket, home) = (Bucket::serve(), tempfile::tempdir().unwrap());
    let environment = environment(&bucket, home.path(), true);
    let long = vec![file(home.path(), "long", &pattern(20 * MIB))];
    // The copy cannot end before it is cancelled.
    bucket.misbehave(Faults {
        holds: true,
        ..Faults::default()
    });
    let error = upload(Path::new("s3://b"), vec![long], &environment, &|_| false).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Cancelled);
    assert!(bucket.objects().is_empty());
}

/// Uploads a mark and a long file, then a file that is not copied, and checks that the mark alone stays.
fn assert_nothing_stays(
    scheme: &str,
    faults: Faults,
    last: impl Fn(&Path) -> Upload,
    goes_on: impl Fn(&Bucket) -> bool,
) {
    let (bucket, home) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("set/old.pb", b"old", "e");
    bucket.misbehave(faults);
    let environment = environment(&bucket, home.path(), true);
    let first = vec![
        file(home.path(), "_mark", b"{}"),
        file(home.path(), "slices/long.pb", &pattern(20 * MIB)),
        file(home.path(), "slices/short.pb", b"short"),
    ];
    let url = format!("{scheme}://b/set");
    let groups = vec![first, vec![last(home.path())]];
    let error = upload(Path::new(&url), groups, &environment, &|_| goes_on(&bucket)).unwrap_err();
    let left: Vec<String> = bucket.objects().into_keys().collect();
    assert_eq!(left, ["set/_mark", "set/old.pb"], "{scheme}: {error}");
    assert_eq!(bucket.incomplete(), 0, "{scheme}: parts cost money");
}

#[test]
fn objects_of_a_failed_upload_are_removed() {
    for scheme in ["s3", "gs"] {
        let absent = |home: &Path| Upload {
            file: home.join("absent"),
            name: "runs/a.pb".to_owned(),
            stays: false,
        };
        assert_nothing_stays(scheme, Faults::default(), absent, |_| true);
    }
}

#[test]
fn objects_of_a_cancelled_upload_are_removed() {
    let long = |home: &Path| file(home, "runs/long.pb", &pattern(20 * MIB));
    let faults = Faults {
        holds_parts_of: Some("set/runs/long.pb".to_owned()),
        ..Faults::default()
    };
    // Cancelled when the first group is complete, while the file of the second one is sent.
    let goes_on = |bucket: &Bucket| {
        let is_first_complete = bucket.objects().contains_key("set/slices/long.pb");
        !(is_first_complete && bucket.incomplete() == 1)
    };
    assert_nothing_stays("s3", faults, long, goes_on);
}
