//! Parsing of program addresses.
//!
//! ```text
//! host:port   [v6]:port   port   :port   grpc://host:port      several: separated by commas
//! ```
//!
//! An address comes from a command line or a web page. Its length is checked before it is parsed,
//! its characters must be valid in a host name, and messages quote only a short part of an invalid
//! one.

use std::fmt;

/// Longest name of a host, as in the DNS.
const MAX_HOST_BYTES: usize = 253;
/// Maximum number of characters of an invalid address in a message.
const MAX_ECHO_CHARS: usize = 64;
/// Longest stem of a file name: suffixes and a temporary name must fit into 255 bytes.
const MAX_STEM_BYTES: usize = 180;

/// Host and port of a program that listens for clients.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    host: String,
    port: u16,
}

impl Address {
    /// Parses one address. The error states the cause without the address.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        // The prefix `grpc://` and the brackets of IPv6 are the longest additions to a host.
        if text.len() > MAX_HOST_BYTES + 32 {
            return Err("it is longer than any host's name");
        }
        let rest = text.strip_prefix("grpc://").unwrap_or(text);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if rest.contains("://") {
            return Err("only host:port and grpc://host:port are understood");
        }
        let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
            let (host, after) = inner
                .split_once(']')
                .ok_or("the bracket of the IPv6 address is not closed")?;
            let port = after
                .strip_prefix(':')
                .ok_or("the port is missing, as in [::1]:9012")?;
            if !host.contains(':') || !host.bytes().all(is_v6_byte) {
                return Err("the brackets hold no IPv6 address");
            }
            (host, port)
        } else {
            match rest.rsplit_once(':') {
                None if rest.bytes().all(|byte| byte.is_ascii_digit()) => ("", rest),
                None => return Err("the port is missing, as in localhost:9012"),
                Some((host, _)) if host.contains(':') => {
                    return Err("an IPv6 address stands in brackets, as in [::1]:9012");
                }
                Some((host, port)) => (host, port),
            }
        };
        let port = match port.parse::<u16>() {
            _ if port.starts_with('+') => return Err("the port is no number"),
            Ok(0) => return Err("port 0 is no port to connect to"),
            Ok(port) => port,
            Err(_) if port.is_empty() => {
                return Err("the port is missing, as in localhost:9012");
            }
            Err(_) if port.bytes().all(|byte| byte.is_ascii_digit()) => {
                return Err("ports end at 65535");
            }
            Err(_) => return Err("the port is no number"),
        };
        let host = if host.is_empty() { "localhost" } else { host };
        if host.len() > MAX_HOST_BYTES {
            return Err("it is longer than any host's name");
        }
        if !host.contains(':') && !host.bytes().all(is_name_byte) {
            return Err("a host's name has letters, digits, dots and hyphens");
        }
        Ok(Self {
            host: host.to_ascii_lowercase(),
            port,
        })
    }

    /// Host name or IP address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// TCP port, never 0.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the stem of this address's file names: `localhost_9012`, as in all clients of the
    /// protocol.
    pub fn file_stem(&self) -> String {
        let shown: String = self
            .to_string()
            .chars()
            .filter(|letter| !matches!(letter, '[' | ']'))
            .map(|letter| match letter {
                ':' | '%' => '_',
                other => other,
            })
            .collect();
        // A leading dot would hide the file.
        let shown = match shown.strip_prefix('.') {
            Some(rest) => format!("_{rest}"),
            None => shown,
        };
        if shown.len() <= MAX_STEM_BYTES {
            return shown;
        }
        // FNV-1a of the full name, so that long names with a common prefix stay distinct.
        let hash = shown.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let head = shown.get(..MAX_STEM_BYTES - 17).unwrap_or_default();
        format!("{head}_{hash:016x}")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(out, "[{}]:{}", self.host, self.port)
        } else {
            write!(out, "{}:{}", self.host, self.port)
        }
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_')
}

fn is_v6_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b':' | b'.' | b'%' | b'-' | b'_')
}

/// Returns the start of an invalid text, without control characters that affect a terminal.
pub(crate) fn echo(text: &str) -> String {
    let mut shown: String = text
        .trim()
        .chars()
        .take(MAX_ECHO_CHARS)
        .map(|letter| {
            if letter.is_control() {
                '\u{fffd}'
            } else {
                letter
            }
        })
        .collect();
    if text.trim().chars().nth(MAX_ECHO_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Result<String, &'static str> {
        Address::parse(text).map(|address| address.to_string())
    }

    #[test]
    fn every_way_to_type_an_address() {
        for (typed, meant) in [
            ("localhost:9012", "localhost:9012"),
            (" tpu-vm-3.example:8466 ", "tpu-vm-3.example:8466"),
            ("LocalHost:9012", "localhost:9012"),
            ("9012", "localhost:9012"),
            (":9012", "localhost:9012"),
            ("grpc://10.0.0.7:9012", "10.0.0.7:9012"),
            ("grpc://10.0.0.7:9012/", "10.0.0.7:9012"),
            ("[::1]:9012", "[::1]:9012"),
            ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1"),
        ] {
            assert_eq!(shown(typed).as_deref(), Ok(meant), "{typed}");
        }
    }

    #[test]
    fn invalid_addresses_are_refused_with_the_reason() {
        for (typed, reason) in [
            ("", "the port is missing, as in localhost:9012"),
            ("localhost", "the port is missing, as in localhost:9012"),
            ("localhost:", "the port is missing, as in localhost:9012"),
            ("localhost:0", "port 0 is no port to connect to"),
            ("localhost:65536", "ports end at 65535"),
            ("localhost:9012a", "the port is no number"),
            ("localhost:+9", "the port is no number"),
            ("localhost:-1", "the port is no number"),
            (
                "::1:9012",
                "an IPv6 address stands in brackets, as in [::1]:9012",
            ),
            ("[::1]", "the port is missing, as in [::1]:9012"),
            ("[::1:9012", "the bracket of the IPv6 address is not closed"),
            ("[name]:9012", "the brackets hold no IPv6 address"),
            (
                "http://x:1",
                "only host:port and grpc://host:port are understood",
            ),
            (
                "file:///etc/passwd",
                "only host:port and grpc://host:port are understood",
            ),
            (
                "a b:1",
                "a host's name has letters, digits, dots and hyphens",
            ),
            (
                "../../x:1",
                "a host's name has letters, digits, dots and hyphens",
            ),
            (
                "x\0:1",
                "a host's name has letters, digits, dots and hyphens",
            ),
        ] {
            assert_eq!(shown(typed), Err(reason), "{typed:?}");
        }
        let long = format!("{}:1", "x".repeat(1 << 20));
        assert_eq!(shown(&long), Err("it is longer than any host's name"));
        assert!(echo(&long).chars().count() <= 65);
        assert_eq!(echo("a\x1b[31m"), "a\u{fffd}[31m");
    }

    #[test]
    fn files_are_called_as_other_clients_call_them() {
        let stem = |text| Address::parse(text).unwrap().file_stem();
        assert_eq!(stem("localhost:9012"), "localhost_9012");
        assert_eq!(stem("[::1]:9012"), "__1_9012");
        assert_eq!(stem("..:1"), "_._1");
        let (a, b) = ("x".repeat(240) + "a:1", "x".repeat(240) + "b:1");
        assert!(stem(&a).len() <= MAX_STEM_BYTES);
        assert_ne!(stem(&a), stem(&b));
    }
}
