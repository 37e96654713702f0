//! A run, or a range of it, as a file to download.
//!
//! The file is sent while it is written: a thread emits the trace into a writer, whose bytes go
//! through a bounded queue to the connection. When the client disconnects, the thread stops. A
//! failed write closes the connection, so that a truncated file is not mistaken for a complete one.

use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use stepscope_analysis::parallel::Cancel;
use stepscope_engine::{BoundedWriter, RowFormat, most_exported_bytes, write_rows};
use stepscope_formats::chrome_json::ChromeSink;
use stepscope_formats::perfetto::PerfettoSink;
use stepscope_model::{
    Dur, EventSink, FlowBind, InstantIn, SliceFlow, SliceIn, Time, TrackId, forward_to_sink,
};
use stepscope_report::reports::{Options, ReportError};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::problem::Problem;
use crate::reply::{CancelOnDrop, RunRequest};
use crate::routes::stats::MAX_ROWS;
use crate::state::State;
use crate::view::RunView;

/// Maximum number of queued chunks.
const CHUNKS: usize = 8;
/// Size of a chunk.
const CHUNK_BYTES: usize = 64 << 10;
/// Default number of table rows in the HTML page.
const DEFAULT_ROWS: usize = 200;

#[derive(Clone, Copy)]
enum Format {
    Chrome,
    Perfetto,
    Rows(RowFormat),
    Html,
}

impl Format {
    /// Returns the file extension.
    const fn ending(self) -> &'static str {
        match self {
            Self::Chrome => ".trace.json",
            Self::Perfetto => ".pftrace",
            Self::Rows(RowFormat::Csv) => ".csv",
            Self::Rows(RowFormat::Parquet) => ".parquet",
            Self::Html => ".html",
        }
    }

    const fn media_type(self) -> &'static str {
        match self {
            Self::Chrome => "application/json",
            Self::Perfetto => "application/octet-stream",
            Self::Rows(RowFormat::Csv) => "text/csv; charset=utf-8",
            Self::Rows(RowFormat::Parquet) => "application/vnd.apache.parquet",
            Self::Html => "text/html; charset=utf-8",
        }
    }
}

/// `GET /runs/{run}/export`
pub(super) async fn export(Shared(state): Shared<Arc<State>>, request: RunRequest) -> Response {
    match try_export(&state, &request).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn try_export(state: &Arc<State>, request: &RunRequest) -> Result<Response, Problem> {
    let run = state.runs.open(&request.id).await?;
    let params = &request.params;
    params.required("format")?;
    let format = params.choice(
        "format",
        &[
            ("perfetto", Format::Perfetto),
            ("chrome", Format::Chrome),
            ("csv", Format::Rows(RowFormat::Csv)),
            ("parquet", Format::Rows(RowFormat::Parquet)),
            ("html", Format::Html),
        ],
    )?;
    let top = params.number("top", DEFAULT_ROWS, 1..=MAX_ROWS)?;
    let shared = Arc::clone(state);
    let view = tokio::task::spawn_blocking(move || shared.runs.view(run)).await;
    let view = view.map_err(|error| Problem::internal(error.to_string()))?;
    let limited = params.text("t0").is_some() || params.text("t1").is_some();
    let window = limited.then(|| params.window(&view)).transpose()?;

    let name = file_name(&view, format);
    let body = if matches!(format, Format::Html) {
        Body::from(page(state, view, window, top).await?)
    } else {
        let (sender, receiver) = mpsc::channel(CHUNKS);
        // Ends when the file is complete or the client has disconnected.
        let large = params.text("large") == Some("1");
        tokio::task::spawn_blocking(move || write(&view, format, window, large, &sender));
        Body::from_stream(ReceiverStream::new(receiver))
    };
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(format.media_type()),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if let Ok(disposition) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    Ok(response)
}

/// Returns the run's id with the extension of the format, without characters that are unsafe in
/// file names or headers.
fn file_name(view: &RunView, format: Format) -> String {
    let plain = |letter: &char| letter.is_ascii_alphanumeric() || "._-".contains(*letter);
    let name: String = view.run.id.chars().filter(plain).take(120).collect();
    let stem = name.trim_end_matches(".json").trim_end_matches(".trace");
    format!("{}{}", stem.trim_start_matches('.'), format.ending())
}

/// Returns every report of the run as one HTML page. Stops if the request is cancelled.
async fn page(
    state: &Arc<State>,
    view: RunView,
    window: Option<Range<Time>>,
    top: usize,
) -> Result<String, Problem> {
    let options = Options {
        top,
        range: window,
        ..Options::default()
    };
    let cancel = Arc::new(Cancel::default());
    let _stop = CancelOnDrop(Arc::clone(&cancel));
    let permit = Arc::clone(&state.permits).acquire_owned().await;
    let made = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        view.run.page(&[], &options, &cancel)
    });
    let made = made
        .await
        .map_err(|error| Problem::internal(error.to_string()))?;
    made.map_err(|error| match error {
        ReportError::Cancelled => stepscope_model::Cancelled.into(),
        ReportError::Damaged => Problem::damaged_import(),
        error => Problem::internal(error.to_string()),
    })
}

