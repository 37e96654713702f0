//! Traces in kineto's JSON, written event by event.

use std::path::Path;

use serde_json::{Value, json};

/// A trace in kineto's JSON, written event by event; times are microseconds.
pub(super) struct Kineto {
    events: Vec<Value>,
    correlation: i64,
    rank: Option<(u32, u32)>,
}

impl Kineto {
    pub(super) fn new(rank: Option<(u32, u32)>) -> Self {
        let process = |pid: i64, label: &str| {
            [
                json!({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "ts": 0, "args": {"name": "python"}}),
                json!({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "ts": 0, "args": {"labels": label}}),
            ]
        };
        Self {
            events: process(50, "CPU")
                .into_iter()
                .chain(process(0, "GPU 0"))
                .collect(),
            correlation: 0,
            rank,
        }
    }

    pub(super) fn slice(
        &mut self,
        category: &str,
        name: &str,
        (begin, end): (i64, i64),
        pid: i64,
        tid: i64,
        args: Value,
    ) {
        self.events.push(json!({
            "ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": 5_000 + begin,
            "dur": end - begin, "args": args,
        }));
    }

    pub(super) fn step(&mut self, number: i64, range: (i64, i64)) {
        let name = format!("ProfilerStep#{number}");
        self.slice("user_annotation", &name, range, 50, 1, json!({}));
    }

    pub(super) fn op(&mut self, name: &str, range: (i64, i64), tid: i64) {
        self.slice("cpu_op", name, range, 50, tid, json!({}));
    }

    /// Adds a runtime call, and returns its correlation.
    pub(super) fn call(&mut self, name: &str, range: (i64, i64)) -> i64 {
        self.correlation += 1;
        let args = json!({"External id": self.correlation, "correlation": self.correlation});
        self.slice("cuda_runtime", name, range, 50, 1, args);
        self.correlation
    }

    pub(super) fn kernel(&mut self, name: &str, range: (i64, i64), stream: i64, call: i64) {
        self.work("kernel", name, range, stream, call, json!({}));
    }

    pub(super) fn work(
        &mut self,
        category: &str,
        name: &str,
        range: (i64, i64),
        stream: i64,
        call: i64,
        more: Value,
    ) {
        let mut args = json!({"device": 0, "context": 1, "stream": stream, "correlation": call});
        if let (Some(args), Some(more)) = (args.as_object_mut(), more.as_object()) {
            args.extend(more.clone());
        }
        self.slice(category, name, range, 0, stream, args);
    }

    pub(super) fn sync(
        &mut self,
        kind: &str,
        range: (i64, i64),
        call: i64,
        stream: i64,
        event: Option<(i64, i64)>,
    ) {
        let mut args = json!({"cuda_sync_kind": kind, "stream": stream, "correlation": call, "device": 0, "context": 1});
        if let Some((on, record)) = event {
            args["wait_on_stream"] = on.into();
            args["wait_on_cuda_event_record_corr_id"] = record.into();
        }
        self.slice("cuda_sync", kind, range, 0, stream, args);
    }

    pub(super) fn write(&self, folder: &Path, name: &str) {
        let mut file = json!({"schemaVersion": 1, "traceEvents": self.events, "traceName": name});
        if let Some((rank, world)) = self.rank {
            file["distributedInfo"] = json!({"backend": "nccl", "rank": rank, "world_size": world});
        }
        std::fs::write(folder.join(name), file.to_string()).unwrap();
    }
}
