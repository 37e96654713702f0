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
    }
}

fn send(
    bucket: &Bucket,
    url: &str,
    files: Vec<Upload>,
    home: &Path,
) -> Result<(), stepscope_objects::ObjectError> {
    let environment: Environment = environment(bucket, home, true);
    upload(Path::new(url), files, &environment, &|_| true)
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
fn what_cannot_be_written_says_why() {
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
    let error = upload(Path::new("s3://b"), long, &environment, &|_| false).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Cancelled);
    assert!(bucket.objects().is_empty());
}
