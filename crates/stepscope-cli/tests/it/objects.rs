//! URLs wherever a path is taken, against a server on this machine that speaks S3's protocol and sends files.
#![cfg(feature = "object-storage")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stepscope_test_data::bucket::{Bucket, Faults};
use stepscope_test_data::{below, write_program};

use crate::cli::{Serving, TRACE, refusal, stepscope, text};

/// A command that finds the bucket, with credentials.
fn command(home: &Path, bucket: &Bucket) -> Command {
    let mut command = unsigned(home, bucket);
    command
        .env("AWS_ACCESS_KEY_ID", "key")
        .env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

/// A command that finds the bucket, without credentials.
fn unsigned(home: &Path, bucket: &Bucket) -> Command {
    let mut command = stepscope(home);
    for (name, _) in std::env::vars() {
        let is_cloud = ["AWS_", "GOOGLE_", "AZURE_", "CLOUDSDK_"];
        if is_cloud.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(name);
        }
    }
    command
        .env("HOME", home)
        .env("AWS_ENDPOINT_URL", bucket.endpoint())
        .env("AWS_REGION", "local")
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .env("NO_PROXY", "127.0.0.1");
    command
}

fn run(home: &Path, bucket: &Bucket, arguments: &[&str]) -> Output {
    command(home, bucket).args(arguments).output().unwrap()
}

fn printed(output: &Output) -> String {
    let errors = text(&output.stderr);
    assert!(output.status.success(), "{errors}");
    text(&output.stdout)
}

/// A bucket with two runs, and files that are none.
fn bucket() -> Bucket {
    let bucket = Bucket::serve();
    bucket.put("logs/a.pt.trace.json", TRACE.as_bytes(), "\"a\"");
    let slower = TRACE.replace("\"dur\":20", "\"dur\":40");
    bucket.put("logs/deep/b.pt.trace.json", slower.as_bytes(), "\"b\"");
    bucket.put("logs/config.json", b"{\"x\": 1}", "\"c\"");
    bucket.put("logs/weights.bin", &[0; 100], "\"w\"");
    bucket.put("logs/.hidden/c.pt.trace.json", TRACE.as_bytes(), "\"h\"");
    bucket
}

/// Returns how many objects were fetched.
fn fetched(bucket: &Bucket) -> usize {
    let log = bucket.take_log();
    let objects = log.iter().filter(|line| line.starts_with("GET /b/logs/"));
    objects.count()
}

#[test]
fn info_lists_and_reads_the_runs_of_a_folder() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    let output = run(home.path(), &bucket, &["info", "s3://b/logs", "--json"]);
    let info: Value = serde_json::from_str(&printed(&output)).unwrap();
    let runs = info["runs"].as_array().unwrap();
    let names: Vec<_> = runs
        .iter()
        .map(|run| run["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a.pt.trace.json", "deep/b.pt.trace.json"]);
    assert_eq!(runs[0]["files"][0]["path"], "s3://b/logs/a.pt.trace.json");
    assert_eq!(runs[0]["steps"], 2);
    assert_eq!(info["path"], "s3://b/logs");
    assert_eq!(
        (&info["problems"], &info["errors"]),
        (&Value::Array(vec![]), &Value::Array(vec![]))
    );
    // The name of one file says too little: its first bytes were fetched.
    assert_eq!(fetched(&bucket), 3);
    printed(&run(home.path(), &bucket, &["info", "s3://b/logs"]));
    assert_eq!(fetched(&bucket), 1, "runs come from the cache");
    let folder = home.path().join("cache/stepscope/objects/s3/b/logs");
    assert!(folder.join("deep/b.pt.trace.json").is_file());
}

