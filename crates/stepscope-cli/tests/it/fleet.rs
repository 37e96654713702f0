//! `stepscope fleet`: its refusals, and with the real SQL engine a fleet whose causes are known by construction.

use std::fmt::Write as _;
use std::path::Path;

use crate::cli::{TRACE, folder_with, refusal, run, text};

#[test]
fn wrong_datasets_reports_and_days_are_refused_with_advice() {
    let home = folder_with(&[("a.json", TRACE), ("set/_stepscope.json", "{\"schema\":1}")]);
    let path = |name: &str| home.path().join(name).display().to_string();
    let refused = |arguments: &[&str]| {
        let arguments: Vec<&str> = std::iter::once("fleet")
            .chain(arguments.iter().copied())
            .collect();
        refusal(&run(home.path(), &arguments))
    };
    let (code, error) = refused(&[&path("a.json")]);
    assert_eq!(code, 1);
    assert!(
        error.contains("it is no dataset\nhelp: 'stepscope export LOGDIR"),
        "{error}"
    );
    let (code, error) = refused(&[&path("set"), "host"]);
    assert_eq!(code, 2);
    assert!(error.contains("hosts, runs, collectives, steps"), "{error}");
    let (code, error) = refused(&[&path("set"), "--format", "json"]);
    assert_eq!(code, 2);
    assert!(error.contains("name one of hosts"), "{error}");
    let (code, error) = refused(&[&path("set"), "--since", "monday"]);
    assert_eq!(code, 2);
    assert!(error.contains("2026-11-23"), "{error}");
    // Other commands say what reads it.
    let (code, error) = refusal(&run(home.path(), &["info", &path("set")]));
    assert_eq!(code, 1);
    assert!(
        error.contains("it is a dataset") && error.contains("'stepscope fleet'"),
        "{error}"
    );
    let (code, error) = refused(&["s3://bucket/set", "--cluster", "df://host:1"]);
    assert_eq!(code, 2);
    assert!(error.contains("on a cluster"), "{error}");
}

/// 2026-11-02, nanoseconds.
const FIRST_DAY_NS: i64 = 1_793_577_600_000_000_000;
const DAY_NS: i64 = 86_400_000_000_000;
const STEPS: i64 = 12;

/// Nanoseconds as microseconds.
fn us(ns: i64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

/// What a run of the fleet does.
#[derive(Clone, Copy)]
struct Simulated {
    job: &'static str,
    day: i64,
    torch: &'static str,
    /// Length of a step, nanoseconds.
    step_ns: i64,
    /// Host that comes late to each collective, and by how much, nanoseconds.
    late: Option<(usize, i64)>,
    /// A step that takes this much longer because of its input, nanoseconds.
    slow_input: Option<(i64, i64)>,
}

const HOSTS: usize = 3;
/// Two for each host.
const RANKS: usize = 6;

impl Simulated {
    /// Writes a file for each host, in a session of the job's log directory.
    fn write(&self, logs: &Path) {
        let session = format!("2026_11_{:02}_10_00_00", self.day + 2);
        let folder = logs.join(self.job).join("plugins/profile").join(session);
        std::fs::create_dir_all(&folder).unwrap();
        for rank in 0..RANKS {
            let host = rank / 2;
            let events = self.events(rank);
            let base = FIRST_DAY_NS + self.day * DAY_NS + 36_000_000_000_000;
            let content = format!(
                r#"{{"schemaVersion":1,"baseTimeNanoseconds":{base},"host_name":"node-{host}","torch_version":"{}","run_id":"{}-{}",
"deviceProperties":[{{"id":0,"name":"NVIDIA H100"}}],"distributedInfo":{{"backend":"nccl","rank":{rank},"world_size":{RANKS}}},"traceEvents":[
{events}
]}}"#,
                self.torch, self.job, self.day
            );
            std::fs::write(
                folder.join(format!("node-{host}.rank{rank}.trace.json")),
                content,
            )
            .unwrap();
        }
    }

    /// Steps with two all-reduces each, which all hosts end together.
    fn events(&self, rank: usize) -> String {
        let mut events = String::new();
        let mut add = |category: &str,
                       name: &str,
                       place: (i64, i64),
                       from: i64,
                       dur: i64,
                       args: &str| {
            let separator = if events.is_empty() { "" } else { ",\n" };
            let (pid, tid) = place;
            let _ = write!(
                events,
                r#"{separator}{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{},"dur":{},"args":{{{args}}}}}"#,
                us(from),
                us(dur)
            );
        };
        let host = (500, 1);
        let mut start = 1_000_000;
        for step in 0..STEPS {
            let input = match self.slow_input {
                Some((slow, ns)) if slow == step => 1_000_000 + ns,
                _ => 1_000_000,
            };
            let length = self.step_ns - 1_000_000 + input;
            add(
                "user_annotation",
                &format!("ProfilerStep#{step}"),
                host,
                start,
                length,
                "",
            );
            add(
                "user_annotation",
                "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
                host,
                start,
                input,
                "",
            );
            let late = match self.late {
                Some((host, ns)) if host == rank / 2 => ns,
                _ => 0,
            };
            let launch = start + input + 100_000;
            let rank_ns = 1_000 * i64::try_from(rank).unwrap();
            let arrival = launch + 50_000 + late + rank_ns;
            let end = start + length - 500_000;
            // A short one at the end of the step bounds the error of the clocks.
            let collectives = [
                (launch, arrival, end, 1_048_576),
                (end, end + 100_000 + rank_ns, end + 120_000, 1_024),
            ];
            for (number, (launch, begin, end, elements)) in (2 * step..).zip(collectives) {
                add(
                    "cuda_runtime",
                    "cudaLaunchKernel",
                    host,
                    launch,
                    10_000,
                    &format!(r#""correlation":{number}"#),
                );
                add(
                    "kernel",
                    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)",
                    (0, 20),
                    begin,
                    end - begin,
                    &format!(
                        r#""device":0,"context":1,"stream":20,"correlation":{number},"Collective name":"allreduce","In msg nelems":{elements},"Out msg nelems":{elements},"Group size":{RANKS},"dtype":"Float","Process Group Name":"0","Process Group Ranks":"[0, 1, 2, 3, 4, 5]""#
                    ),
                );
            }
            start += length;
        }
        events
    }
}

