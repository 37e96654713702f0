//! How many connections each client has: one client cannot take all places.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use axum::http::StatusCode;
use tokio::net::TcpStream;

use crate::problem::Problem;

/// Bits of an IPv6 address that one client may choose freely.
const HOST_BITS: u32 = 64;

/// Connections by client.
#[derive(Clone, Debug)]
pub(crate) struct Clients {
    most: usize,
    counts: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One connection of a client. Dropping it gives the place back.
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

    /// Counts one more connection from this address; `None` when it has as many as it may have.
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

/// The address without the part that its owner chooses freely.
fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let network = address.to_bits() >> HOST_BITS << HOST_BITS;
            Ipv6Addr::from_bits(network).into()
        }
        other => other,
    }
}

/// Answers a connection that has no place, without waiting for its request.
pub(crate) fn refuse(stream: &TcpStream, most: usize) {
    let body = Problem::too_many_connections(most).to_json();
    let answer = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        StatusCode::TOO_MANY_REQUESTS,
        body.len()
    );
    // A new connection takes so few bytes at once; a client that is gone needs none.
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