#[test]
fn reports_comparisons_and_conversions_take_urls() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    let steps = [
        "report",
        "s3://b/logs/a.pt.trace.json",
        "steps",
        "--format",
        "json",
    ];
    let there: Value = serde_json::from_str(&printed(&run(home.path(), &bucket, &steps))).unwrap();
    let local = home.path().join("a.pt.trace.json");
    std::fs::write(&local, TRACE).unwrap();
    let steps = [
        "report",
        local.to_str().unwrap(),
        "steps",
        "--format",
        "json",
    ];
    let here: Value = serde_json::from_str(&printed(&run(home.path(), &bucket, &steps))).unwrap();
    assert_eq!(there["rows"], here["rows"]);

    let a = "s3://b/logs/a.pt.trace.json";
    let web = format!(
        "{}/b/logs/deep/b.pt.trace.json?sig=secret",
        bucket.endpoint()
    );
    let compared = printed(&run(
        home.path(),
        &bucket,
        &["compare", a, &format!("new={web}")],
    ));
    assert!(compared.contains("new"), "{compared}");

    let out = home.path().join("out.json");
    let convert = ["convert", a, out.to_str().unwrap()];
    assert!(printed(&run(home.path(), &bucket, &convert)).contains("4 slices"));
    assert!(
        std::fs::read_to_string(&out)
            .unwrap()
            .contains("ProfilerStep#2")
    );
    let folder = run(
        home.path(),
        &bucket,
        &["convert", "s3://b/logs", out.to_str().unwrap()],
    );
    let (code, error) = refusal(&folder);
    assert_eq!(code, 1);
    assert!(
        error.contains("it holds 2 runs") && error.contains("name one, such as s3://"),
        "{error}"
    );
}

#[test]
fn missing_credentials_are_one_line_with_advice() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    let public = unsigned(home.path(), &bucket)
        .args(["report", "s3://b/logs", "steps"])
        .output();
    printed(&public.unwrap());
    bucket.misbehave(Faults {
        denied: true,
        ..Faults::default()
    });
    for command in [
        &["info", "s3://b/logs"][..],
        &["report", "s3://b/logs", "steps"],
        &["view", "s3://b/logs", "--port=0"],
        &["convert", "s3://b/logs/a.pt.trace.json", "out.json"],
        &["compare", "s3://b/logs/a.pt.trace.json", "s3://b/logs"],
        &["s3://b/logs", "--port=0"],
    ] {
        let output = unsigned(home.path(), &bucket)
            .args(command)
            .output()
            .unwrap();
        let (code, error) = refusal(&output);
        assert_eq!(code, 1);
        let (cause, help) = error.split_once('\n').unwrap();
        assert!(
            cause.starts_with("error: cannot read s3://b/logs"),
            "{command:?}: {cause}"
        );
        assert!(cause.contains("there are no credentials"), "{cause}");
        assert!(help.contains("aws sso login"), "{help}");
        let output = run(home.path(), &bucket, command);
        let (_, error) = refusal(&output);
        assert!(error.contains("access denied ("), "{error}");
    }
}

#[test]
fn wrong_urls_and_names_are_one_line_with_advice() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    for (path, cause) in [
        ("s3://b/absent", "no such file or directory"),
        (
            "s3://b/logs/absent.pt.trace.json",
            "no such file or directory",
        ),
        ("s3://../x", "it names no bucket"),
        ("gs://b/../x", "a folder in it has no name"),
        ("az://container/x", "the storage account is not known"),
        (
            &format!("{}/b/absent.json", bucket.endpoint()),
            "no such file or directory",
        ),
        ("s3://b/logs/weights.bin", "not a recognised trace"),
    ] {
        let (code, error) = refusal(&run(home.path(), &bucket, &["info", path]));
        assert_eq!(code, 1, "{error}");
        assert!(
            error.contains(cause) && error.contains("\nhelp: "),
            "{path}: {error}"
        );
    }
}

