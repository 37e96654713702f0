//! Object stores and web servers, as a server on this machine plays them.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test that cannot go on should say where, and reads its files"
)]
#![allow(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "the names are those of the tests"
)]

mod upload;
mod web;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use stepscope_objects::{
    Environment, Listing, NameEvidence, Object, ObjectErrorKind, POLL_INTERVAL, Remote, fetch,
    fetch_all,
};
use stepscope_test_data::bucket::{Bucket, Faults};

const MIB: usize = 1 << 20;

/// Returns bytes that differ from place to place.
pub(crate) fn pattern(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

pub(crate) fn evidence(name: &str) -> NameEvidence {
    if name.ends_with(".pb") {
        NameEvidence::Trace
    } else if name.ends_with(".json") {
        NameEvidence::MaybeTrace
    } else {
        NameEvidence::Other
    }
}

/// Connects with keys, as `s3://`.
fn s3(bucket: &Bucket, url: &str, cache: &Path) -> Remote {
    connect(bucket, url, cache, true)
}

/// Returns the variables of a user whose stores are all this server.
pub(crate) fn environment(bucket: &Bucket, home: &Path, has_keys: bool) -> Environment {
    let endpoint = bucket.endpoint();
    let mut variables = vec![
        ("AWS_ENDPOINT_URL", &*endpoint),
        ("AWS_REGION", "r"),
        ("GOOGLE_BASE_URL", &endpoint),
        ("AZURE_STORAGE_ENDPOINT", &endpoint),
        ("AZURE_STORAGE_ACCOUNT_NAME", "account"),
    ];
    if has_keys {
        variables.extend([
            ("AWS_ACCESS_KEY_ID", "k"),
            ("AWS_SECRET_ACCESS_KEY", "s"),
            ("GOOGLE_OAUTH_ACCESS_TOKEN", "t"),
            ("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"),
        ]);
    }
    Environment::new(&variables, home)
}

fn connect(bucket: &Bucket, url: &str, cache: &Path, has_keys: bool) -> Remote {
    Remote::connect(
        Path::new(url),
        cache.join("objects"),
        evidence,
        &environment(bucket, cache, has_keys),
    )
    .unwrap()
}

fn names(listing: &Listing) -> Vec<&str> {
    listing
        .objects
        .iter()
        .map(|object| object.relative())
        .collect()
}

fn content(object: &Arc<Object>) -> Vec<u8> {
    std::fs::read(fetch(object).unwrap()).unwrap()
}

#[test]
fn every_cloud_lists_and_fetches() {
    for scheme in ["s3", "gs", "az"] {
        let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
        bucket.put("logs/a b/ü+1.pb", b"one", "\"1\"");
        bucket.put("logs/b.json", b"two", "\"2\"");
        bucket.put("logs/notes.txt", b"no", "\"3\"");
        bucket.put("logs/empty.pb", b"", "\"4\"");
        bucket.put("logs2/c.pb", b"other", "\"5\"");
        for url in ["logs", "logs/"] {
            let remote = s3(&bucket, &format!("{scheme}://b/{url}"), cache.path());
            let listing = remote.list(Instant::now()).unwrap();
            assert_eq!(names(&listing), ["a b/ü+1.pb", "b.json"], "{scheme}");
            assert!(!listing.is_single && !listing.is_truncated && listing.skipped.is_empty());
            assert_eq!(
                listing.objects[0].url(),
                format!("{scheme}://b/logs/a b/ü+1.pb")
            );
            assert_eq!(content(&listing.objects[0]), b"one");
            assert_eq!(listing.objects[1].head(2).unwrap(), b"tw");
        }
        let whole = s3(&bucket, &format!("{scheme}://b"), cache.path());
        assert_eq!(names(&whole.list(Instant::now()).unwrap()).len(), 3);
        let one = s3(
            &bucket,
            &format!("{scheme}://b/logs/notes.txt"),
            cache.path(),
        );
        let listing = one.list(Instant::now()).unwrap();
        assert!(listing.is_single);
        assert_eq!(names(&listing), ["notes.txt"], "{scheme}");
        assert_eq!(content(&listing.objects[0]), b"no");
        for absent in ["b/absent", "b/absent.pb", "b/absent/"] {
            let error = s3(&bucket, &format!("{scheme}://{absent}"), cache.path());
            let error = error.list(Instant::now()).unwrap_err();
            assert_eq!(
                error.kind,
                ObjectErrorKind::NotFound,
                "{scheme} {absent}: {error}"
            );
        }
    }
}

#[test]
fn ten_thousand_runs_are_listed_in_few_requests() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    for run in 0..10_000 {
        for host in 0..3 {
            let key = format!("logs/plugins/profile/run{run:05}/h{host}.pb");
            bucket.put(&key, b"x", "\"1\"");
        }
    }
    let remote = s3(&bucket, "s3://b/logs", cache.path());
    let now = Instant::now();
    let listing = remote.list(now).unwrap();
    assert_eq!(listing.objects.len(), 30_000);
    assert!(!listing.is_truncated);
    assert!(remote.requests() <= 35, "{}", remote.requests());
    assert_eq!(bucket.take_log().len() as u64, remote.requests());
    // Asked again at once: nothing is sent.
    assert_eq!(
        remote
            .list(now + Duration::from_secs(1))
            .unwrap()
            .objects
            .len(),
        30_000
    );
    assert_eq!(bucket.take_log().len(), 0);
}

