//! Which of the runs at a path are meant: some of them by name, or a part of them for a task of several.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use crate::hash;

/// One of several parts of all runs: `I/N`, `I` from 0.
///
/// A run belongs to a part by the hash of its id. So tasks that list the same path agree without knowing of one
/// another, also when a run is added meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: NonZeroU32,
}

impl Default for Shard {
    fn default() -> Self {
        Self::ALL
    }
}

impl Shard {
    /// All runs.
    pub const ALL: Self = Self {
        index: 0,
        count: NonZeroU32::MIN,
    };

    /// Returns whether the run of this id belongs to the part.
    pub fn has(self, id: &str) -> bool {
        hash::bytes(id.as_bytes()).to_u64() % u64::from(self.count.get()) == u64::from(self.index)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' is no part: I/N, with I from 0 to N - 1, as 3/16");
        let (index, count) = text.split_once('/').ok_or_else(wrong)?;
        let index: u32 = index.parse().map_err(|_no_number| wrong())?;
        let count: NonZeroU32 = count.parse().map_err(|_no_number| wrong())?;
        if index < count.get() {
            Ok(Self { index, count })
        } else {
            Err(wrong())
        }
    }
}

/// Which of the runs at a path are meant. All by default.
#[derive(Clone, Debug, Default)]
pub struct RunChoice {
    /// Part of the runs; of their files, if they are divided.
    pub shard: Shard,
    /// Names or ids of the runs; all if it is empty.
    pub runs: Vec<String>,
    /// Numbers of the files within their runs, if these are divided; all if it is empty.
    pub files: Vec<u32>,
}

impl RunChoice {
    /// Returns whether a run is meant.
    pub fn has(&self, id: &str, name: &str) -> bool {
        self.shard.has(id) && self.names(id, name)
    }

    /// Returns whether all files of each run that is meant are meant.
    pub fn is_all_files(&self) -> bool {
        self.files.is_empty() && self.shard == Shard::ALL
    }

    /// Returns whether a file of a run is meant, if runs are divided.
    pub(crate) fn has_file(&self, id: &str, name: &str, number: u32) -> bool {
        let is_chosen = self.files.is_empty() || self.files.contains(&number);
        is_chosen && self.names(id, name) && self.shard.has(&format!("{id}\n{number}"))
    }

    /// Returns whether a run is named, in whatever part it is.
    fn names(&self, id: &str, name: &str) -> bool {
        let is_named = self.runs.iter().any(|run| run == id || run == name);
        self.runs.is_empty() || is_named
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_belongs_to_one_part() {
        let parts: Vec<Shard> = (0..7)
            .map(|index| format!("{index}/7").parse().unwrap())
            .collect();
        let mut sizes = [0; 7];
        for run in 0..1_000 {
            let id = format!("plugins/profile/2026_11_{run}");
            let holders = parts.iter().enumerate().filter(|(_, part)| part.has(&id));
            let holders: Vec<usize> = holders.map(|(index, _)| index).collect();
            assert_eq!(holders.len(), 1, "{id}");
            sizes[holders[0]] += 1;
            assert!(Shard::ALL.has(&id));
        }
        // Some 143 each: a part of twice that would take twice as long as the others.
        assert!(
            sizes.iter().all(|size| (90..210).contains(size)),
            "{sizes:?}"
        );
    }

    #[test]
    fn parts_are_read_as_they_are_written() {
        let part: Shard = "3/16".parse().unwrap();
        assert_eq!(part.to_string(), "3/16");
        for wrong in ["", "3", "3/", "/3", "16/16", "-1/2", "1/0", "1/2/3"] {
            let error = wrong.parse::<Shard>().unwrap_err();
            assert!(error.contains("I/N"), "{error}");
        }
    }
}