#[test]
fn output_becomes_an_object_or_stays_here() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    let temporary = home.path().join("temporary");
    std::fs::create_dir(&temporary).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = command(home.path(), &bucket);
        command.env("TMPDIR", &temporary).current_dir(home.path());
        command.args(arguments).output().unwrap()
    };
    let left = || below(&temporary, Path::is_file);
    let here = home.path().join("here.json");
    let trace = "s3://b/logs/a.pt.trace.json";
    printed(&run(&["convert", trace, here.to_str().unwrap()]));
    let told = printed(&run(&["convert", trace, "s3://b/out/there.json"]));
    assert!(told.starts_with("s3://b/out/there.json: "), "{told}");
    let whole = std::fs::read(&here).unwrap();
    assert!(bucket.objects()["out/there.json"] == whole);
    assert_eq!(left(), [] as [PathBuf; 0]);
    // What fails before there is output writes nothing.
    bucket.take_log();
    for refused in [
        "recover s3://b/logs",
        "capture localhost:1 --duration-ms 1 --logdir s3://b/logs",
        "convert here.json https://host/out.json",
    ] {
        let words: Vec<&str> = refused.split(' ').collect();
        let (code, error) = refusal(&run(&words));
        assert!(code > 0 && error.starts_with("error: cannot "), "{error}");
    }
    assert!(!bucket.take_log().iter().any(|line| line.starts_with("PUT")));
    assert_eq!(left(), [] as [PathBuf; 0]);
    // What cannot be copied stays.
    bucket.misbehave(Faults {
        denied: true,
        ..Faults::default()
    });
    let (code, error) = refusal(&run(&["convert", "here.json", "s3://b/denied.json"]));
    assert_eq!(code, 1);
    assert!(error.contains("cannot write s3://b"), "{error}");
    let [kept] = left().try_into().unwrap();
    let folder = kept.parent().unwrap().display().to_string();
    assert!(error.contains(&folder), "{error}");
    assert!(std::fs::read(kept).unwrap() == whole);
}

#[test]
fn the_cache_is_bounded_and_follows_the_etag() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    let steps = ["report", "s3://b/logs/a.pt.trace.json", "steps"];
    let first = printed(&run(home.path(), &bucket, &steps));
    let changed = TRACE.replace("\"dur\":20", "\"dur\":90");
    bucket.put("logs/a.pt.trace.json", changed.as_bytes(), "\"a2\"");
    assert_ne!(first, printed(&run(home.path(), &bucket, &steps)));
    let file = home
        .path()
        .join("cache/stepscope/objects/s3/b/logs/a.pt.trace.json");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), changed);
    let bounded = |bytes: &str, path: &str| {
        let mut command = command(home.path(), &bucket);
        command.env("STEPSCOPE_OBJECTS_BYTES", bytes);
        command.args(["report", path, "steps"]).output().unwrap()
    };
    printed(&bounded("700", "s3://b/logs/deep/b.pt.trace.json"));
    assert!(!file.exists(), "it was used before the other");
    let (_, error) = refusal(&bounded("10", steps[1]));
    assert!(
        error.contains("larger than the cache") && error.contains("STEPSCOPE_OBJECTS_BYTES"),
        "{error}"
    );
}

#[test]
fn view_lists_without_fetching_and_opens_on_demand() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    let mut command = command(home.path(), &bucket);
    let child = command
        .args(["view", "s3://b/logs", "--port=0"])
        .stdout(Stdio::piped())
        .spawn();
    let serving = Serving::new(child.unwrap());
    assert_eq!(serving.head[0], "Log directory: s3://b/logs");
    let runs = serving.get("/api/v1/runs");
    assert!(
        runs.contains("a.pt.trace.json") && runs.contains("deep/b.pt.trace.json"),
        "{runs}"
    );
    assert_eq!(
        fetched(&bucket),
        1,
        "the first bytes of a file whose name says too little"
    );
    let steps = serving.get("/api/v1/runs/a.pt.trace.json/reports/steps");
    assert!(steps.starts_with("HTTP/1.1 200"), "{steps}");
    assert_eq!(fetched(&bucket), 1);
}

