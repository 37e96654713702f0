//! Fuzzes the reader of compiled programs, their costs, memory plans, graphs and reports: no input makes them
//! panic, and their output is bounded by the input.

#![no_main]

use std::convert::Infallible;

use libfuzzer_sys::fuzz_target;
use stepscope_formats::Format;
use stepscope_formats::hlo::{ComputationAt, InstructionAt, Module, module_header};
use stepscope_hlo::cost::{Analysis, Rules};
use stepscope_hlo::graph::{
    DataFlow, GraphLayout, Selection, VisibleGraph, adjacent, instruction_text, module_text,
    neighbourhood, path, search, write_dot, write_svg,
};
use stepscope_hlo::memory::{Plan, advice, program_order};

/// Maximum number of instructions and computations whose graphs are drawn.
const MOST: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let mut found = 0;
    stepscope_formats::hlo::instructions(bytes, None, None, &mut |instruction| {
        found += 1;
        assert!(instruction.name.len() <= 3 * bytes.len());
        assert!(instruction.shape.len() <= 1024);
    });
    assert!(found <= bytes.len());
    let Some(module) = Module::read(bytes) else {
        return;
    };
    assert_eq!(
        module_header(bytes).map(|header| header.id),
        Some(module.id)
    );
    for rules in [Rules::Base, Rules::Gpu] {
        let costs = Analysis::with_rules(&module, rules);
        assert_eq!(costs.instructions.len(), module.instructions.len());
    }
    assert!(program_order(&module).len() <= module.instructions.len());
    if let Some(plan) = Plan::new(&module) {
        for space in plan.spaces {
            assert!(space.xprof.points.len() <= bytes.len() + 1);
            for one in advice(&module, &space.live) {
                assert!(one.saved <= one.freed);
            }
        }
    }
    graphs(&module);
    stepscope_fuzz::check_reports(Format::Hlo, bytes, &["hlo-memory", "hlo-cost", "ops"]);
});

fn graphs(module: &Module) {
    let flow = DataFlow::new(module);
    let instructions = u32::try_from(module.instructions.len()).unwrap_or(u32::MAX);
    for at in (0..instructions).take(MOST) {
        let near = neighbourhood(module, &flow, at, 3, &[]);
        assert!(near.instructions.len() <= module.instructions.len());
        let _ = adjacent(module, &flow, at);
        let _ = path(module, &flow, at, instructions - 1);
        let _ = instruction_text(module, at);
        let root = module.instruction(at).computation;
        draw(&VisibleGraph::new(
            module,
            &flow,
            selection(root, Some(&near.instructions)),
        ));
    }
    let computations = u32::try_from(module.computations.len()).unwrap_or(u32::MAX);
    for root in (0..computations).take(MOST) {
        draw(&VisibleGraph::new(module, &flow, selection(root, None)));
    }
    let _ = search(module, "f a");
    let written = module_text::<Infallible>(module, &mut |_| Ok(()));
    assert!(written.is_ok());
}

fn selection(root: ComputationAt, only: Option<&[InstructionAt]>) -> Selection<'_> {
    Selection {
        root,
        only,
        without_users: &[],
        by_scope: root % 2 == 1,
        open: None,
        limit: 100,
    }
}

fn draw(graph: &VisibleGraph) {
    let details = vec![String::new(); graph.nodes.len()];
    let drawing = GraphLayout::new(graph, &details);
    assert_eq!(drawing.nodes.len(), graph.nodes.len());
    assert!(drawing.width.is_finite() && drawing.height.is_finite());
    let _ = write_svg(graph, &drawing, &details, &[]);
    let _ = write_dot(graph, "f", &details);
}
