//! The door: at most so many connections at once, and a flood cannot shut others out.
//!
//! When all places are taken, the connection that has been silent for longest and serves no request
//! is closed for the newcomer. No timer runs: without traffic nothing wakes up.

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

/// Most connections at once.
pub(super) const MAX_CONNECTIONS: usize = 256;

/// Closed connections whose socket is not yet given back; beyond it newcomers wait, ...
const MAX_CLOSING: usize = 64;

/// ... while the other tasks have had so many turns to give it back; then they are turned away.
const MAX_TURNS: u32 = 1_000;

/// How long no connection is taken after the process ran out of file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// All connections.
#[derive(Debug, Default)]
struct Table {
    /// Counts what happens, so that the longest silent is known without a clock.
    moment: AtomicU64,
    places: Mutex<Vec<Arc<ConnectionState>>>,
}

/// One connection, as requests and the door see it.
#[derive(Debug)]
pub(super) struct ConnectionState {
    /// Who is at the other end.
    pub(super) peer: SocketAddr,
    /// When bytes last went either way.
    last: AtomicU64,
    /// Requests that are being served.
    busy: AtomicU32,
    /// Requests that hold a place among those of all connections.
    pub(super) admitted: AtomicU32,
    closing: AtomicBool,
    reader: Mutex<Option<Waker>>,
}

/// Keeps a connection from being closed for a newcomer.
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
    /// A place for a newcomer, if need be by closing the connection that has been silent for
    /// longest. `None` when all of them are serving requests.
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

    /// Whether those that were closed must go before anybody else comes in.
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

/// Connections as they come in.
pub(super) struct Incoming {
    listener: TcpListener,
    /// Of the listener.
    _parents_only: ParentsOnly,
    table: Arc<Table>,
    pause: Option<Pin<Box<Sleep>>>,
    /// Turns that were given to others since a connection came in.
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
            // This task shares its thread with those that are to close.
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
                // The other end has gone already.
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

/// A connection that can be closed for another one.
pub(super) struct Connection {
    /// Of the stream; dropped before it.
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
        // After the waker is stored, so that a close in between is not missed.
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
