//! Limits connections, so that a flood cannot exclude other clients.
//!
//! If the limit is reached, a new connection replaces the idle connection that has been silent
//! longest. There are no timers: without traffic the thread does not wake up.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Sleep;
use tonic::codegen::tokio_stream::Stream;
use tonic::transport::server::Connected;

use super::os::ParentsOnly;

/// Maximum number of connections.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// Maximum number of closed connections whose socket is not released yet; above it, new connections
/// wait.
const MAX_CLOSING: usize = 64;

/// Number of task switches that new connections wait for released sockets; then they are rejected.
const MAX_TURNS: u32 = 1_000;

/// How long no connection is accepted after the process ran out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// All connections.
#[derive(Debug, Default)]
struct Table {
    /// Event counter: orders connections by their last activity without a clock.
    moment: AtomicU64,
    places: Mutex<Vec<Arc<ConnectionState>>>,
}

/// State of one connection, shared by its requests and the table.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Address of the client.
    pub(super) peer: SocketAddr,
    /// Value of the event counter at the last read or write.
    last: AtomicU64,
    /// Number of requests in progress.
    busy: AtomicU32,
    /// Number of requests with a permit.
    pub(super) admitted: AtomicU32,
    closing: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

/// Prevents a connection from being replaced.
#[derive(Debug)]
pub(super) struct Busy(Arc<ConnectionState>);

impl Busy {
    pub(super) fn new(place: Arc<ConnectionState>) -> Self {
        place.busy.fetch_add(1, Ordering::Relaxed);
        Self(place)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Table {
    /// Adds a connection; replaces the connection that has been silent longest if the table is
    /// full. `None` if all connections have requests in progress.
    fn admit(&self, peer: SocketAddr) -> Option<Arc<ConnectionState>> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let closing = |place: &Arc<ConnectionState>| place.closing.load(Ordering::Relaxed);
        let leaving = places.iter().filter(|place| closing(place)).count();
        if places.len() - leaving >= MAX_CONNECTIONS {
            if leaving >= MAX_CLOSING {
                return None;
            }
            let silent = places
                .iter()
                .filter(|place| !closing(place) && place.busy.load(Ordering::Relaxed) == 0)
                .min_by_key(|place| place.last.load(Ordering::Relaxed))?;
            silent.close();
        }
        let place = Arc::new(ConnectionState {
            peer,
            last: AtomicU64::new(self.now()),
            busy: AtomicU32::new(0),
            admitted: AtomicU32::new(0),
            closing: AtomicBool::new(false),
            reader: Mutex::new(None),
        });
        places.push(Arc::clone(&place));
        Some(place)
    }

    /// Returns whether new connections must wait until closed ones are released.
    fn is_crowded(&self) -> bool {
        let places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.len() >= MAX_CONNECTIONS + MAX_CLOSING
    }

    fn now(&self) -> u64 {
        self.moment.fetch_add(1, Ordering::Relaxed)
    }

    fn leave(&self, place: &Arc<ConnectionState>) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        places.retain(|other| !Arc::ptr_eq(other, place));
    }
}

impl ConnectionState {
    fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        let reader = self
            .reader
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// Stream of accepted connections.
pub(super) struct Incoming {
    listener: TcpListener,
    /// Registration of the listener.
    _parents_only: ParentsOnly,
    table: Arc<Table>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Task switches since the last accepted connection.
    turns: u32,
}

impl Incoming {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self {
            _parents_only: ParentsOnly::note(&listener),
            listener,
            table: Arc::default(),
            pause: None,
            turns: 0,
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(pause) = &mut self.pause {
                std::task::ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            // This task shares its thread with the tasks that close connections.
            if self.turns < MAX_TURNS && self.table.is_crowded() {
                self.turns += 1;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            match std::task::ready!(self.listener.poll_accept(context)) {
                Ok((stream, peer)) => {
                    self.turns = 0;
                    let Some(place) = self.table.admit(peer) else {
                        continue;
                    };
                    let _ = stream.set_nodelay(true);
                    return Poll::Ready(Some(Ok(Connection {
                        _parents_only: ParentsOnly::note(&stream),
                        stream,
                        place,
                        table: Arc::clone(&self.table),
                    })));
                }
                Err(error) if out_of_resources(&error) => {
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
                // The client has already disconnected.
                Err(_) => {}
            }
        }
    }
}

fn out_of_resources(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM)
    )
}

/// A connection that can be closed in favour of another one.
pub(super) struct Connection {
    /// Registration of the stream; dropped before it.
    _parents_only: ParentsOnly,
    stream: TcpStream,
    place: Arc<ConnectionState>,
    table: Arc<Table>,
}

impl Connected for Connection {
    type ConnectInfo = Arc<ConnectionState>;

    fn connect_info(&self) -> Self::ConnectInfo {
        Arc::clone(&self.place)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.table.leave(&self.place);
    }
}

impl Connection {
    fn moved(&self) {
        self.place.last.store(self.table.now(), Ordering::Relaxed);
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        {
            let mut reader = self
                .place
                .reader
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            match &mut *reader {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
        }
        // After the waker is stored, so that a concurrent close is not missed.
        if self.place.closing.load(Ordering::Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.moved();
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.moved();
        }
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        if matches!(written, Poll::Ready(Ok(1..))) {
            self.moved();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    #[test]
    fn the_longest_silent_makes_room() {
        let table = Table::default();
        let places: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|port| table.admit(peer(u16::try_from(port).unwrap())).unwrap())
            .collect();
        let serving = Busy::new(Arc::clone(&places[0]));
        places[1].last.store(table.now(), Ordering::Relaxed);
        assert!(table.admit(peer(9_000)).is_some());
        let closing = |at: usize| places[at].closing.load(Ordering::Relaxed);
        assert_eq!(
            (closing(0), closing(1), closing(2), closing(3)),
            (false, false, true, false)
        );
        drop(serving);
        assert!(table.admit(peer(9_001)).is_some());
        assert!(closing(0));
    }

    #[test]
    fn nobody_is_thrown_out_while_being_served() {
        let table = Table::default();
        let places: Vec<_> = (0..MAX_CONNECTIONS)
            .map(|_| table.admit(peer(1)).unwrap())
            .collect();
        let serving: Vec<_> = places
            .iter()
            .map(|place| Busy::new(Arc::clone(place)))
            .collect();
        assert!(table.admit(peer(2)).is_none());
        drop(serving);
        assert!(table.admit(peer(2)).is_some());
    }

    #[test]
    fn those_that_are_closing_are_bounded_too() {
        let table = Table::default();
        let admitted = (0..10_000)
            .filter(|_| table.admit(peer(1)).is_some())
            .count();
        assert_eq!(admitted, MAX_CONNECTIONS + MAX_CLOSING);
    }
}
