//! The server, asked as its clients ask it (without a socket, except where sockets are the point).

#![allow(
    clippy::unwrap_used,
    clippy::format_push_string,
    reason = "helpers of tests are tests too; they fail where they stand"
)]

mod caching;
mod capturing;
mod event_context;
mod exchanges;
mod exporting;
mod graph;
mod importing;
mod json;
mod live;
mod perfetto_link;
mod queries;
mod real;
mod safety;
mod snapshots;
mod socket;
#[cfg(unix)]
mod sql;
mod support;
mod timeline;
mod viewer;
