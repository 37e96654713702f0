//! Instructions and modules as HLO text.

use std::fmt::Write as _;

use stepscope_formats::hlo::{
    Attributes, ComputationAt, Instruction, InstructionAt, Module, Shape,
};

/// Every so many parts of a tuple, XLA writes the position.
const POSITION_INTERVAL: usize = 5;

/// Writes a shape; the reader of modules bounds how deep tuples nest.
fn write_shape(out: &mut String, shape: &Shape) {
    if !shape.is_tuple() {
        let _ = write!(out, "{shape}");
        return;
    }
    out.push('(');
    for (position, part) in shape.parts.iter().enumerate() {
        if position > 0 {
            out.push_str(", ");
            if position % POSITION_INTERVAL == 0 {
                let _ = write!(out, "/*index={position}*/");
            }
        }
        write_shape(out, part);
    }
    out.push(')');
}

fn list(numbers: &[i64]) -> String {
    let numbers: Vec<String> = numbers.iter().map(i64::to_string).collect();
    format!("{{{}}}", numbers.join(","))
}

/// Returns the text of an instruction in XLA's short form: name, shape, opcode, operands, and the attributes
/// that the reader of modules knows.
pub fn instruction_text(module: &Module, at: InstructionAt) -> String {
    let instruction = module.instruction(at);
    let mut out = format!("{} = ", instruction.name);
    write_shape(&mut out, &instruction.shape);
    let _ = write!(out, " {}(", instruction.opcode);
    match &*instruction.opcode {
        "parameter" => out.push_str(&instruction.parameter_number.to_string()),
        "constant" => {
            let literal = instruction.attributes.as_ref();
            let literal = literal.and_then(|attributes| attributes.literal.as_deref());
            out.push_str(literal.unwrap_or("{...}"));
        }
        _ => {
            let operands = instruction.operands.iter();
            let names: Vec<&str> = operands
                .map(|operand| &*module.instruction(*operand).name)
                .collect();
            out.push_str(&names.join(", "));
        }
    }
    out.push(')');
    let has_dimensions = matches!(
        &*instruction.opcode,
        "broadcast" | "reduce" | "transpose" | "concatenate" | "reverse" | "map" | "sort"
    ) || instruction.opcode.starts_with("all-")
        || &*instruction.opcode == "reduce-scatter";
    let writes_empty = matches!(&*instruction.opcode, "broadcast" | "reduce" | "transpose");
    if has_dimensions && (writes_empty || !instruction.dimensions.is_empty()) {
        let _ = write!(out, ", dimensions={}", list(&instruction.dimensions));
    }
    match &*instruction.opcode {
        "get-tuple-element" => {
            let _ = write!(out, ", index={}", instruction.tuple_index);
        }
        "iota" => {
            let dimension = instruction.dimensions.first().copied().unwrap_or(0);
            let _ = write!(out, ", iota_dimension={dimension}");
        }
        _ => {}
    }
    if let Some(attributes) = &instruction.attributes {
        write_attributes(&mut out, attributes);
    }
    if !instruction.fusion_kind.is_empty() {
        let _ = write!(out, ", kind={}", instruction.fusion_kind);
    }
    write_called(&mut out, module, instruction);
    if !instruction.custom_call_target.is_empty() {
        let target = &instruction.custom_call_target;
        let _ = write!(out, ", custom_call_target=\"{target}\"");
    }
    if !instruction.control_predecessors.is_empty() {
        let before = instruction.control_predecessors.iter();
        let names: Vec<&str> = before.map(|at| &*module.instruction(*at).name).collect();
        let _ = write!(out, ", control-predecessors={{{}}}", names.join(", "));
    }
    out
}

fn write_attributes(out: &mut String, attributes: &Attributes) {
    if let Some(dot) = &attributes.dot {
        let parts = [
            ("lhs_batch_dims", &dot.lhs_batch),
            ("lhs_contracting_dims", &dot.lhs_contracting),
            ("rhs_batch_dims", &dot.rhs_batch),
            ("rhs_contracting_dims", &dot.rhs_contracting),
        ];
        for (name, numbers) in parts {
            if !numbers.is_empty() {
                let _ = write!(out, ", {name}={}", list(numbers));
            }
        }
    }
    if !attributes.replica_groups.is_empty() {
        let groups: Vec<String> = attributes
            .replica_groups
            .iter()
            .map(|ranks| list(ranks))
            .collect();
        let _ = write!(out, ", replica_groups={{{}}}", groups.join(","));
    }
    if !attributes.fft_length.is_empty() {
        let _ = write!(out, ", fft_length={}", list(&attributes.fft_length));
    }
    for (name, count) in [
        ("feature_group_count", attributes.feature_group_count),
        ("batch_group_count", attributes.batch_group_count),
    ] {
        if count > 1 {
            let _ = write!(out, ", {name}={count}");
        }
    }
}

fn write_called(out: &mut String, module: &Module, instruction: &Instruction) {
    let name = |at: &ComputationAt| &*module.computation(*at).name;
    match (&*instruction.opcode, &*instruction.called) {
        (_, []) => {}
        ("while", [body, condition, ..]) => {
            let _ = write!(out, ", condition={}, body={}", name(condition), name(body));
        }
        ("conditional", branches) => {
            let names: Vec<&str> = branches.iter().map(name).collect();
            let _ = write!(out, ", branch_computations={{{}}}", names.join(", "));
        }
        ("select-and-scatter", [select, scatter, ..]) => {
            let _ = write!(out, ", select={}, scatter={}", name(select), name(scatter));
        }
        ("fusion" | "async-start" | "async-update" | "async-done" | "custom-call", called) => {
            let names: Vec<&str> = called.iter().map(name).collect();
            let _ = write!(out, ", calls={}", names.join(", "));
        }
        (_, called) => {
            let names: Vec<&str> = called.iter().map(name).collect();
            let _ = write!(out, ", to_apply={}", names.join(", "));
        }
    }
}

/// Writes the text of all computations of a module, in the order of the file; `write` takes it bit by bit.
///
/// # Errors
///
/// The first error of `write`.
pub fn module_text<E>(
    module: &Module,
    write: &mut dyn FnMut(&str) -> Result<(), E>,
) -> Result<(), E> {
    write(&format!("HloModule {}\n", module.name))?;
    for (number, computation) in (0..).zip(&module.computations) {
        let entry = if module.entry == Some(number) {
            "ENTRY "
        } else {
            ""
        };
        write(&format!("\n{entry}{} {{\n", computation.name))?;
        let order: Vec<InstructionAt> = if computation.schedule.is_empty() {
            computation.instructions.clone().collect()
        } else {
            computation.schedule.clone()
        };
        for at in order {
            let root = if computation.root == Some(at) {
                "ROOT "
            } else {
                ""
            };
            write(&format!("  {root}{}\n", instruction_text(module, at)))?;
        }
        write("}\n")?;
    }
    Ok(())
}