type Chunk = io::Result<Bytes>;

fn write(
    view: &RunView,
    format: Format,
    window: Option<Range<Time>>,
    large: bool,
    sender: &mpsc::Sender<Chunk>,
) {
    let gone = Arc::new(Cancel::default());
    let out = ChunkWriter {
        sender: sender.clone(),
        gone: Arc::clone(&gone),
        chunk: Vec::with_capacity(CHUNK_BYTES),
    };
    let trace = &view.run.trace;
    let read_bytes = trace.files().iter().map(|file| file.spec.bytes);
    let most = if large {
        u64::MAX
    } else {
        most_exported_bytes(read_bytes.fold(0, u64::saturating_add))
    };
    let out = BoundedWriter::new(out, most);
    let written = match format {
        Format::Chrome => {
            let mut sink = ClippedSink::new(ChromeSink::new(out), window, gone);
            trace.replay_into(&mut sink);
            sink.into.finish().map(drop)
        }
        Format::Perfetto => {
            let mut sink = ClippedSink::new(PerfettoSink::new(out), window, gone);
            trace.replay_into(&mut sink);
            sink.into.finish().map(drop)
        }
        Format::Rows(rows) => write_rows(trace, window.as_ref(), rows, out).map(drop),
        // `page` has already written it.
        Format::Html => Ok(()),
    };
    let written = written.and_then(|()| {
        if trace.is_damaged() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(())
    });
    if let Err(error) = written {
        // An error only means that the client has disconnected.
        let _ = sender.blocking_send(Err(error));
    }
}

/// Writer that sends bytes in chunks.
struct ChunkWriter {
    sender: mpsc::Sender<Chunk>,
    gone: Arc<Cancel>,
    chunk: Vec<u8>,
}

impl Write for ChunkWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.chunk.extend_from_slice(bytes);
        if self.chunk.len() >= CHUNK_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.chunk.is_empty() {
            return Ok(());
        }
        let chunk = Bytes::from(std::mem::take(&mut self.chunk));
        if self.sender.blocking_send(Ok(chunk)).is_err() {
            self.gone.cancel();
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        Ok(())
    }
}

/// Sink that forwards events that overlap the window; drops all events once the client has
/// disconnected.
struct ClippedSink<S> {
    into: S,
    window: Option<Range<Time>>,
    gone: Arc<Cancel>,
}

impl<S> ClippedSink<S> {
    fn new(into: S, window: Option<Range<Time>>, gone: Arc<Cancel>) -> Self {
        Self { into, window, gone }
    }

    fn takes(&self, start: Time, dur: Dur) -> bool {
        let inside = self.window.as_ref().is_none_or(|window| {
            let end = start.saturating_add(dur);
            start < window.end && (end > window.start || start == window.start)
        });
        inside && self.gone.check().is_ok()
    }
}

impl<S: EventSink> EventSink for ClippedSink<S> {
    forward_to_sink!(into: epoch name track describe source module fact diagnose);

    fn slice(&mut self, track: TrackId, slice: SliceIn<'_>) {
        if self.takes(slice.start, slice.dur) {
            self.into.slice(track, slice);
        }
    }

    fn instant(&mut self, track: TrackId, instant: InstantIn) {
        if self.takes(instant.at, Dur::ZERO) {
            self.into.instant(track, instant);
        }
    }

    fn counter(&mut self, track: TrackId, at: Time, value: f64) {
        if self.takes(at, Dur::ZERO) {
            self.into.counter(track, at, value);
        }
    }

    fn flow(&mut self, track: TrackId, at: Time, flow: SliceFlow, bind: FlowBind) {
        if self.takes(at, Dur::ZERO) {
            self.into.flow(track, at, flow, bind);
        }
    }

    fn fork(&self) -> Self {
        Self {
            into: self.into.fork(),
            window: self.window.clone(),
            gone: Arc::clone(&self.gone),
        }
    }

    fn merge(&mut self, fork: Self) {
        self.into.merge(fork.into);
    }
}
