//! The rank that launchers give a process, by the variables of torchrun, MPI, JAX and Slurm.

/// Variables with the rank and the number of ranks, in the order in which they are believed.
const RANKS: [(&str, &str); 5] = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("JAX_PROCESS_ID", "JAX_NUM_PROCESSES"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
];

/// The place of a process among the ranks of its program.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LauncherRank {
    /// The rank; none if no launcher has set one.
    pub rank: Option<u64>,
    /// Number of ranks.
    pub world_size: Option<u64>,
}

impl LauncherRank {
    /// Reads the variables.
    pub fn read(variable: &dyn Fn(&str) -> Option<String>) -> Self {
        let number = |name| variable(name).and_then(|value| value.trim().parse().ok());
        RANKS
            .iter()
            .map(|(rank, size)| Self {
                rank: number(rank),
                world_size: number(size),
            })
            .find(|found| found.rank.is_some())
            .unwrap_or_default()
    }

    /// Returns whether a list such as `0,8` has this rank. Without a rank, it is 0.
    pub fn is_in(&self, wanted: &str) -> bool {
        let rank = self.rank.unwrap_or(0);
        wanted
            .split(',')
            .any(|word| word.trim().parse() == Ok(rank))
    }

    /// Returns whether this is one of several processes.
    pub(super) fn is_one_of_several(&self) -> bool {
        self.rank.is_some() && self.world_size.is_some_and(|size| size > 1)
    }
}