#[cfg(unix)]
#[test]
fn a_query_reads_fetched_files() {
    let (home, bucket) = (tempfile::tempdir().unwrap(), bucket());
    // A stand-in for the SQL engine that writes down what it is asked.
    let engine = home.path().join("stepscope-sql");
    let asked = home.path().join("asked");
    let listed = home.path().join("listed");
    let script = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\ncat > '{}'\n",
        asked.display(),
        listed.display()
    );
    write_program(&engine, &script);
    let mut export = command(home.path(), &bucket);
    export.env("STEPSCOPE_SQL", &engine);
    printed(
        &export
            .args(["export", "s3://b/logs", "dataset"])
            .output()
            .unwrap(),
    );
    let words = std::fs::read_to_string(&asked).unwrap();
    assert!(words.lines().any(|word| word == "--listed"), "{words}");
    // The runs with all their files: a path of one file would lose the others of its run.
    let listed: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&listed).unwrap()).unwrap();
    let runs = listed.as_array().unwrap().iter();
    let files: Vec<&str> = runs
        .map(|run| run["first_file"].as_str().unwrap())
        .collect();
    assert_eq!(files.len(), 2, "{listed}");
    for file in files {
        assert!(Path::new(file).is_file(), "{file}");
    }
}

mod sql {
    use stepscope_test_data::Corpus;

    use super::{Bucket, Value, below, command, fetched, printed, refusal};

    /// A run of two files.
    const RUN: &str = "torch_multirank/cpu_ddp";

    #[test]
    #[ignore = "needs the SQL engine: STEPSCOPE_SQL"]
    fn tasks_fetch_their_files_of_a_run() {
        let (home, bucket) = (tempfile::tempdir().unwrap(), Bucket::serve());
        let folder = Corpus::committed().path(RUN);
        let mut files = below(&folder, |path| {
            path.parent() == Some(&folder) && path.is_file()
        });
        files.sort();
        assert_eq!(files.len(), 2);
        for file in &files {
            let name = file.file_name().unwrap().to_str().unwrap();
            let key = format!("logs/{name}");
            bucket.put(&key, &std::fs::read(file).unwrap(), &format!("\"{name}\""));
        }
        let run = |arguments: &[&str]| {
            let mut asked = command(home.path(), &bucket);
            asked.current_dir(home.path()).args(arguments);
            asked.output().unwrap()
        };
        let rows = |dataset: &str| {
            let sql = "SELECT count(*) AS slices, sum(dur_ps) AS ps, count(DISTINCT file) AS files \
                       FROM slices JOIN tracks USING (run, track_id)";
            let answer = printed(&run(&["query", dataset, sql, "--format", "json"]));
            serde_json::from_str::<Value>(&answer).unwrap()["rows"].clone()
        };

        for file in ["0", "1"] {
            let export = ["export", "s3://b/logs", "dataset", "--by-file", "--file"];
            bucket.take_log();
            printed(&run(&[&export[..], &[file]].concat()));
            assert_eq!(fetched(&bucket), 1, "its own file only");
        }
        printed(&run(&["export", "s3://b/logs", "dataset", "--join"]));
        assert_eq!(fetched(&bucket), 0);
        let found = rows("dataset");
        assert_eq!(found[0]["files"], 2);

        let folder = folder.to_str().unwrap();
        printed(&run(&["export", folder, "local", "--by-file"]));
        assert_eq!(found, rows("local"));

        // One task may write into a bucket.
        let whole = run(&["export", "s3://b/logs", "s3://b/dataset", "--by-file"]);
        printed(&whole);
        assert_eq!(found, rows("s3://b/dataset"));
        let objects = bucket.objects();
        assert!(!objects.keys().any(|key| key.contains("_parts")));

        for more in [
            &["--by-file", "--file", "0"][..],
            &["--by-file", "--shard", "0/2"],
            &["--join"],
        ] {
            let (code, error) = refusal(&run(
                &[&["export", "s3://b/logs", "s3://b/parts"], more].concat()
            ));
            assert_eq!(code, 2);
            assert!(error.contains("tasks share a folder"), "{error}");
        }
    }
}
