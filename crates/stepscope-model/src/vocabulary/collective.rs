//! Collective operations, the libraries that run them and their names in traces.

/// Operation of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CollectiveOp {
    /// Every rank gets the sum.
    AllReduce,
    /// Every rank gets the data of every rank.
    AllGather,
    /// Every rank gets a part of the sum.
    ReduceScatter,
    /// Every rank sends a part to every rank.
    AllToAll,
    /// One rank sends to all.
    Broadcast,
    /// One rank gets the sum.
    Reduce,
    /// One rank gets the data of all.
    Gather,
    /// One rank sends a part to each.
    Scatter,
    /// Each rank sends to one and receives from one.
    Permute,
    /// One-way transfer between two ranks.
    SendRecv,
    /// Synchronization without data.
    Barrier,
    /// The name does not identify the operation.
    Other,
}

impl CollectiveOp {
    /// Every operation.
    pub const ALL: [Self; 12] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::AllToAll,
        Self::Broadcast,
        Self::Reduce,
        Self::Gather,
        Self::Scatter,
        Self::Permute,
        Self::SendRecv,
        Self::Barrier,
        Self::Other,
    ];

    /// Returns the operation of a word used in tables.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.as_str() == word)
    }

    /// Returns the word used in tables.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AllReduce => "all-reduce",
            Self::AllGather => "all-gather",
            Self::ReduceScatter => "reduce-scatter",
            Self::AllToAll => "all-to-all",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
            Self::Permute => "permute",
            Self::SendRecv => "send-receive",
            Self::Barrier => "barrier",
            Self::Other => "communication",
        }
    }

    /// Infers the operation from the name of a kernel or an instruction, or from torch's name of
    /// the collective.
    pub fn from_name(name: &str) -> Self {
        const PARTS: &[(&str, CollectiveOp)] = &[
            ("allreduce", CollectiveOp::AllReduce),
            ("crossdevicereduce", CollectiveOp::AllReduce),
            ("oneshot", CollectiveOp::AllReduce),
            ("twoshot", CollectiveOp::AllReduce),
            ("psumscatter", CollectiveOp::ReduceScatter),
            ("psum", CollectiveOp::AllReduce),
            ("reducescatter", CollectiveOp::ReduceScatter),
            ("allgather", CollectiveOp::AllGather),
            ("alltoall", CollectiveOp::AllToAll),
            ("collectivepermute", CollectiveOp::Permute),
            ("ppermute", CollectiveOp::Permute),
            ("broadcast", CollectiveOp::Broadcast),
            ("barrier", CollectiveOp::Barrier),
            ("sendrecv", CollectiveOp::SendRecv),
            ("send", CollectiveOp::SendRecv),
            ("recv", CollectiveOp::SendRecv),
            ("scatter", CollectiveOp::Scatter),
            ("gather", CollectiveOp::Gather),
            ("reduce", CollectiveOp::Reduce),
        ];
        let plain: String = name
            .chars()
            .take(120)
            .filter(char::is_ascii_alphanumeric)
            .map(|letter| letter.to_ascii_lowercase())
            .collect();
        PARTS
            .iter()
            .find(|(call, _)| plain.contains(call))
            .map_or(Self::Other, |(_, kind)| *kind)
    }

    /// Returns the size that bandwidths are computed from, given the input and output bytes of a
    /// participant.
    pub fn size(self, in_bytes: u64, out_bytes: u64) -> u64 {
        match self {
            Self::AllGather | Self::Gather => out_bytes.max(in_bytes),
            _ => in_bytes,
        }
    }

    /// Returns bus bandwidth over algorithm bandwidth, for a group of `n`.
    pub fn bus_factor(self, n: u32) -> f64 {
        let n = f64::from(n.max(1));
        match self {
            Self::AllReduce => 2.0 * (n - 1.0) / n,
            Self::AllGather | Self::ReduceScatter | Self::AllToAll => (n - 1.0) / n,
            _ => 1.0,
        }
    }

    /// Returns whether no participant can finish before every participant has started.
    pub const fn waits_for_all(self) -> bool {
        matches!(
            self,
            Self::AllReduce
                | Self::AllGather
                | Self::ReduceScatter
                | Self::AllToAll
                | Self::Barrier
        )
    }
}

/// Backends of torch's process groups: `nccl:all_reduce` is a call of one.
const BACKENDS: &[&str] = &["gloo", "nccl", "rccl", "mpi", "ucc", "xccl", "hccl"];

/// Returns whether a name is a collective of one of torch's process groups: `gloo:all_reduce`.
pub fn is_process_group_call(name: &str) -> bool {
    name.split_once(':')
        .is_some_and(|(backend, call)| BACKENDS.contains(&backend) && !call.starts_with(':'))
}

/// Parts of the names of kernels and operations that communicate, in lower case.
///
/// Libraries have characteristic kernel names (NCCL, RCCL, MSCCL, oneCCL, NVSHMEM; the direct
/// all-reduces of vLLM, `SGLang` and TensorRT-LLM; torch's symmetric memory), XLA has
/// characteristic operation names.
const COMMUNICATION: &[&str] = &[
    "nccl",
    "rccl",
    "msccl",
    "oneccl",
    "nvshmem",
    "all-reduce",
    "all_reduce",
    "allreduce",
    "all-gather",
    "all_gather",
    "allgather",
    "reduce-scatter",
    "reduce_scatter",
    "reducescatter",
    "all-to-all",
    "all_to_all",
    "alltoall",
    "collective-permute",
    "collective-broadcast",
    "cross_device_reduce",
    "multimem_",
    "one_shot_reduce",
    "two_shot_reduce",
    "rocshmem",
    "ncfw-cc",
];

/// Returns whether a kernel or an operation of this name communicates.
pub fn communicates(name: &str) -> bool {
    // Convert to lower case once, not for each pattern: names of kernels are long.
    communicates_in_lower_case(&name.to_ascii_lowercase())
}

/// Returns the result of [`communicates`] for a name in lower case.
pub fn communicates_in_lower_case(name: &str) -> bool {
    COMMUNICATION.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_process_groups_have_one_colon() {
        assert!(is_process_group_call("gloo:all_reduce") && is_process_group_call("hccl:send"));
        assert!(!is_process_group_call("nccl::all_reduce") && !is_process_group_call("aten::add"));
    }

    #[test]
    fn kernels_of_libraries_communicate() {
        for name in [
            "ncclDevKernel_Generic_1",
            "void vllm::cross_device_reduce_1stage<half>",
            "all-gather.3",
        ] {
            assert!(communicates(name), "{name}");
        }
        assert!(!communicates("ampere_sgemm_128x64_nn"));
    }
}
