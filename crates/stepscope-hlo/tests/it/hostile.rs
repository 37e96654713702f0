//! Damaged modules: every analysis ends, without a panic.

use stepscope_formats::hlo::{InstructionAt, Module};
use stepscope_hlo::cost::{Analysis, Rules};
use stepscope_hlo::graph::{
    DataFlow, GraphLayout, Selection, VisibleGraph, adjacent, instruction_text, module_text,
    neighbourhood, path, search, write_dot, write_svg,
};
use stepscope_hlo::memory::{Plan, advice};
use stepscope_test_data::Corpus;

/// Asks everything that there is to ask about a module.
pub(crate) fn ask_everything(module: &Module) {
    for rules in [Rules::Base, Rules::Gpu] {
        let costs = Analysis::with_rules(module, rules);
        assert_eq!(costs.instructions.len(), module.instructions.len());
    }
    for space in Plan::new(module).unwrap_or_default().spaces {
        for one in advice(module, &space.live) {
            assert!(one.saved <= one.freed && one.saved <= space.live.peak);
        }
    }
    let flow = DataFlow::new(module);
    let count = InstructionAt::try_from(module.instructions.len()).unwrap();
    search(module, "add");
    module_text(module, &mut |_| Ok::<(), ()>(())).unwrap();
    for at in (0..count).step_by(count as usize / 3 + 1) {
        adjacent(module, &flow, at);
        path(module, &flow, at, count - 1);
        instruction_text(module, at);
        let near = neighbourhood(module, &flow, at, 3, &[]);
        let only = Some(near.instructions.as_slice());
        draw(
            module,
            &flow,
            module.instruction(at).computation,
            only,
            &near.without_users,
        );
    }
    if let Some(entry) = module.entry {
        draw(module, &flow, entry, None, &[]);
    }
}

fn draw(
    module: &Module,
    flow: &DataFlow,
    root: u32,
    only: Option<&[InstructionAt]>,
    without_users: &[InstructionAt],
) {
    let mut open: Option<Vec<String>> = None;
    // As it is first drawn, then with everything open that was shown closed.
    for _ in 0..2 {
        let selection = Selection {
            root,
            only,
            without_users,
            by_scope: true,
            open: open.as_deref(),
            limit: 300,
        };
        let graph = VisibleGraph::new(module, flow, selection);
        assert!(graph.nodes.len() <= 300 + 1, "{}", graph.nodes.len());
        let details = vec![String::new(); graph.nodes.len()];
        let drawing = GraphLayout::new(&graph, &details);
        assert_eq!(drawing.nodes.len(), graph.nodes.len());
        assert!(drawing.width.is_finite() && drawing.height.is_finite());
        write_svg(&graph, &drawing, &details, &[]);
        write_dot(&graph, "damaged", &details);
        open = Some(graph.nodes.iter().map(|node| node.key.clone()).collect());
    }
}

/// Flips bits of a program and cuts it: 400 damaged programs, the same ones in each run.
#[test]
fn damaged_programs_end_every_analysis() {
    let corpus = Corpus::committed();
    let file = crate::support::profiles(&corpus.path("hlo/mlp_train")).remove(0);
    let bytes: stepscope_model::SharedBytes = std::sync::Arc::new(std::fs::read(file).unwrap());
    let context = stepscope_model::ReadContext::default();
    let source =
        stepscope_formats::arg_source(stepscope_formats::Format::XSpace, &bytes, &context).unwrap();
    let mut whole = Vec::new();
    source
        .programs(&mut |program| {
            if program.name == Some("jit_train_step") {
                whole = program.bytes.to_vec();
            }
        })
        .unwrap();
    ask_everything(&Module::read(&whole).unwrap());
    // A generator of Lehmer.
    let mut state = 48_271_u64;
    let mut next = |below: usize| {
        state = state * 48_271 % 2_147_483_647;
        usize::try_from(state).unwrap() % below
    };
    let mut read = 0;
    for round in 0..400 {
        let mut damaged = whole.clone();
        for _ in 0..=round % 8 {
            let at = next(damaged.len());
            damaged[at] ^= 1 << next(8);
        }
        if round % 10 == 0 {
            damaged.truncate(next(whole.len()));
        }
        if let Some(module) = Module::read(&damaged) {
            ask_everything(&module);
            read += 1;
        }
    }
    assert!(read > 200, "{read}");
}
