//! What an event belongs to: the operator, module and line that launched a kernel.

use serde_json::{Value, json};

use crate::support::Site;

/// The rows of a torch trace: name, category, pid, tid, start and length in microseconds, arguments.
type Row<'a> = (&'a str, &'a str, Value, Value, u64, u64, Value);

fn torch(rows: &[Row<'_>], links: &[(u64, u64, u64, u64, u64)]) -> String {
    let mut events = vec![
        json!({"ph": "M", "pid": 7, "name": "process_name", "args": {"name": "python"}}),
        json!({"ph": "M", "pid": 0, "name": "process_name", "args": {"name": "python"}}),
        json!({"ph": "M", "pid": 0, "name": "process_labels", "args": {"labels": "GPU 0"}}),
        json!({"ph": "M", "pid": 0, "tid": 3, "name": "thread_name", "args": {"name": "stream 3"}}),
    ];
    for (name, category, pid, tid, start, dur, args) in rows {
        events.push(
            json!({"ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid,
            "ts": start, "dur": dur, "args": args}),
        );
    }
    for (id, from, at, to, arrives) in links {
        let start = json!({"ph": "s", "id": id, "cat": "ac2g", "name": "ac2g", "pid": 7, "tid": from, "ts": at});
        let end = json!({"ph": "f", "id": id, "cat": "ac2g", "name": "ac2g", "bp": "e",
            "pid": if *to == 3 { 0 } else { 7 }, "tid": to, "ts": arrives});
        events.extend([start, end]);
    }
    json!({"schemaVersion": 1, "traceEvents": events}).to_string()
}

/// A forward operator on thread 7, its backward one on thread 8, and a kernel of each.
fn training() -> String {
    let none = || json!({});
    let dims = json!({"Input Dims": [[32, 784], [784, 128]]});
    torch(
        &[
            (
                "ProfilerStep#1",
                "user_annotation",
                json!(7),
                json!(7),
                0,
                1_000,
                none(),
            ),
            (
                "train.py(31): step",
                "python_function",
                json!(7),
                json!(7),
                100,
                300,
                none(),
            ),
            (
                "nn.Module: Linear_0",
                "python_function",
                json!(7),
                json!(7),
                120,
                200,
                none(),
            ),
            ("aten::linear", "cpu_op", json!(7), json!(7), 130, 150, dims),
            (
                "cudaLaunchKernel",
                "cuda_runtime",
                json!(7),
                json!(7),
                140,
                10,
                none(),
            ),
            (
                "autograd::MmBackward",
                "cpu_op",
                json!(7),
                json!(8),
                500,
                100,
                none(),
            ),
            (
                "cudaLaunchKernel",
                "cuda_runtime",
                json!(7),
                json!(8),
                510,
                10,
                none(),
            ),
            (
                "gemm_forward",
                "kernel",
                json!(0),
                json!(3),
                200,
                50,
                json!({"device": 0, "stream": 3}),
            ),
            (
                "gemm_backward",
                "kernel",
                json!(0),
                json!(3),
                600,
                50,
                json!({"device": 0, "stream": 3}),
            ),
            (
                "PyTorch Profiler (0)",
                "Trace",
                json!("Spans"),
                json!("PyTorch Profiler"),
                0,
                1_000,
                none(),
            ),
        ],
        &[
            (1, 7, 140, 3, 200),
            (2, 8, 510, 3, 600),
            (3, 7, 130, 8, 500),
        ],
    )
}

pub(crate) async fn training_site() -> Site {
    let text = training();
    let site = Site::new(&[("train.json", text.as_bytes())]);
    site.ok("/runs/train.json?wait=60").await;
    site
}

async fn details(site: &Site, name: &str) -> Value {
    let hits = site.ok(&format!("/runs/train.json/search?q={name}")).await;
    let id = hits.json()["hits"][0]["id"].clone();
    site.ok(&format!("/runs/train.json/events/{id}"))
        .await
        .json()
}

#[tokio::test]
async fn a_kernel_knows_its_operator_module_and_line() {
    let site = training_site().await;
    let context = details(&site, "gemm_forward").await["context"].clone();
    assert_eq!(context["launch"]["name"], "cudaLaunchKernel");
    assert_eq!(context["operator"]["name"], "aten::linear");
    assert_eq!(context["shapes"], "[[32,784],[784,128]]");
    assert_eq!(context["module"]["name"], "nn.Module: Linear_0");
    assert_eq!(context["line"]["name"], "train.py(31): step");
    assert_eq!(context["forward"], Value::Null);
    let frames: Vec<&str> = context["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        frames,
        [
            "cudaLaunchKernel",
            "aten::linear",
            "nn.Module: Linear_0",
            "train.py(31): step",
            "ProfilerStep#1"
        ]
    );
}

#[tokio::test]
async fn a_kernel_without_a_link_is_found_by_its_number() {
    let call = |number: u64, at: u64| {
        let args = json!({"correlation": number});
        (
            "cudaLaunchKernel",
            "cuda_runtime",
            json!(7),
            json!(7),
            at,
            10,
            args,
        )
    };
    let operator = |name, at| (name, "cpu_op", json!(7), json!(7), at, 50, json!({}));
    let kernel = |name, number: u64, at: u64| {
        let args = json!({"device": 0, "stream": 3, "correlation": number});
        (name, "kernel", json!(0), json!(3), at, 20, args)
    };
    let text = torch(
        &[
            operator("aten::mm", 100),
            call(1, 110),
            operator("aten::relu", 200),
            call(2, 210),
            kernel("gemm_forward", 1, 300),
            kernel("relu_kernel", 2, 330),
            kernel("lost_kernel", 9, 360),
        ],
        &[],
    );
    let site = Site::new(&[("train.json", text.as_bytes())]);
    site.ok("/runs/train.json?wait=60").await;
    for (kernel, operator) in [
        ("gemm_forward", json!("aten::mm")),
        ("relu_kernel", json!("aten::relu")),
        ("lost_kernel", Value::Null),
    ] {
        let context = details(&site, kernel).await["context"].clone();
        assert_eq!(context["operator"]["name"], operator, "{kernel}");
    }
}

#[tokio::test]
async fn a_backward_kernel_has_the_module_of_its_forward_operator() {
    let site = training_site().await;
    let context = details(&site, "gemm_backward").await["context"].clone();
    assert_eq!(context["operator"]["name"], "autograd::MmBackward");
    assert_eq!(context["forward"]["name"], "aten::linear");
    assert_eq!(context["module"]["name"], "nn.Module: Linear_0");
    assert_eq!(context["line"]["name"], "train.py(31): step");
}
