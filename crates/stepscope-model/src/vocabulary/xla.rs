//! Opcodes of HLO and names of the lines that XLA's profilers write for a device.

/// Kind of a line of a device plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceLine {
    /// Steps of the program.
    Steps,
    /// Running programs, one slice for each execution.
    Modules,
    /// Operations, one after the other.
    Ops,
    /// Operations that run concurrently with those of [`DeviceLine::Ops`].
    AsyncOps,
    /// Labels or summaries of the events on other lines.
    Summary,
    /// A stream, or a line of another profiler.
    Other,
}

impl DeviceLine {
    /// Returns the kind of the line of this name.
    pub fn from_name(name: &str) -> Self {
        match name {
            "Steps" | "Sparse Core Steps" => Self::Steps,
            "XLA Modules" | "Sparse Core Modules" => Self::Modules,
            "XLA Ops" | "Sparse Core Ops" => Self::Ops,
            "Framework Name Scope"
            | "Framework Ops"
            | "TensorFlow Name Scope"
            | "TensorFlow Ops"
            | "Source code"
            | "Source Code"
            | "Launch Stats"
            | "Host Offload Ops" => Self::Summary,
            _ if name.starts_with("Async ") => Self::AsyncOps,
            _ if name.starts_with("XLA TraceMe") || name.starts_with("Overlay") => Self::Summary,
            _ => Self::Other,
        }
    }
}

/// Returns whether an opcode is that of a collective, or of one half of an asynchronous one.
///
/// ```
/// use stepscope_model::vocabulary::xla::is_collective;
/// assert!(is_collective("all-gather-done") && !is_collective("all-reduce-simplifier"));
/// ```
pub fn is_collective(opcode: &str) -> bool {
    const COLLECTIVES: [&str; 7] = [
        "all-reduce",
        "all-gather",
        "reduce-scatter",
        "all-to-all",
        "ragged-all-to-all",
        "collective-permute",
        "collective-broadcast",
    ];
    let halves = ["-start", "-done", "-update"];
    let whole = halves.iter().find_map(|half| opcode.strip_suffix(half));
    COLLECTIVES.contains(&whole.unwrap_or(opcode))
}

/// Returns whether an opcode runs nested instructions: a loop, a branch, a call.
pub fn is_container(opcode: &str) -> bool {
    matches!(opcode, "while" | "conditional" | "call")
}

/// Returns whether an opcode is one end of a transfer between devices, or between device and host.
pub fn is_transfer(opcode: &str) -> bool {
    matches!(opcode, "send" | "recv" | "send-done" | "recv-done")
}

/// Returns whether this is a collective function of JAX, which names instructions after them.
pub fn is_jax_collective(name: &str) -> bool {
    matches!(
        name,
        "psum" | "psum_invariant" | "psum_scatter" | "ppermute"
    )
}

/// Scope of a transposed function in the paths that JAX gives to operations.
pub const JAX_TRANSPOSE: &str = "transpose(";

/// Scope of a backward pass in these paths, the transpose of a derivative: `jit(f)/transpose(jvp(g))/mul`.
pub const JAX_BACKWARD: &str = "transpose(jvp(";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_cores_have_the_same_kinds_of_lines() {
        for (name, line) in [
            ("XLA Ops", DeviceLine::Ops),
            ("Sparse Core Ops", DeviceLine::Ops),
            ("Sparse Core Modules", DeviceLine::Modules),
            ("Async XLA Ops", DeviceLine::AsyncOps),
            ("Framework Ops", DeviceLine::Summary),
            ("Stream #7(Compute)", DeviceLine::Other),
        ] {
            assert_eq!(DeviceLine::from_name(name), line, "{name}");
        }
    }

    #[test]
    fn halves_of_collectives_are_collectives() {
        for (opcode, expected) in [
            ("all-reduce", true),
            ("all-gather-start", true),
            ("ragged-all-to-all-done", true),
            ("all-reduce-simplifier", false),
            ("reduce", false),
        ] {
            assert_eq!(is_collective(opcode), expected, "{opcode}");
        }
    }
}
