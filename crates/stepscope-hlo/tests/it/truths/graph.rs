//! Neighbourhoods, neighbours and texts, compared with XProf's graph viewer; and the drawings of all programs.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::Path;

use flate2::read::GzDecoder;
use stepscope_formats::hlo::{InstructionAt, Module};
use stepscope_hlo::graph::{
    DataFlow, DrawnNodeKind, GraphLayout, Rect, Selection, VisibleGraph, adjacent,
    instruction_text, is_inlined, module_text, neighbourhood, path, search, write_dot, write_svg,
};
use stepscope_test_data::{Corpus, corpus_tests};

use crate::support::{Program, json, programs};

const SETS: [&str; 4] = ["mlp_train", "convnet", "sharded8", "zoo"];

fn text(path: &Path) -> String {
    let bytes = std::fs::read(path).unwrap();
    let mut text = String::new();
    GzDecoder::new(&*bytes).read_to_string(&mut text).unwrap();
    text
}

fn at(module: &Module, name: &str) -> InstructionAt {
    let found = module
        .instructions
        .iter()
        .position(|one| &*one.name == name);
    found.unwrap_or_else(|| panic!("no instruction {name}")) as InstructionAt
}

/// Whether XProf writes a computation into its caller: one operation of two parameters.
fn is_trivial(module: &Module, computation: u32) -> bool {
    let computation = module.computation(computation);
    let instructions = module.instructions_of(computation);
    let Some(root) = computation.root.map(|root| module.instruction(root)) else {
        return false;
    };
    let operands: Vec<&str> = root
        .operands
        .iter()
        .map(|operand| &*module.instruction(*operand).opcode)
        .collect();
    let known = [
        "add", "multiply", "minimum", "maximum", "and", "or", "xor", "compare",
    ];
    instructions.len() == 3
        && operands == ["parameter", "parameter"]
        && root.operands[0] != root.operands[1]
        && known.contains(&&*root.opcode)
}

/// Names of the nodes that XProf draws with closed fusions.
fn drawn(module: &Module, flow: &DataFlow, centre: InstructionAt, hops: u32) -> BTreeSet<String> {
    let around = neighbourhood(module, flow, centre, hops, &[]).instructions;
    let computation = module.instruction(centre).computation;
    let mut shown: Vec<InstructionAt> = around
        .iter()
        .copied()
        .filter(|at| module.instruction(*at).computation == computation)
        .collect();
    let mut names = BTreeSet::new();
    while let Some(at) = shown.pop() {
        let instruction = module.instruction(at);
        if &*instruction.opcode != "fusion" {
            for called in &instruction.called {
                if !is_trivial(module, *called) {
                    shown.extend(module.computation(*called).instructions.clone());
                }
            }
        }
        if !is_inlined(module, flow, at) {
            names.insert(if &*instruction.opcode == "parameter" {
                format!("Parameter {}", instruction.parameter_number)
            } else {
                instruction.name.to_string()
            });
        }
    }
    names
}

/// Names in the labels of nodes in XProf's DOT text.
fn labels(dot: &str) -> BTreeSet<String> {
    let nodes = dot.lines().filter(|line| {
        let id = line.split(' ').next().unwrap_or_default();
        !id.is_empty()
            && id.bytes().all(|byte| byte.is_ascii_digit())
            && line.contains(" [label=<<b>")
    });
    nodes
        .filter_map(|line| Some(line.split_once("<b>")?.1.split_once("</b>")?.0.to_owned()))
        .collect()
}