/// Fourteen days of two jobs: *llama* becomes slower on the ninth day with another torch, *bert* does not change but
/// waits for `node-2` from the fifth day on, and for its input in one step.
fn fleet(logs: &Path) {
    for day in 0..14 {
        // Steps of different days are never quite equal.
        let jitter = [0, 40_000, -30_000, 20_000, -10_000][usize::try_from(day % 5).unwrap()];
        let changed = day >= 8;
        Simulated {
            job: "llama",
            day,
            torch: if changed { "2.9.0" } else { "2.8.0" },
            step_ns: if changed { 12_000_000 } else { 10_000_000 } + jitter,
            late: None,
            slow_input: None,
        }
        .write(logs);
        Simulated {
            job: "bert",
            day,
            torch: "2.8.0",
            step_ns: 10_000_000 + jitter,
            late: (day >= 4).then_some((2, 2_000_000)),
            slow_input: (day == 6).then_some((5, 7_000_000)),
        }
        .write(logs);
    }
}

/// With the real engine; `cargo xtask test "SQL engine"` runs them.
mod sql {
    use std::process::Output;

    use serde_json::Value;

    use super::*;

    fn ok(output: &Output) -> String {
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Exports the fleet in two parts, as two tasks of a cluster do.
    fn exported(home: &Path) -> String {
        let (logs, dataset) = (home.join("logs"), home.join("dataset"));
        fleet(&logs);
        let (logs, dataset) = (logs.to_str().unwrap(), dataset.to_str().unwrap());
        let mut runs = 0;
        for shard in ["0/2", "1/2"] {
            let out = ok(&run(
                home,
                &["export", logs, dataset, "--shard", shard, "--no-cache"],
            ));
            let lines = out.lines().filter(|line| line.contains(" slices, "));
            runs += lines.count() - 1;
        }
        assert_eq!(runs, 28, "each run belongs to one part");
        dataset.to_owned()
    }

    fn report(home: &Path, dataset: &str, kind: &str, more: &[&str]) -> Value {
        let arguments: Vec<&str> = ["fleet", dataset, kind, "--format", "json"]
            .iter()
            .chain(more)
            .copied()
            .collect();
        serde_json::from_str(&ok(&run(home, &arguments))).unwrap()
    }

    fn sentence(report: &Value) -> String {
        let parts = report["sentence"].as_array().unwrap().iter();
        parts.map(|part| part["text"].as_str().unwrap()).collect()
    }

    fn number(value: &Value) -> f64 {
        value.as_f64().unwrap()
    }

    #[test]
    #[ignore = "needs the SQL engine: STEPSCOPE_SQL"]
    fn causes_of_a_fleet_are_found() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let dataset = exported(home);

        let hosts = report(home, &dataset, "hosts", &["--job", "bert/#"]);
        let rows = hosts["rows"].as_array().unwrap();
        assert_eq!(rows.len(), HOSTS);
        assert_eq!(rows[0]["name"], "node-2");
        // Both of its ranks, 2 ms and 2 us behind those of the host before it, in each of 12 steps on ten days.
        let delay = 10.0 * 12.0 * 2_002_000.0;
        let expected = delay / (14.0 * 12.0) / number(&rows[0]["step_ns"]);
        assert!(
            (number(&rows[0]["delay_share"]) / expected - 1.0).abs() < 0.05,
            "{} instead of {expected}",
            rows[0]["delay_share"]
        );
        assert!(
            sentence(&hosts).contains("the others wait for node-2"),
            "{}",
            sentence(&hosts)
        );
        let days = hosts["sections"][0]["rows"].as_array().unwrap();
        let of_node_2 = days.iter().filter(|row| row["name"] == "node-2");
        let late: Vec<bool> = of_node_2
            .map(|row| number(&row["delay_share"]) > 0.1)
            .collect();
        assert_eq!(late, (0..14).map(|day| day >= 4).collect::<Vec<bool>>());

        let runs = report(home, &dataset, "runs", &[]);
        let rows = runs["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 1, "{runs:#}");
        assert_eq!(rows[0]["job"], "llama/#");
        assert_eq!(rows[0]["day"], "2026-11-10");
        assert!((number(&rows[0]["ratio"]) - 1.2).abs() < 0.01);
        assert_eq!(rows[0]["differs"], "torch_version 2.8.0 -> 2.9.0");

        let steps = report(home, &dataset, "steps", &[]);
        let rows = steps["rows"].as_array().unwrap();
        assert_eq!(rows[0]["step"], 5);
        assert_eq!(rows[0]["job"], "bert/#");
        assert_eq!(rows[0]["day"], "2026-11-08");
        assert_eq!(rows[0]["cause"], "input wait");
        assert_eq!(rows[0]["host"], "node-0", "the ranks are equally long");
        // A step of six ranks is one step.
        assert_eq!(steps["summary"]["steps"], 28 * 12);
        assert_eq!(steps["summary"]["slow_steps"], 1);

        let collectives = report(home, &dataset, "collectives", &[]);
        let rows = collectives["rows"].as_array().unwrap();
        assert_eq!(rows.len(), 2, "{collectives:#}");
        assert_eq!(
            (&rows[0]["count"], &rows[1]["count"]),
            (&(28 * 12).into(), &(28 * 12).into())
        );
        assert_eq!(
            (&rows[0]["hosts"], &rows[0]["group_size"]),
            (&3.into(), &6.into())
        );
        assert_eq!(
            (&rows[0]["from_bytes"], &rows[1]["from_bytes"]),
            (&(1 << 20).into(), &0.into())
        );
    }

    #[test]
    #[ignore = "needs the SQL engine: STEPSCOPE_SQL"]
    fn page_and_tables_show_the_fleet_and_ranges_cut_it() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        let dataset = exported(home);
        let html = ok(&run(home, &["fleet", &dataset, "--format", "html"]));
        let cells = html.matches("class=\"heat\"").count();
        assert_eq!(cells, 14 * HOSTS);
        assert!(
            html.contains("node-2, 2026-11-09: "),
            "the cells have titles"
        );
        assert!(html.contains("Slowest steps") && html.contains("torch_version 2.8.0 -&gt; 2.9.0"));
        let table = ok(&run(home, &["fleet", &dataset]));
        for title in ["Hosts", "Runs", "Collectives", "Slowest steps"] {
            assert!(table.contains(&format!(": {title}\n")), "{table}");
        }
        let cut = report(
            home,
            &dataset,
            "hosts",
            &["--since", "2026-11-04", "--until", "2026-11-05"],
        );
        assert_eq!(cut["summary"]["days"], 2);
        assert!(
            sentence(&cut).contains("no host is waited for"),
            "{}",
            sentence(&cut)
        );
        let (code, error) = refusal(&run(
            home,
            &["fleet", &dataset, "hosts", "--since", "2027-01-01"],
        ));
        assert_eq!(code, 1);
        assert!(
            error.contains("no run of the dataset is in this range"),
            "{error}"
        );
    }
}
