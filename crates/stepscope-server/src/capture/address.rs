//! Which addresses captures may connect to, and their resolution.
//!
//! A page served here must not use this server to reach other machines. Therefore the check applies
//! to the resolved IP address, not to the name. Loopback and the hosts of `--capture-to` are
//! allowed. The client connects to the checked address: a name is resolved once.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::problem::Problem;

/// Longest address: the longest host name, brackets, a port, and a scheme.
const MAX_LEN: usize = 253 + 32;
/// Timeout of a name lookup.
const LOOKUP: Duration = Duration::from_secs(3);
/// Timeout of the connection test of one address of a name.
const PROBE: Duration = Duration::from_millis(500);
/// Maximum number of tested addresses of one name.
const MAX_TRIED: usize = 4;

/// Metadata address of cloud machines, which returns credentials to any local program.
const METADATA_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);

/// Hosts that captures may connect to in addition to loopback.
#[derive(Debug, Default)]
pub(crate) struct Allowed {
    names: Vec<String>,
    addresses: Vec<IpAddr>,
}

impl Allowed {
    /// Parses the names and addresses (without port) of `--capture-to`.
    pub(crate) fn new(hosts: &[String]) -> Self {
        let mut allowed = Self::default();
        for host in hosts {
            match bare(host).parse::<IpAddr>() {
                Ok(address) => allowed.addresses.push(address.to_canonical()),
                Err(_) => allowed.names.push(folded(host)),
            }
        }
        allowed
    }

    /// Returns whether captures may connect to `address`, which `host` resolved to.
    fn permits(&self, host: &str, address: IpAddr) -> bool {
        let address = address.to_canonical();
        if address.is_loopback() || self.addresses.contains(&address) {
            return true;
        }
        // The name's DNS server chooses the address. These special addresses are never profiled
        // programs.
        let special = match address {
            IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
            IpAddr::V6(v6) => v6.is_unicast_link_local() || v6 == METADATA_V6,
        };
        let nowhere = address.is_unspecified() || address.is_multicast();
        !special && !nowhere && self.names.contains(&folded(host))
    }
}

/// A program to capture.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The address as the user wrote it.
    pub(crate) address: String,
    /// The resolved address; `None` if the name was not found.
    pub(crate) at: Option<SocketAddr>,
}

/// Resolves and checks all addresses, in the given order. A name that is not found is still a
/// target: the other programs can be captured.
pub(crate) async fn find(urls: &[String], allowed: &Allowed) -> Result<Vec<Target>, Problem> {
    let mut asked = Vec::new();
    for url in urls {
        let url = url.trim();
        let parsed = parse(url).map_err(|reason| {
            let detail = format!("{} cannot be captured: {reason}", shown(url));
            Problem::bad_request("urls", detail)
        })?;
        asked.push(parsed);
    }
    let mut lookups = JoinSet::new();
    for (index, (host, port)) in asked.iter().enumerate() {
        let (host, port) = (host.clone(), *port);
        lookups.spawn(async move {
            let found = timeout(LOOKUP, lookup_host((host.as_str(), port))).await;
            let found: Vec<SocketAddr> = match found {
                Ok(Ok(addresses)) => addresses.collect(),
                _ => Vec::new(),
            };
            (index, found)
        });
    }
    let mut found = vec![Vec::new(); asked.len()];
    while let Some(looked_up) = lookups.join_next().await {
        if let Ok((index, addresses)) = looked_up {
            found[index] = addresses;
        }
    }
    let mut targets: Vec<Target> = Vec::new();
    for (((host, _), url), addresses) in asked.iter().zip(urls).zip(found) {
        let address = shown(url.trim());
        // Checks all addresses of the name: the result must not depend on which one is used.
        let refused = addresses.iter().find(|at| !allowed.permits(host, at.ip()));
        if let Some(at) = refused {
            return Err(Problem::capture_forbidden(&address, host, at.ip()));
        }
        let at = the_listening_one(addresses).await;
        let twice = targets
            .iter()
            .find(|known| at.is_some() && known.at == at || known.address == address);
        if let Some(known) = twice {
            let detail = format!("{} and {address} are the same program", known.address);
            return Err(Problem::bad_request("urls", detail));
        }
        targets.push(Target { address, at });
    }
    Ok(targets)
}

/// Returns the first address that accepts a connection: `localhost` has two addresses, and many
/// programs listen on one only.
async fn the_listening_one(mut addresses: Vec<SocketAddr>) -> Option<SocketAddr> {
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses.dedup();
    if addresses.len() > 1 {
        for &address in addresses.iter().take(MAX_TRIED) {
            if let Ok(Ok(_)) = timeout(PROBE, TcpStream::connect(address)).await {
                return Some(address);
            }
        }
    }
    addresses.first().copied()
}