/// Compares the answers of a folder; returns how many neighbourhoods, neighbours and lines of text.
fn compare(programs: &[Program], folder: &Path) -> (usize, usize, usize) {
    let mut compared = (0, 0, 0);
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    for file in files {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let Some((key, rest)) = name.strip_prefix("graph.").and_then(|name| {
            let end = name.find(").")? + 1;
            Some((name[..end].to_owned(), name[end + 1..].to_owned()))
        }) else {
            continue;
        };
        let program = programs.iter().find(|program| program.key == key).unwrap();
        let module = &program.module;
        let flow = DataFlow::new(module);
        if let Some(op) = rest.strip_suffix(".dot.gz") {
            let (op, hops) = op.split_once(".radius").unwrap();
            let found = drawn(module, &flow, at(module, op), hops.parse().unwrap());
            assert_eq!(found, labels(&text(&file)), "{name}");
            compared.0 += 1;
        } else if rest == "adj_nodes.json.gz" {
            for (op, truth) in json(&file).as_object().unwrap() {
                let (operands, users) = adjacent(module, &flow, at(module, op));
                for (key, found) in [("operand_names", operands), ("consumer_names", users)] {
                    let mut found: Vec<&str> = found
                        .iter()
                        .map(|at| &*module.instruction(*at).name)
                        .collect();
                    let mut truth: Vec<&str> = truth[key]
                        .as_array()
                        .unwrap()
                        .iter()
                        .map(|name| name.as_str().unwrap())
                        .collect();
                    found.sort_unstable();
                    truth.sort_unstable();
                    assert_eq!(found, truth, "{name} {op} {key}");
                    compared.1 += 1;
                }
            }
        } else if rest == "short.txt.gz" {
            compared.2 += compare_text(module, &text(&file), &name);
        }
    }
    compared
}

/// Compares each line of XProf's short text up to the end of the operands.
fn compare_text(module: &Module, truth: &str, name: &str) -> usize {
    let head = |line: &str| {
        let line = line.trim().trim_start_matches("ROOT ").to_owned();
        let opening = line.find(" = ").map_or(0, |at| at + 3);
        // The shape may be a tuple in parentheses: the operands are in the last pair of the same depth.
        let mut depth = 0;
        let mut is_operands = false;
        for (at, letter) in line[opening..].char_indices() {
            match letter {
                '(' if depth == 0 => {
                    is_operands = at > 0;
                    depth += 1;
                }
                '(' => depth += 1,
                ')' => depth -= 1,
                _ => continue,
            }
            if depth == 0 && is_operands {
                return line[..=opening + at].to_owned();
            }
        }
        line
    };
    let truth: BTreeSet<String> = truth
        .lines()
        .filter(|line| line.starts_with("  ") && line.contains(" = "))
        .filter(|line| !line.contains(" constant("))
        .map(head)
        .collect();
    let found: BTreeSet<String> = (0..module.instructions.len() as u32)
        .filter(|at| &*module.instruction(*at).opcode != "constant")
        .map(|at| head(&instruction_text(module, at)))
        .collect();
    let missing: Vec<&String> = truth.difference(&found).take(3).collect();
    assert!(missing.is_empty(), "{name}: {missing:#?}");
    assert_eq!(found.len(), truth.len(), "{name}");
    truth.len()
}

fn graphs_are_those_of_xprof(corpus: &Corpus) {
    let mut compared = (0, 0, 0);
    for set in SETS {
        let programs = programs(&corpus.path(&format!("hlo/{set}")));
        let answers = corpus.path(&format!("hlo/{set}.truth/xprof"));
        let found = compare(&programs, &answers);
        compared = (
            compared.0 + found.0,
            compared.1 + found.1,
            compared.2 + found.2,
        );
    }
    assert!(
        compared.0 >= 8 && compared.1 >= 8 && compared.2 > 100,
        "{compared:?}"
    );
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn graphs_of_hlo_programs_are_those_of_xprof() {
    graphs_are_those_of_xprof(&Corpus::collected());
}

#[test]
#[ignore = "needs the collected traces: STEPSCOPE_TRACES"]
fn graphs_of_real_devices_are_those_of_xprof() {
    let corpus = Corpus::collected();
    let answers = corpus.folder().join("../reference/xprof_hlo_ref");
    let mut compared = (0, 0, 0);
    for entry in std::fs::read_dir(&answers).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let (set, trace) = name.split_once('.').unwrap();
        let programs = programs(&corpus.folder().join(set).join(trace));
        let found = compare(&programs, &folder);
        compared = (
            compared.0 + found.0,
            compared.1 + found.1,
            compared.2 + found.2,
        );
    }
    assert!(
        compared.0 > 30 && compared.1 > 30 && compared.2 > 1000,
        "{compared:?}"
    );
}

fn whole(module: &Module) -> Selection<'static> {
    Selection {
        root: module.entry.unwrap(),
        only: None,
        without_users: &[],
        by_scope: true,
        open: None,
        limit: 300,
    }
}