#[test]
fn a_listing_is_bounded_and_says_so() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    for run in 0..36_000 {
        bucket.put(&format!("{run:05}.pb"), b"x", "\"1\"");
    }
    let remote = s3(&bucket, "s3://b", cache.path());
    let listing = remote.list(Instant::now()).unwrap();
    assert!(listing.is_truncated);
    assert_eq!((listing.objects.len(), remote.requests()), (35_000, 35));
}

#[test]
fn folders_without_traces_are_left_out() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    for shard in 0..50_000 {
        let key = format!("logs/a/checkpoints/{}/shard{shard:05}", shard / 10_000);
        bucket.put(&key, b"x", "\"1\"");
    }
    bucket.put("logs/a/plugins/profile/r/h.pb", b"x", "\"1\"");
    bucket.put("logs/z/plugins/profile/r/h.pb", b"x", "\"1\"");
    let remote = s3(&bucket, "s3://b/logs", cache.path());
    let listing = remote.list(Instant::now()).unwrap();
    assert_eq!(
        names(&listing),
        ["a/plugins/profile/r/h.pb", "z/plugins/profile/r/h.pb"]
    );
    assert!(!listing.is_truncated);
    assert_eq!(listing.skipped.len(), 5);
    assert_eq!(listing.skipped[0].url, "s3://b/logs/a/checkpoints/0/");
    assert!(remote.requests() <= 15, "{}", remote.requests());
}

#[test]
fn sessions_in_a_folder_that_is_left_out_are_listed() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    for number in 0..3_000 {
        // They share nothing but the folder of the sessions.
        for folder in ["a/model", "a/summary", "b/model", "b/summary"] {
            bucket.put(&format!("logs/{folder}{number}/x"), b"x", "\"1\"");
        }
    }
    for folder in ["a", "c"] {
        let key = format!("logs/{folder}/plugins/profile/r/h.pb");
        bucket.put(&key, b"x", "\"1\"");
    }
    let remote = s3(&bucket, "s3://b/logs", cache.path());
    let listing = remote.list(Instant::now()).unwrap();
    assert_eq!(
        names(&listing),
        ["a/plugins/profile/r/h.pb", "c/plugins/profile/r/h.pb"]
    );
    let skipped: Vec<&str> = listing.skipped.iter().map(|folder| &*folder.url).collect();
    assert_eq!(skipped, ["s3://b/logs/a/", "s3://b/logs/b/"]);
    assert!(remote.requests() <= 12, "{}", remote.requests());
}

#[test]
fn an_object_is_fetched_once_for_each_state() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    let large = pattern(20 * MIB);
    bucket.put("x.pb", &large, "\"1\"");
    let list = || {
        s3(&bucket, "s3://b", cache.path())
            .list(Instant::now())
            .unwrap()
    };
    let first = list().objects[0].clone();
    assert!(first.local().is_none());
    assert_eq!(content(&first), large);
    assert!(first.local().is_some());
    let gets = || {
        bucket
            .take_log()
            .iter()
            .filter(|line| line.starts_with("GET /b/x"))
            .count()
    };
    assert_eq!(gets(), 3, "ranges of 8 MiB");
    assert_eq!(content(&first), large);
    assert_eq!(content(&list().objects[0]), large);
    assert_eq!(gets(), 0, "another client finds it in the cache");
    // Several threads, one fetch.
    bucket.put("x.pb", b"new", "\"2\"");
    let changed = list().objects[0].clone();
    assert_ne!(changed.state_hash(), first.state_hash());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(content(&changed), b"new"));
        }
    });
    assert_eq!(gets(), 1);
    let gone = fetch(&first).unwrap_err();
    assert_eq!(gone.kind, ObjectErrorKind::Changed, "{gone}");
}

