//! What the collectors of CUDA devices (`stepscope-cupti`) and of AMD devices (`stepscope-rocm`) have in common: when a
//! process is recorded, the file, the planes in it, and the report for `stepscope run`.
//!
//! ```text
//! vendor's library ──records──► collector's crate ──RecordedWork, Call──► planes.rs ──planes──► recorder.rs ──► CollectorFile
//!                               (fields, names)                   (lines)               (when, where)   (crate stepscope)
//! ```
//!
//! **Invariant:** the program runs as without the collector, whatever fails here: nothing here prints, panics into the
//! vendor's library, or ends the program.

mod calls;
mod library;
mod planes;
mod recorder;
mod recording;
mod settings;

pub use calls::recorded_call;
pub use library::{Demangler, LoadScope, find, function, open, package_folders, system_mappings};
pub use planes::{Call, DeviceFacts, DeviceSync, PlaneLine, Planes, Range, RecordedWork};
pub use recorder::{Delivery, DeviceApi, DeviceRecorder, Vendor, export_begin, export_path};
pub use settings::Settings;
