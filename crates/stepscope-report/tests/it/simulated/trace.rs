//! The trace of a rank in kineto's JSON.

use std::fmt::Write as _;
use std::path::Path;

use super::Work;

/// Start of all traces, nanoseconds.
const ORIGIN: i64 = 1_000_000_000;
/// Process of the host.
const HOST: i64 = 500;

/// Events of a rank.
pub(super) struct RankTrace {
    rank: usize,
    world: usize,
    events: String,
    correlation: i64,
}

/// Writes nanoseconds as microseconds.
fn us(ns: i64) -> String {
    format!("{}.{:03}", ns / 1_000, ns % 1_000)
}

impl RankTrace {
    pub(super) fn new(rank: usize, world: usize) -> Self {
        let mut events = String::new();
        for (pid, labels) in [(HOST, "CPU".to_owned()), (0, "GPU 0".to_owned())] {
            let _ = write!(
                events,
                r#"{{"ph":"M","name":"process_name","pid":{pid},"tid":0,"ts":0,"args":{{"name":"python"}}}},
{{"ph":"M","name":"process_labels","pid":{pid},"tid":0,"ts":0,"args":{{"labels":"{labels}"}}}}"#
            );
            events.push_str(",\n");
        }
        Self {
            rank,
            world,
            events,
            correlation: 0,
        }
    }

    fn slice(
        &mut self,
        category: &str,
        name: &str,
        range: (i64, i64),
        place: (i64, i64),
        args: &str,
    ) {
        let (begin, end) = range;
        let (pid, tid) = place;
        let _ = writeln!(
            self.events,
            r#"{{"ph":"X","cat":"{category}","name":"{name}","pid":{pid},"tid":{tid},"ts":{},"dur":{},"args":{{{args}}}}},"#,
            us(ORIGIN + begin),
            us(end - begin)
        );
    }

    /// Adds a slice of the host thread.
    pub(super) fn host(
        &mut self,
        category: &str,
        name: &str,
        range: (i64, i64),
        correlation: Option<i64>,
    ) {
        let args = correlation.map(|number| format!(r#""correlation":{number}"#));
        self.slice(category, name, range, (HOST, 1), &args.unwrap_or_default());
    }

    /// Adds a call of the runtime; returns its correlation.
    pub(super) fn call(&mut self, name: &str, range: (i64, i64)) -> i64 {
        self.correlation += 1;
        self.host("cuda_runtime", name, range, Some(self.correlation));
        self.correlation
    }

    /// Adds the record of a wait: for the streams that it concerns, and for the call that recorded the event.
    pub(super) fn sync(
        &mut self,
        kind: &str,
        range: (i64, i64),
        correlation: i64,
        (stream, event): (i64, Option<(i64, i64)>),
    ) {
        let event = event.map(|(on, record)| {
            format!(r#","wait_on_stream":{on},"wait_on_cuda_event_record_corr_id":{record}"#)
        });
        let args = format!(
            r#""cuda_sync_kind":"{kind}","stream":{stream},"device":0,"context":1,"correlation":{correlation}{}"#,
            event.unwrap_or_default()
        );
        self.slice("cuda_sync", kind, range, (0, stream), &args);
    }

    /// Adds device work.
    pub(super) fn work(&mut self, work: &Work) {
        let (Some(begin), Some(end)) = (work.begin, work.end) else {
            return;
        };
        let mut args = format!(
            r#""device":0,"context":1,"stream":{},"correlation":{}"#,
            work.stream, work.correlation
        );
        if work.collective.is_some() {
            let ranks: Vec<String> = (0..self.world).map(|rank| rank.to_string()).collect();
            let _ = write!(
                args,
                r#","Collective name":"allreduce","In msg nelems":{0},"Out msg nelems":{0},"Group size":{1},"dtype":"Float","Process Group Name":"0","Process Group Ranks":"[{2}]""#,
                work.elements,
                self.world,
                ranks.join(", ")
            );
        }
        self.slice(
            work.category,
            work.name,
            (begin, end),
            (0, work.stream),
            &args,
        );
    }

    /// Writes the file.
    pub(super) fn write(&self, folder: &Path) {
        let events = self.events.trim_end().trim_end_matches(',');
        let text = format!(
            r#"{{"schemaVersion":1,"deviceProperties":[{{"id":0,"name":"NVIDIA A100-SXM4-40GB"}}],"distributedInfo":{{"backend":"nccl","rank":{},"world_size":{}}},"traceEvents":[
{events}
]}}"#,
            self.rank, self.world
        );
        let name = format!("rank{}.pt.trace.json", self.rank);
        std::fs::write(folder.join(name), text).unwrap();
    }
}
