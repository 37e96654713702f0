//! Sends large responses.
//!
//! A response of hundreds of megabytes is sent from the buffer that the recorder filled, without a
//! copy: the service returns the small fields and attaches the large field as a [`Payload`].

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use http_body::Frame;
use tonic::Status;
use tonic::codegen::Bytes;
use tonic::codegen::http::{HeaderMap, HeaderValue};

/// The large field of a response, and the encoded fields before it.
#[derive(Clone, Debug)]
pub(super) struct Payload {
    /// The message up to the large field, with that field's key and length.
    pub(super) head: Bytes,
    /// The large field's content.
    pub(super) content: Bytes,
    /// Reserved memory, released when the response has been sent.
    pub(super) reserved: Arc<Reserved>,
}

/// Reserved bytes of memory for responses that have not been sent.
#[derive(Debug)]
pub(super) struct Reserved {
    pub(super) bytes: usize,
    pub(super) of: Arc<AtomicUsize>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// A gRPC message in two pieces, then the trailers with the status OK. Drops its guard when the body has
/// been sent.
pub(super) struct PayloadBody<G> {
    pieces: [Bytes; 2],
    trailers: Option<HeaderMap>,
    _reserved: Arc<Reserved>,
    _held: G,
}

impl<G> PayloadBody<G> {
    pub(super) fn new(payload: Payload, held: G) -> Self {
        let length = payload.head.len() + payload.content.len();
        let mut first = Vec::with_capacity(5 + payload.head.len());
        // Not compressed.
        first.push(0);
        // The service limits responses to far below 4 GiB.
        first.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
        first.extend_from_slice(&payload.head);
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static("0"));
        Self {
            pieces: [first.into(), payload.content],
            trailers: Some(trailers),
            _reserved: payload.reserved,
            _held: held,
        }
    }
}

impl<G: Unpin> http_body::Body for PayloadBody<G> {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        for piece in &mut self.pieces {
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(std::mem::take(piece)))));
            }
        }
        Poll::Ready(
            self.trailers
                .take()
                .map(|trailers| Ok(Frame::trailers(trailers))),
        )
    }
}
