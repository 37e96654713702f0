//! In-memory store of captures of several hosts that have no directory. Its size is limited; the
//! oldest capture is removed first.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tonic::codegen::Bytes;

/// One host's `XSpace`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostData {
    /// Name of the file before `.xplane.pb`.
    pub(super) host: String,
    pub(super) xspace: Bytes,
}

#[derive(Debug)]
struct Session {
    name: String,
    hosts: Vec<HostData>,
}

impl Session {
    fn bytes(&self) -> usize {
        self.hosts.iter().map(|host| host.xspace.len()).sum()
    }
}

/// The captures in memory.
#[derive(Debug)]
pub(super) struct MemorySessions {
    most_bytes: usize,
    sessions: Mutex<VecDeque<Session>>,
}

impl MemorySessions {
    pub(super) fn new(most_bytes: usize) -> Self {
        Self {
            most_bytes,
            sessions: Mutex::default(),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Session>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a capture; replaces one of the same name. Returns `false` if it is larger than the
    /// store.
    pub(super) fn keep(&self, name: &str, hosts: Vec<HostData>) -> bool {
        let session = Session {
            name: name.to_owned(),
            hosts,
        };
        if session.bytes() > self.most_bytes {
            return false;
        }
        let mut sessions = self.lock();
        sessions.retain(|other| other.name != name);
        sessions.push_back(session);
        while sessions.iter().map(Session::bytes).sum::<usize>() > self.most_bytes {
            sessions.pop_front();
        }
        true
    }

    /// Returns the names, oldest first.
    pub(super) fn names(&self) -> Vec<String> {
        self.lock()
            .iter()
            .map(|session| session.name.clone())
            .collect()
    }

    /// Returns the data of a capture if it is still stored.
    pub(super) fn hosts(&self, name: &str) -> Option<Vec<HostData>> {
        let sessions = self.lock();
        let session = sessions.iter().find(|session| session.name == name);
        session.map(|session| session.hosts.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(host: &str, bytes: usize) -> Vec<HostData> {
        vec![HostData {
            host: host.to_owned(),
            xspace: vec![1; bytes].into(),
        }]
    }

    #[test]
    fn the_oldest_makes_room() {
        let kept = MemorySessions::new(100);
        assert!(kept.keep("a", data("x", 40)));
        assert!(kept.keep("b", data("x", 40)));
        assert!(kept.keep("c", data("x", 40)));
        assert_eq!(kept.names(), ["b", "c"]);
        assert!(!kept.keep("d", data("x", 101)));
        assert_eq!(kept.names(), ["b", "c"]);
        assert!(kept.keep("b", data("y", 60)));
        assert_eq!(kept.names(), ["c", "b"]);
        assert_eq!(kept.hosts("b").unwrap()[0].host, "y");
        assert_eq!(kept.hosts("a"), None);
    }
}