/// Every program is drawn whole: nodes stay inside of their groups, siblings apart, and edges end at nodes.
fn every_program_is_drawn(corpus: &Corpus) {
    for set in SETS {
        for program in programs(&corpus.path(&format!("hlo/{set}"))) {
            let module = &program.module;
            let flow = DataFlow::new(module);
            let first = VisibleGraph::new(module, &flow, whole(module));
            assert!(!first.nodes.is_empty(), "{}", program.key);
            let open: Vec<String> = first.nodes.iter().map(|node| node.key.clone()).collect();
            let opened = Selection {
                open: Some(&open),
                ..whole(module)
            };
            for graph in [first, VisibleGraph::new(module, &flow, opened)] {
                check(&program.key, &graph);
            }
        }
    }
}

/// Returns whether a straight line comes into a rectangle, by more than its border.
fn crosses(rect: Rect, from: (f64, f64), to: (f64, f64)) -> bool {
    (0..=64_u32).any(|step| {
        let share = f64::from(step) / 64.0;
        let (x, y) = (
            from.0 + (to.0 - from.0) * share,
            from.1 + (to.1 - from.1) * share,
        );
        x > rect.x + 1.0
            && x < rect.x + rect.width - 1.0
            && y > rect.y + 1.0
            && y < rect.y + rect.height - 1.0
    })
}

fn check(key: &str, graph: &VisibleGraph) {
    let details = vec![String::new(); graph.nodes.len()];
    let drawing = GraphLayout::new(graph, &details);
    assert!(graph.nodes.len() <= 300, "{key}");
    let keys: BTreeSet<&String> = graph.nodes.iter().map(|node| &node.key).collect();
    assert_eq!(keys.len(), graph.nodes.len(), "{key}: keys are unique");
    for (number, rect) in drawing.nodes.iter().enumerate() {
        if let Some(parent) = graph.nodes[number].parent {
            let around = drawing.nodes[parent];
            assert!(rect.x >= around.x && rect.x + rect.width <= around.x + around.width);
            assert!(rect.y > around.y && rect.y + rect.height < around.y + around.height);
        }
        for other in number + 1..drawing.nodes.len() {
            if graph.nodes[number].parent == graph.nodes[other].parent {
                let other = drawing.nodes[other];
                let is_apart = rect.x + rect.width < other.x
                    || other.x + other.width < rect.x
                    || rect.y + rect.height < other.y
                    || other.y + other.height < rect.y;
                assert!(is_apart, "{key}: {rect:?} {other:?}");
            }
        }
    }
    for (edge, line) in graph.edges.iter().zip(&drawing.edges) {
        let touches = |node: usize, point: Option<&(f64, f64)>| {
            let (rect, (x, y)) = (drawing.nodes[node], *point.unwrap());
            let bottom = rect.y + rect.height;
            (x - rect.x - rect.width / 2.0).abs() < 1.0
                && ((y - rect.y).abs() < 1.0 || (y - bottom).abs() < 1.0)
        };
        assert!(touches(edge.from, line.first()), "{key}: {edge:?} {line:?}");
        assert!(touches(edge.to, line.last()), "{key}: {edge:?} {line:?}");
        let chain =
            |node: usize| std::iter::successors(Some(node), |node| graph.nodes[*node].parent);
        let around: BTreeSet<usize> = chain(edge.from).chain(chain(edge.to)).collect();
        for (node, rect) in drawing.nodes.iter().enumerate() {
            let is_crossed = line.windows(2).any(|ends| crosses(*rect, ends[0], ends[1]));
            assert!(
                around.contains(&node) || !is_crossed,
                "{key}: {edge:?} crosses {node}: {line:?} {rect:?}"
            );
        }
    }
    let svg = write_svg(graph, &drawing, &details, &[]);
    assert_eq!(svg.matches("<polyline").count(), graph.edges.len());
    let dot = write_dot(graph, "graph", &details);
    assert_eq!(dot.matches(" -> ").count(), graph.edges.len());
    assert_eq!(dot.matches('{').count(), dot.matches('}').count());
}

corpus_tests!(every_program_is_drawn);

