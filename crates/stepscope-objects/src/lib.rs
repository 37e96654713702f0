//! Objects of S3, Google Cloud Storage and Azure, and files of web servers, as files on this machine.
//!
//! ```text
//! URL -> Address -> Remote ── list ──> Listing of Objects ── fetch ──> file in the cache
//!                     │                                  └─ head ──> its first bytes
//!                     └ poll: has a folder changed?
//! file ── upload ──> object
//! ```
//! Reading order: [`Remote`] (one URL), [`Object`] (one object), then the modules below them: `address` (what a URL
//! names), `credentials` (who asks), `store` (requests to a cloud) with `connector` (bounds on answers), `web` (requests
//! to a web server), `listing`, `fetch`, `upload` with `stop`, `cache` (files on this machine), `runtime`.
//!
//! An object is fetched whole, once for each state that its `ETag` names, and is an ordinary file afterwards.
//!
//! **Invariant:** no name of an object leads out of the cache's folder. (`cache::tests`)
//! **Invariant:** an answer of any length takes bounded memory and disk. (`tests/it`)

mod address;
mod aws_profile;
mod cache;
mod connector;
mod credentials;
mod error;
mod fetch;
mod listing;
mod object;
mod remote;
mod runtime;
mod state;
mod stop;
mod store;
mod upload;
mod web;

pub use address::{is_object_url, without_secrets};
pub use credentials::Environment;
pub use error::{ObjectError, ObjectErrorKind};
pub use fetch::{fetch, fetch_all};
pub use listing::{Listing, NameEvidence, SkippedFolder};
pub use object::Object;
pub use remote::{POLL_INTERVAL, Remote};
pub use upload::{Upload, upload};
