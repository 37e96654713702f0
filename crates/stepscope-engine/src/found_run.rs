//! A run that a scan found, and its files. Their content has not been read.

use std::path::PathBuf;

use crate::files::{FileLocation, ObjectFile, Stamp};
use crate::hash::{self, Hash};
use crate::names::NameClass;

/// One trace file of a run.
#[derive(Clone, Debug)]
pub(crate) struct FoundFile {
    pub(crate) path: PathBuf,
    /// Location in the served directory or in an object store; `None` for a file that the user named.
    pub(crate) place: Option<FileLocation>,
    /// The file's name; invalid UTF-8 becomes replacement characters.
    pub(crate) name: String,
    pub(crate) class: NameClass,
    pub(crate) stamp: Stamp,
    pub(crate) rank: Option<u32>,
}

impl FoundFile {
    /// Returns the object that the file is, unless it is on this machine's file system.
    pub(crate) fn object(&self) -> Option<&ObjectFile> {
        match &self.place {
            Some(FileLocation::Object(object)) => Some(object),
            _ => None,
        }
    }

    /// Returns the number of bytes to fetch before the file can be read.
    pub(crate) fn missing_bytes(&self) -> u64 {
        let missing = self.object().filter(|object| object.local().is_none());
        missing.map_or(0, |_| self.stamp.bytes)
    }
}

/// A run that is not open yet.
#[derive(Clone, Debug)]
pub(crate) struct FoundRun {
    pub(crate) id: String,
    pub(crate) name: String,
    /// In the order of hosts and ranks.
    pub(crate) files: Vec<FoundFile>,
    /// Compiled programs in files of their own, which are read on request only. The run has no
    /// timeline if it has no other files: `files` is the first of them then.
    pub(crate) programs: Vec<FoundFile>,
    /// Execution traces, which list the operators of the trace files without times.
    pub(crate) execution_traces: Vec<FoundFile>,
    /// Files next to the trace files that hold the same events in another format.
    pub(crate) companions: Vec<PathBuf>,
    /// Unix time: from the session's or the file's name, otherwise the file's modification time.
    pub(crate) recorded_ns: Option<i64>,
    /// Badges inferred from names alone.
    pub(crate) kinds: Vec<String>,
}

impl FoundRun {
    /// Returns a hash that changes when any file of the run does.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut text = Vec::new();
        let others = self.programs.iter().chain(&self.execution_traces);
        for file in self.files.iter().chain(others) {
            text.extend_from_slice(file.path.as_os_str().as_encoded_bytes());
            for number in [
                file.stamp.bytes,
                file.stamp.modified_ns.cast_unsigned(),
                file.stamp.inode,
            ] {
                text.extend_from_slice(&number.to_le_bytes());
            }
        }
        hash::bytes(&text).to_u64()
    }

    /// Returns whether the run is a folder of compiled programs without a timeline.
    pub(crate) fn is_programs_only(&self) -> bool {
        !self.programs.is_empty() && self.files.iter().all(|file| file.class == NameClass::Hlo)
    }

    /// Returns whether one of its files is a log of `torch.compile` that accompanies the trace of a process.
    pub(crate) fn is_companion_log(&self, file: &FoundFile) -> bool {
        let is_log = |file: &FoundFile| file.class == NameClass::CompileLog;
        is_log(file) && !self.files.iter().all(is_log)
    }

    /// Returns the paths of its trace files; of its programs if it has no other files.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let files = if self.is_programs_only() {
            &self.programs
        } else {
            &self.files
        };
        let files = files.iter().chain(&self.execution_traces);
        files.map(|file| file.path.clone()).collect()
    }

    /// Returns the run of one of its execution traces alone.
    pub(crate) fn of_execution_trace(&self, file: &FoundFile) -> Self {
        Self {
            id: self.id.clone(),
            name: self.name.clone(),
            files: vec![file.clone()],
            programs: Vec::new(),
            execution_traces: Vec::new(),
            companions: Vec::new(),
            recorded_ns: None,
            kinds: Vec::new(),
        }
    }

    /// Returns the run of one of its trace files alone.
    pub(crate) fn of_file(&self, number: usize) -> Option<Self> {
        Some(Self {
            files: vec![self.files.get(number)?.clone()],
            execution_traces: Vec::new(),
            companions: Vec::new(),
            ..self.clone()
        })
    }

    /// Returns a hash of the names and sizes of its trace files. It changes when one is added or grows, and is the
    /// same for a copy of the run.
    pub(crate) fn listing_hash(&self) -> Hash {
        let mut text = Vec::new();
        for file in &self.files {
            text.extend_from_slice(file.name.as_bytes());
            text.push(0);
            text.extend_from_slice(&file.stamp.bytes.to_le_bytes());
        }
        hash::bytes(&text)
    }

    /// Returns whether its files can be read without fetching one.
    pub(crate) fn is_local(&self) -> bool {
        let files = self.files.iter().chain(&self.execution_traces);
        files.map(FoundFile::missing_bytes).all(|bytes| bytes == 0)
    }

    /// Returns the size of its files on disk.
    pub(crate) fn bytes(&self) -> u64 {
        let others = self.programs.iter().chain(&self.execution_traces);
        // One of the programs stands for the run.
        let files = self.files.iter().filter(|_| !self.is_programs_only());
        let sizes = files.chain(others).map(|file| file.stamp.bytes);
        sizes.fold(0, u64::saturating_add)
    }
}