/// Returns host and port, or the reason why the address is invalid.
fn parse(url: &str) -> Result<(String, u16), String> {
    if url.is_empty() {
        return Err("it is empty".to_owned());
    }
    if url.len() > MAX_LEN {
        return Err(format!(
            "{} characters are more than an address has",
            url.len()
        ));
    }
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if !["", "grpc", "http"].contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!(
            "{scheme}:// is not spoken by profile services; write HOST:PORT"
        ));
    }
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let (host, port) = match rest.strip_prefix('[') {
        Some(inner) => {
            let (host, port) = inner.split_once(']').ok_or("a ] is missing")?;
            if host.parse::<Ipv6Addr>().is_err() {
                return Err("what stands in [ ] is no IPv6 address".to_owned());
            }
            (host, port.strip_prefix(':'))
        }
        None => match rest.rsplit_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        },
    };
    let Some(port) = port else {
        return Err("it has no port; write HOST:PORT, for example localhost:9012".to_owned());
    };
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    let is_v6 = rest.starts_with('[');
    if host.is_empty() || host.len() > 253 || !(is_v6 || host.chars().all(is_name)) {
        return Err("it is not HOST:PORT (an IPv6 address stands in brackets)".to_owned());
    }
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err("its port is not a number".to_owned());
    }
    match port.parse::<u16>() {
        Ok(0) => Err("nothing can listen on port 0".to_owned()),
        Ok(port) => Ok((host.to_owned(), port)),
        Err(_) => Err("ports end at 65535".to_owned()),
    }
}

/// Returns the text for messages: truncated, without control characters.
pub(crate) fn shown(text: &str) -> String {
    const MOST: usize = 80;
    let mut out = String::new();
    for letter in text.chars().take(MOST) {
        if letter.is_control() {
            let _ = write!(out, "{}", letter.escape_default());
        } else {
            out.push(letter);
        }
    }
    if text.chars().nth(MOST).is_some() {
        out.push('…');
    }
    out
}

fn folded(host: &str) -> String {
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn bare(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for (url, host, port) in [
            ("localhost:9012", "localhost", 9012),
            ("127.0.0.1:1", "127.0.0.1", 1),
            ("[::1]:65535", "::1", 65535),
            ("grpc://node-7.cluster_a:9012", "node-7.cluster_a", 9012),
            ("HTTP://localhost:9012/", "localhost", 9012),
        ] {
            assert_eq!(parse(url), Ok((host.to_owned(), port)), "{url}");
        }
        let long = format!("{}:1", "a".repeat(254));
        let endless = format!("{}:1", "a".repeat(1_000_000));
        for url in [
            "",
            "localhost",
            "9012",
            "localhost:",
            "localhost:0",
            "localhost:00",
            "localhost:65536",
            "localhost:99999999999999999999",
            "localhost:+1",
            "localhost:-1",
            "localhost:9012/path",
            "localhost:9012:9013",
            ":9012",
            "::1:9012",
            "[::1]",
            "[::1]9012",
            "[::1:9012",
            "[localhost]:9012",
            "[fe80::1%eth0]:9012",
            "file:///etc/passwd",
            "file:/etc/passwd",
            "unix:/run/a.sock",
            "https://localhost:9012",
            "gopher://localhost:70",
            "user@localhost:9012",
            "local host:9012",
            "localhost\r\nX: 1:9012",
            "localhost%00:9012",
            "ｌocalhost:9012",
            &long,
            &endless,
        ] {
            assert!(parse(url).is_err(), "{}", shown(url));
        }
    }

    #[test]
    fn where_a_name_leads_decides() {
        let allowed = Allowed::new(&[
            "Trainer.lan.".to_owned(),
            "10.0.0.7".to_owned(),
            "[2001:db8::7]".to_owned(),
        ]);
        for (host, address, permitted) in [
            ("localhost", "127.0.0.1", true),
            ("localhost", "127.9.9.9", true),
            ("localhost", "::1", true),
            ("anything", "::ffff:127.0.0.1", true),
            ("localhost", "10.0.0.8", false),
            ("localhost.evil.example", "192.0.2.1", false),
            ("trainer.lan", "10.1.1.1", true),
            ("TRAINER.LAN.", "10.1.1.1", true),
            ("x.trainer.lan", "10.1.1.1", false),
            ("10.0.0.7", "10.0.0.7", true),
            ("any.name", "10.0.0.7", true),
            ("any.name", "::ffff:10.0.0.7", true),
            ("2001:db8::7", "2001:db8::7", true),
            ("2001:db8::8", "2001:db8::8", false),
            // An allowed name that turns to a machine's credentials, or to no machine.
            ("trainer.lan", "169.254.169.254", false),
            ("trainer.lan", "::ffff:169.254.169.254", false),
            ("trainer.lan", "fd00:ec2::254", false),
            ("trainer.lan", "fe80::1", false),
            ("trainer.lan", "0.0.0.0", false),
            ("trainer.lan", "::", false),
            ("trainer.lan", "224.0.0.1", false),
            ("trainer.lan", "255.255.255.255", false),
            ("169.254.169.254", "169.254.169.254", false),
            ("0.0.0.0", "0.0.0.0", false),
        ] {
            let at = address.parse().unwrap();
            assert_eq!(allowed.permits(host, at), permitted, "{host} at {address}");
        }
        let named = Allowed::new(&["169.254.169.254".to_owned()]);
        assert!(named.permits("x", "169.254.169.254".parse().unwrap()));
    }

    #[test]
    fn shown_addresses_are_truncated_and_escaped() {
        assert_eq!(shown("a\u{1b}[31m:1"), "a\\u{1b}[31m:1");
        assert_eq!(shown(&"x".repeat(1000)).chars().count(), 81);
    }
}
