//! The log directory, its disk, ports, and the way to the viewer.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};

use stepscope_engine::{Storage, find_sql_engine, storage};
use stepscope_server::DEFAULT_PORT;

use super::Check;
use super::machine::Machine;
use crate::text::{self, shell_word};

/// Port that the guides give to profiler servers of programs.
const SERVER: u16 = 9012;

/// Checks everything that is neither Python nor a device.
pub(super) fn checks(machine: &Machine, logdir: &Path) -> Vec<Check> {
    let mut found = log_directory(logdir);
    found.push(viewer_port(DEFAULT_PORT));
    found.push(server_port(SERVER));
    found.extend(ssh(machine));
    found.push(match find_sql_engine() {
        Ok(path) => Check::ok("sql", "SQL", path.display().to_string()),
        Err(error) => Check::absent(
            "sql",
            "SQL",
            error.to_string().lines().next().unwrap_or_default(),
        ),
    });
    found
}

fn log_directory(logdir: &Path) -> Vec<Check> {
    const ID: &str = "log_directory";
    const TITLE: &str = "Log directory";
    let shown = logdir.display();
    let help = "name one that can be written: stepscope run --logdir DIR -- COMMAND";
    let existing = match existing_folder(logdir) {
        Ok(folder) => folder,
        Err(error) => return vec![Check::problem(ID, TITLE, format!("{shown}: {error}"), help)],
    };
    if let Err(error) = crate::run::check_writable(&existing) {
        return vec![Check::problem(ID, TITLE, format!("{shown}: {error}"), help)];
    }
    let state = if existing == logdir {
        "can be written"
    } else {
        "can be created"
    };
    let mut found = vec![Check::ok(ID, TITLE, format!("{shown} {state}"))];
    match storage(&existing) {
        Ok(storage) => found.extend(disk(&storage)),
        Err(error) => found.push(Check::problem("disk", "Disk", error.to_string(), help)),
    }
    found
}

/// Returns the directory, or the first one above it that exists.
fn existing_folder(logdir: &Path) -> io::Result<PathBuf> {
    let absolute = std::path::absolute(logdir)?;
    let existing = absolute.ancestors().find(|folder| folder.exists());
    let existing = existing.unwrap_or(Path::new("/"));
    if !existing.is_dir() {
        return Err(io::Error::from(io::ErrorKind::NotADirectory));
    }
    Ok(if existing == absolute {
        logdir.to_owned()
    } else {
        existing.to_owned()
    })
}

fn disk(storage: &Storage) -> Vec<Check> {
    let mut found = Vec::new();
    if let Some(network) = storage.network {
        found.push(Check::problem(
            "network_disk",
            "Network disk",
            format!("the log directory is on {network}: recordings are kept in memory, and a killed program loses its own"),
            "name a directory of this machine: stepscope run --logdir DIR -- COMMAND",
        ));
    }
    if storage.total_bytes == 0 {
        return found;
    }
    let free = text::bytes(storage.free_bytes);
    let kept = text::bytes(storage.keep_free_bytes);
    found.push(if storage.free_bytes <= storage.keep_free_bytes {
        Check::problem(
            "disk",
            "Disk",
            format!("{free} free, and recordings leave {kept} free: they stop at once"),
            "remove files, or name another disk: stepscope run --logdir DIR -- COMMAND",
        )
    } else {
        Check::ok(
            "disk",
            "Disk",
            format!("{free} free, of which recordings leave {kept}"),
        )
    });
    found
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn viewer_port(port: u16) -> Check {
    const ID: &str = "viewer_port";
    const TITLE: &str = "Viewer's port";
    if is_free(port) {
        return Check::ok(ID, TITLE, format!("{port} is free"));
    }
    Check::problem(
        ID,
        TITLE,
        format!("{port} is in use: a viewer runs already, or another program has it"),
        "stepscope --port 0 LOGDIR",
    )
}

fn server_port(port: u16) -> Check {
    const ID: &str = "server_port";
    const TITLE: &str = "Profiler server";
    if is_free(port) {
        return Check::ok(
            ID,
            TITLE,
            format!("port {port} is free for stepscope.start_server({port})"),
        );
    }
    Check::ok(ID, TITLE, format!("a program listens on port {port}")).with_help(format!(
        "stepscope capture localhost:{port} --duration-ms 2000 --logdir logs"
    ))
}

/// Returns the command that makes the viewer reachable from the user's own machine.
fn ssh(machine: &Machine) -> Option<Check> {
    let connection = machine.variable("SSH_CONNECTION")?.to_str()?;
    // Address and port of the client, then of this machine.
    let mut words = connection.split_whitespace().skip(2);
    let (host, port) = (words.next()?, words.next().unwrap_or("22"));
    let user = machine.variable("USER").and_then(|user| user.to_str());
    let target = user.map_or_else(|| host.to_owned(), |user| format!("{user}@{host}"));
    let other_port = if port == "22" {
        String::new()
    } else {
        format!("-p {port} ")
    };
    let tunnel = format!(
        "ssh {other_port}-L {DEFAULT_PORT}:localhost:{DEFAULT_PORT} {}",
        shell_word(&target)
    );
    Some(
        Check::ok(
            "ssh",
            "SSH",
            "this is a remote session: run the command below at home, to reach the viewer",
        )
        .with_help(tunnel),
    )
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::super::machine::fake::FakeMachine;
    use super::*;

    #[test]
    fn ports_in_use_are_named() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert_eq!(viewer_port(port).state, State::Problem);
        assert!(server_port(port).help.unwrap().contains(&port.to_string()));
    }

    #[test]
    fn remote_session_gets_its_tunnel() {
        let tunnel = |connection: &str| {
            let fake = FakeMachine::new()
                .variable("SSH_CONNECTION", connection)
                .variable("USER", "ana");
            ssh(&fake.machine).and_then(|check| check.help)
        };
        assert_eq!(
            tunnel("10.0.0.2 50312 10.0.0.7 22").unwrap(),
            "ssh -L 8791:localhost:8791 ana@10.0.0.7"
        );
        assert_eq!(
            tunnel("10.0.0.2 50312 10.0.0.7 2222").unwrap(),
            "ssh -p 2222 -L 8791:localhost:8791 ana@10.0.0.7"
        );
        assert_eq!(tunnel("nonsense"), None);
        assert!(ssh(&FakeMachine::new().machine).is_none());
    }

    #[test]
    fn log_directory_is_checked_without_creating_it() {
        let folder = tempfile::tempdir().unwrap();
        let logdir = folder.path().join("a/b");
        assert!(log_directory(&logdir)[0].found.ends_with(" can be created"));
        assert!(!folder.path().join("a").exists());
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(log_directory(&file)[0].state, State::Problem);
        assert_eq!(log_directory(&file.join("logs"))[0].state, State::Problem);
    }

    #[test]
    fn full_and_network_disks_are_problems() {
        let folder = tempfile::tempdir().unwrap();
        let real = storage(folder.path()).unwrap();
        let states = |storage: Storage| {
            let found = disk(&storage).into_iter();
            found
                .map(|check| (check.id, check.state))
                .collect::<Vec<_>>()
        };
        let mut full = real;
        full.total_bytes = 100 << 30;
        full.keep_free_bytes = 5 << 30;
        full.free_bytes = 4 << 30;
        full.network = Some("NFS");
        assert_eq!(
            states(full),
            [("network_disk", State::Problem), ("disk", State::Problem)]
        );
        full.free_bytes = 50 << 30;
        full.network = None;
        assert_eq!(states(full), [("disk", State::Ok)]);
    }
}