/// A path leads along values only, through the result of a fusion too.
fn paths_follow_values(corpus: &Corpus) {
    let programs = programs(&corpus.path("hlo/mlp_train"));
    let program = programs
        .iter()
        .find(|program| &*program.module.name == "jit_train_step")
        .unwrap();
    let module = &program.module;
    let flow = DataFlow::new(module);
    let entry = module.computation(module.entry.unwrap());
    let (first, root) = (entry.instructions.start, entry.root.unwrap());
    let reaches = (first..root)
        .filter(|at| &*module.instruction(*at).opcode == "parameter")
        .find_map(|at| path(module, &flow, at, root));
    let way = reaches.expect("an argument reaches the result");
    assert_eq!(way.last(), Some(&root));
    for step in way.windows(2) {
        assert!(flow.users(step[0]).contains(&step[1]), "{way:?}");
    }
    assert_eq!(path(module, &flow, root, first), None);
    let inside = module
        .instructions
        .iter()
        .position(|one| &*one.opcode == "fusion")
        .map(|fusion| module.callee(&module.instructions[fusion]).unwrap())
        .unwrap();
    let way = path(module, &flow, inside.instructions.start, root);
    assert!(way.is_some_and(|way| way.len() > 2));
}

corpus_tests!(paths_follow_values);

fn ops_are_found_by_name_opcode_shape_scope_and_source(corpus: &Corpus) {
    let programs = programs(&corpus.path("hlo/mlp_train"));
    let program = programs
        .iter()
        .find(|program| &*program.module.name == "jit_train_step")
        .unwrap();
    let module = &program.module;
    let target = module
        .instructions
        .iter()
        .position(|one| &*one.opcode == "dot" && module.source(one).is_some())
        .unwrap() as u32;
    let instruction = module.instruction(target);
    let source = module.source(instruction).unwrap();
    assert_eq!(search(module, &instruction.name.to_uppercase())[0], target);
    for text in [
        "dot".to_owned(),
        instruction.shape.to_string(),
        instruction.origin.op_name.to_string(),
        format!("{}:{}", source.file, source.line),
        format!("dot {}", instruction.shape),
    ] {
        assert!(search(module, &text).contains(&target), "{text}");
    }
    assert!(search(module, "no such op").is_empty());
    assert!(search(module, "  ").is_empty());
}

corpus_tests!(ops_are_found_by_name_opcode_shape_scope_and_source);

fn the_text_of_a_module_has_each_instruction_once(corpus: &Corpus) {
    for program in programs(&corpus.path("hlo/zoo")) {
        let mut text = String::new();
        module_text(&program.module, &mut |part| {
            text.push_str(part);
            Ok::<(), std::convert::Infallible>(())
        })
        .unwrap();
        let lines = text.lines().filter(|line| line.contains(" = "));
        assert_eq!(lines.count(), program.module.instructions.len());
        assert_eq!(text.matches("\nENTRY ").count(), 1);
    }
}

corpus_tests!(the_text_of_a_module_has_each_instruction_once);

fn the_limit_holds_and_stubs_count_the_rest(corpus: &Corpus) {
    let programs = programs(&corpus.path("hlo/convnet"));
    let module = &programs
        .iter()
        .find(|program| &*program.module.name == "jit_train_step")
        .unwrap()
        .module;
    let flow = DataFlow::new(module);
    for limit in [1, 2, 5, 20] {
        let graph = VisibleGraph::new(
            module,
            &flow,
            Selection {
                by_scope: false,
                limit,
                ..whole(module)
            },
        );
        assert_eq!(graph.nodes.len(), limit);
        assert!(graph.is_truncated);
        let stubs = graph
            .nodes
            .iter()
            .filter(|node| node.kind == DrawnNodeKind::Stub);
        let all = graph.nodes.len() - 1 + stubs.map(|node| node.instructions).sum::<usize>();
        let entry = module.computation(module.entry.unwrap());
        let nodes = entry.instructions.clone();
        let nodes = nodes.filter(|at| !is_inlined(module, &flow, *at)).count();
        assert_eq!(all, nodes);
    }
}

corpus_tests!(the_limit_holds_and_stubs_count_the_rest);
