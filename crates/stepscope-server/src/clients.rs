//! Limits the connections per client, so that one client cannot use all of them.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use tokio::net::TcpStream;

use crate::problem::Problem;

/// Number of low bits of an IPv6 address that belong to one client's network.
const HOST_BITS: u32 = 64;

/// Connection counts by client.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One counted connection of a client; dropping it decrements the count.
#[derive(Debug)]
pub(crate) struct ClientPlace {
    clients: Clients,
    client: IpAddr,
}

impl Clients {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            counts: Arc::default(),
        }
    }

    /// Counts a connection from this address; `None` if the client has reached its limit.
    pub(crate) fn admit(&self, address: IpAddr) -> Option<ClientPlace> {
        let client = client_of(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(client).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(ClientPlace {
            clients: self.clone(),
            client,
        })
    }
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let counts = &self.clients.counts;
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.client);
            }
        }
    }
}

/// Returns the address without its low bits, which its owner chooses freely.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = address.to_bits() >> HOST_BITS << HOST_BITS;
            Ipv6Addr::from_bits(network).into()
        }
        other => other,
    }
}

/// Rejects a connection above the limit, without reading its request.
pub(crate) fn refuse(stream: &TcpStream, most: usize) {
    let body = Problem::too_many_connections(most).to_json();
    let answer = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        StatusCode::TOO_MANY_REQUESTS,
        body.len()
    );
    // The socket buffer of a new connection holds the whole response; a failure means that the
    // client disconnected.
    let _ = stream.try_write(answer.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_takes_its_share_and_gives_it_back() {
        let clients = Clients::new(2);
        let admit = |text: &str| clients.admit(text.parse().unwrap());
        let first = admit("2001:db8::1").unwrap();
        let _second = admit("2001:db8::2").unwrap();
        assert!(admit("2001:db8::3").is_none(), "the same network");
        assert!(admit("2001:db8:0:1::3").is_some());
        assert!(admit("192.0.2.1").is_some());
        drop(first);
        assert!(admit("2001:db8::3").is_some());
        let _one = admit("192.0.2.9").unwrap();
        let _two = admit("::ffff:192.0.2.9").unwrap();
        assert!(
            admit("192.0.2.9").is_none(),
            "the same address in two forms"
        );
    }
}