#[test]
fn an_interrupted_fetch_goes_on_where_it_ended() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    let large = pattern(20 * MIB);
    bucket.put("x.pb", &large, "\"1\"");
    let remote = s3(&bucket, "s3://b", cache.path());
    let object = remote.list(Instant::now()).unwrap().objects[0].clone();
    bucket.misbehave(Faults {
        cut: Some((100, 16 * MIB as u64)),
        ..Faults::default()
    });
    let error = fetch(&object).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Unreachable, "{error}");
    assert!(object.local().is_none());
    bucket.misbehave(Faults::default());
    bucket.take_log();
    assert_eq!(content(&object), large);
    assert_eq!(bucket.take_log(), ["GET /b/x.pb bytes=16777216-20971519"]);
}

#[test]
fn an_object_that_changes_meanwhile_is_an_error() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("x.pb", &vec![1; 20 * MIB], "\"1\"");
    let remote = s3(&bucket, "s3://b", cache.path());
    let object = remote.list(Instant::now()).unwrap().objects[0].clone();
    bucket.take_log();
    bucket.misbehave(Faults {
        changes_after: Some(1),
        ..Faults::default()
    });
    let error = fetch(&object).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::Changed, "{error}");
    assert!(object.local().is_none());
}

#[test]
fn an_overloaded_server_is_asked_again() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("x.pb", b"x", "\"1\"");
    let overloaded = Faults {
        overloaded: 2,
        ..Faults::default()
    };
    bucket.misbehave(overloaded.clone());
    let remote = s3(&bucket, "s3://b", cache.path());
    let listing = remote.list(Instant::now()).unwrap();
    bucket.misbehave(overloaded);
    assert_eq!(content(&listing.objects[0]), b"x");
}

#[test]
fn missing_and_refused_credentials_are_different_errors() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("x.pb", b"x", "\"1\"");
    // What is public needs no credentials.
    for scheme in ["s3", "gs", "az"] {
        let public = connect(&bucket, &format!("{scheme}://b"), cache.path(), false);
        assert_eq!(
            content(&public.list(Instant::now()).unwrap().objects[0]),
            b"x"
        );
    }
    bucket.misbehave(Faults {
        denied: true,
        ..Faults::default()
    });
    for (scheme, tool) in [("s3", "aws"), ("gs", "gcloud"), ("az", "az login")] {
        for name in ["", "/x.pb"] {
            let url = format!("{scheme}://b{name}");
            let missing = connect(&bucket, &url, cache.path(), false);
            let error = missing.list(Instant::now()).unwrap_err();
            assert_eq!(error.kind, ObjectErrorKind::NoCredentials, "{error}");
            assert!(error.hint.as_ref().unwrap().contains(tool), "{error:?}");
            assert!(error.to_string().starts_with("cannot read "), "{error}");
            let refused = s3(&bucket, &url, cache.path())
                .list(Instant::now())
                .unwrap_err();
            assert_eq!(refused.kind, ObjectErrorKind::Denied, "{refused}");
            assert!(refused.hint.is_some(), "{refused:?}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_advice() {
    let cache = tempfile::tempdir().unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let variables = [("AWS_ENDPOINT_URL", &*endpoint)];
    let environment = Environment::new(&variables, cache.path());
    let url = Path::new("s3://b/logs");
    let folder = cache.path().join("objects");
    let remote = Remote::connect(url, folder, evidence, &environment).unwrap();
    let error = remote.list(Instant::now()).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::NoCredentials, "{error}");
    assert!(error.reason.contains("no credentials"), "{error}");
}

#[test]
fn answers_without_end_are_cut_off() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("x.pb", &vec![1; 3 * MIB], "\"1\"");
    let remote = s3(&bucket, "s3://b", cache.path());
    let object = remote.list(Instant::now()).unwrap().objects[0].clone();
    bucket.misbehave(Faults {
        longer: 50 * MIB,
        ..Faults::default()
    });
    let error = fetch(&object).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::TooLarge, "{error}");
    bucket.misbehave(Faults {
        endless: true,
        ..Faults::default()
    });
    let error = remote.list_now(Instant::now()).unwrap_err();
    assert_eq!(error.kind, ObjectErrorKind::TooLarge, "{error}");
}

