//! Graphs of compiled programs.

use serde_json::Value;
use stepscope_hlo::graph::{DataFlow, Selection, VisibleGraph, neighbourhood};
use stepscope_test_data::Corpus;

use crate::support::{Site, demo};

/// A site with one run of compiled programs, and the start of the addresses of its graph.
async fn site() -> (Site, String) {
    let file = "hlo/mlp_train/plugins/profile/run/host0.xplane.pb";
    let bytes = stepscope_test_data::bytes(&Corpus::committed().path(file));
    let site = Site::new(&[("host0.xplane.pb", &bytes)]);
    let runs = site.ok("/runs").await.json();
    let id = runs["runs"][0]["id"].as_str().unwrap().to_owned();
    (site, format!("/runs/{id}/graph"))
}

fn names<'a>(graph: &'a Value, kind: &str) -> Vec<&'a str> {
    let nodes = graph["nodes"].as_array().unwrap().iter();
    nodes
        .filter(|node| node["kind"] == kind)
        .map(|node| node["label"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_graph_starts_at_the_costliest_operation() {
    let (site, graph) = site().await;
    let first = site.ok(&graph).await.json();
    assert_eq!(
        first["module"].as_str().unwrap().split('(').next(),
        Some("jit_train_step")
    );
    let centre = first["centre"].as_str().unwrap();
    assert!(names(&first, "instruction").contains(&centre));
    assert_eq!(first["has_times"], true);
    let nodes = first["nodes"].as_array().unwrap();
    let centre_ns = nodes.iter().find(|node| node["label"] == centre).unwrap()["self_ns"].as_f64();
    for node in nodes {
        assert!(node["self_ns"].as_f64() <= centre_ns, "{node}");
    }
    let again = site.ok(&graph).await;
    assert_eq!(again.json(), first);
}

#[tokio::test]
async fn nodes_are_those_of_the_neighbourhood() {
    let (site, graph) = site().await;
    let module = site.ok(&graph).await.json()["module"]
        .as_str()
        .unwrap()
        .to_owned();
    let file = Corpus::committed().path("hlo/mlp_train/plugins/profile/run/host0.xplane.pb");
    let bytes: stepscope_model::SharedBytes =
        std::sync::Arc::new(stepscope_test_data::bytes(&file));
    let context = stepscope_model::ReadContext::default();
    let source =
        stepscope_formats::arg_source(stepscope_formats::Format::XSpace, &bytes, &context).unwrap();
    let mut found = None;
    source
        .programs(&mut |program| {
            let read = stepscope_formats::hlo::Module::read(program.bytes).unwrap();
            if format!("{}({})", read.name, program.id.unwrap_or(read.id)) == module {
                found = Some(read);
            }
        })
        .unwrap();
    let read = found.unwrap();
    let flow = DataFlow::new(&read);
    let answer = site
        .ok(&format!("{graph}?node=multiply_add_fusion.2&hops=1"))
        .await
        .json();
    let centre = (0_u32..u32::MAX)
        .find(|at| &*read.instruction(*at).name == "multiply_add_fusion.2")
        .unwrap();
    let root = read.instruction(centre).computation;
    let around = neighbourhood(&read, &flow, centre, 1, &[]);
    let only: Vec<u32> = around
        .instructions
        .into_iter()
        .filter(|at| read.instruction(*at).computation == root)
        .collect();
    let expected = VisibleGraph::new(
        &read,
        &flow,
        Selection {
            root,
            only: Some(&only),
            without_users: &around.without_users,
            by_scope: true,
            open: None,
            limit: 300,
        },
    );
    let expected: Vec<&str> = expected.nodes.iter().map(|node| &*node.label).collect();
    assert_eq!(names(&answer, "instruction"), expected);
}

#[tokio::test]
async fn groups_open_on_request() {
    let (site, graph) = site().await;
    let closed = site
        .ok(&format!("{graph}?extent=computation&open=none"))
        .await
        .json();
    let scope = closed["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["kind"] == "scope")
        .unwrap();
    assert_eq!(scope["open"], false);
    let key = scope["key"].as_str().unwrap();
    let key = key.replace(':', "%3A").replace('/', "%2F");
    let opened = site
        .ok(&format!("{graph}?extent=computation&open={key}"))
        .await
        .json();
    let inside =
        opened["nodes"].as_array().unwrap().len() - closed["nodes"].as_array().unwrap().len();
    assert!(inside > 0 && inside as u64 <= scope["instructions"].as_u64().unwrap());
}

#[tokio::test]
async fn operations_are_found_and_described() {
    let (site, graph) = site().await;
    let found = site
        .ok(&format!("{graph}/search?q=ynn_fusion.2"))
        .await
        .json();
    assert_eq!(found["ops"][0]["name"], "ynn_fusion.2");
    let op = site
        .ok(&format!("{graph}/op?node=ynn_fusion.2"))
        .await
        .json();
    assert!(
        op["text"]
            .as_str()
            .unwrap()
            .starts_with("ynn_fusion.2 = f32[")
    );
    assert_eq!(
        op["operand_count"],
        op["operands"].as_array().unwrap().len()
    );
    assert!(op["self_ns"].as_f64().unwrap() > 0.0 && op["flops"].as_f64().unwrap() > 0.0);
    let user = op["users"][0].as_str().unwrap();
    let way = site
        .ok(&format!("{graph}?node=ynn_fusion.2&to={user}"))
        .await
        .json();
    assert_eq!(way["path"][0], "ynn_fusion.2");
    assert_eq!(way["extent"], "path");
    let wrong = site.get(&format!("{graph}/op?node=nothing")).await;
    assert_eq!(wrong.problem(), "bad-request");
}

#[tokio::test]
async fn programs_are_written_as_files() {
    let (site, graph) = site().await;
    let text = site.ok(&format!("{graph}/text")).await;
    assert!(text.text().starts_with("HloModule jit_train_step"));
    let svg = site.ok(&format!("{graph}/svg?hops=1")).await;
    assert_eq!(svg.header("content-type"), "image/svg+xml");
    assert!(svg.text().starts_with("<svg ") && svg.text().ends_with("</svg>\n"));
    let dot = site.ok(&format!("{graph}/dot?hops=1")).await;
    assert!(dot.text().starts_with("digraph \"jit_train_step("));
}

#[tokio::test]
async fn a_run_without_programs_has_no_graph() {
    let site = demo().await;
    let list = site.ok("/runs/demo.json/graph/modules").await.json();
    assert_eq!(list["modules"].as_array().unwrap().len(), 0);
    let answer = site.get("/runs/demo.json/graph").await;
    assert_eq!(answer.problem(), "bad-request");
}