#[test]
fn names_that_lead_elsewhere_write_nothing_outside_of_the_cache() {
    for key in [
        "../../escaped.pb",
        "/absolute.pb",
        "a//b.pb",
        "a/../../b.pb",
    ] {
        let (bucket, home) = (Bucket::serve(), tempfile::tempdir().unwrap());
        let cache = home.path().join("cache");
        std::fs::create_dir(&cache).unwrap();
        bucket.put(key, b"x", "\"1\"");
        // A store that has such a name is refused as a whole, or the name is made safe.
        if let Ok(listing) = s3(&bucket, "s3://b", &cache).list(Instant::now()) {
            for file in fetch_all(&listing.objects, &|_| true).into_iter().flatten() {
                assert!(
                    file.starts_with(cache.join("objects/s3/b")),
                    "{}",
                    file.display()
                );
            }
        }
        let entries = |folder: &Path| std::fs::read_dir(folder).unwrap().count();
        assert_eq!(entries(home.path()), 1, "{key}");
        assert!(entries(&cache) <= 1, "{key}");
    }
}

#[test]
fn a_cancelled_fetch_ends_while_the_server_is_silent() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("x.pb", b"x", "\"1\"");
    let remote = s3(&bucket, "s3://b", cache.path());
    let listing = remote.list(Instant::now()).unwrap();
    bucket.misbehave(Faults {
        holds: true,
        ..Faults::default()
    });
    let outcome = fetch_all(&listing.objects, &|_| false).pop().unwrap();
    assert_eq!(outcome.unwrap_err().kind, ObjectErrorKind::Cancelled);
    bucket.misbehave(Faults::default());
    assert_eq!(content(&listing.objects[0]), b"x");
}

#[test]
fn an_idle_watch_sends_one_request_per_folder_and_interval() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    for run in 0..1_500 {
        for folder in ["a", "b"] {
            let key = format!("logs/{folder}/plugins/profile/{run:05}/h.pb");
            bucket.put(&key, b"x", "\"1\"");
        }
    }
    let remote = s3(&bucket, "s3://b/logs", cache.path());
    let begun = Instant::now();
    assert_eq!(remote.list_now(begun).unwrap().objects.len(), 3_000);
    bucket.take_log();
    let at = |seconds: u64| begun + Duration::from_secs(seconds);
    for seconds in 1..30 {
        assert!(!remote.poll(at(seconds)));
    }
    assert_eq!(bucket.take_log().len(), 0, "within the interval");
    for poll in 1..=5 {
        assert!(!remote.poll(begun + POLL_INTERVAL * poll));
        assert_eq!(
            bucket.take_log().len(),
            2,
            "one for each folder of sessions"
        );
    }
    bucket.put("logs/a/plugins/profile/99999/h.pb", b"x", "\"1\"");
    assert!(remote.poll(at(200)));
    assert!(!remote.poll(at(201)));
    let listing = remote.list(at(201)).unwrap();
    assert_eq!(listing.objects.len(), 3_001);
    assert!(names(&listing).contains(&"a/plugins/profile/99999/h.pb"));
    assert_eq!(bucket.take_log().len(), 2);
    // An old session that changed is found by the next whole listing.
    bucket.put("logs/a/plugins/profile/00000/h.pb", b"xy", "\"2\"");
    assert!(remote.poll(at(2_000)));
}

#[test]
fn a_small_folder_is_watched_as_a_whole() {
    let (bucket, cache) = (Bucket::serve(), tempfile::tempdir().unwrap());
    bucket.put("logs/x.pb", b"x", "\"1\"");
    let remote = s3(&bucket, "s3://b/logs", cache.path());
    let begun = Instant::now();
    remote.list_now(begun).unwrap();
    bucket.take_log();
    assert!(!remote.poll(begun + POLL_INTERVAL));
    assert_eq!(bucket.take_log().len(), 1);
    bucket.put("logs/x.pb", b"y", "\"2\"");
    assert!(remote.poll(begun + POLL_INTERVAL * 2));
    bucket.misbehave(Faults {
        denied: true,
        ..Faults::default()
    });
    assert!(
        !remote.poll(begun + POLL_INTERVAL * 3),
        "no answer is no change"
    );
}
