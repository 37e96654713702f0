//! The class of a slice, for colour and for grouping.
//!
//! The kind is inferred from names and categories; files do not contain it. It decides the colour
//! of a slice in the viewer and the first grouping of an analysis; it never changes a number.

#[cfg(test)]
mod tests;
mod words;

use crate::track::TrackKind;
use crate::vocabulary::kineto::Category;
use crate::vocabulary::torch_compile;
use words::{HLO_WORDS, HOST, LABELS, MAX_BYTES, RUNTIME_CALLS, WORK, contains, find};

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $value:literal, $label:literal; )+) => {
        /// The class of a slice. The numbers are part of the HTTP interface.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum SliceKind {
            $( $(#[doc = $doc])+ $variant = $value, )+
            /// No other kind matches.
            #[default]
            Other = 0,
        }

        impl SliceKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[Self::Other, $( Self::$variant, )+];

            /// Returns the label in the legend.
            pub const fn label(self) -> &'static str {
                match self { Self::Other => "other", $( Self::$variant => $label, )+ }
            }
        }
    };
}

kinds! {
    /// Matrix products and convolutions.
    MatMul = 1, "matmul, conv";
    /// Attention.
    Attention = 2, "attention";
    /// Fused computations.
    Fusion = 3, "fusion";
    /// Element-wise operations and reductions.
    Elementwise = 4, "element-wise, reduce";
    /// Copies and transfers, also memset.
    Copy = 5, "copy, transfer";
    /// Collective communication.
    Collective = 6, "collective";
    /// Host code, Python calls.
    Host = 7, "host, Python";
    /// Input pipeline.
    Input = 8, "input, data";
    /// Compilation.
    Compile = 9, "compile";
    /// Runtime calls and launches.
    Runtime = 10, "runtime, launch";
    /// Annotations by the user, including steps.
    UserLabel = 11, "user label";
    /// Waiting and synchronising.
    Wait = 12, "wait, sync";
}

impl SliceKind {
    /// Infers the kind of a slice from its name, its category and its track.
    ///
    /// The first match wins: unambiguous categories (`kernel`, `python_function`,
    /// `user_annotation`, runtime calls, copies), then the kind of track, then words in the name.
    /// Case is ignored, and only the first 512 bytes of a name are searched. Allocates nothing.
    /// Costs some microseconds, so callers cache the result per name.
    pub fn from_name(name: &str, category: &str, track: TrackKind) -> Self {
        let name = cut(name);
        match Category::from_name(category) {
            Some(Category::PythonFunction) => Self::Host,
            Some(Category::Memcpy | Category::Memset) => Self::Copy,
            Some(Category::DeviceSync) => Self::Wait,
            Some(Category::Annotation | Category::DeviceAnnotation) => {
                find(LABELS, name).unwrap_or(Self::UserLabel)
            }
            Some(Category::RuntimeCall | Category::Overhead) => {
                find(RUNTIME_CALLS, name).unwrap_or(Self::Runtime)
            }
            Some(Category::Operator | Category::HostInstant) => find(LABELS, name)
                .or_else(|| work(name))
                .unwrap_or(Self::Host),
            Some(
                Category::Kernel
                | Category::CounterRange
                | Category::Mtia
                | Category::MtiaWorkload
                | Category::MtiaInsight,
            ) => work(name).unwrap_or(Self::Other),
            None if matches!(
                category,
                torch_compile::CATEGORY | torch_compile::PHASE_CATEGORY
            ) =>
            {
                Self::Compile
            }
            Some(Category::DeviceEvent | Category::Counter) | None => match track {
                TrackKind::DeviceQueue => work(hlo_name(name)).unwrap_or(Self::Other),
                TrackKind::Steps => Self::UserLabel,
                _ => host(name),
            },
        }
    }
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_BYTES)]
}

fn work(name: &str) -> Option<SliceKind> {
    find(WORK, name)
}

/// Returns `%copy-start.4` of `%copy-start.4 = (f32[5,1024]{1,0}, ...) copy-start(...)`.
fn hlo_name(name: &str) -> &str {
    if name.starts_with('%') {
        name.split_once(" = ").map_or(name, |(head, _)| head)
    } else {
        name
    }
}

/// Returns the kind of a slice on a host thread whose category decides nothing.
fn host(name: &str) -> SliceKind {
    // XLA's CPU threads record the instructions that they run, and the end of each.
    let instruction = name.strip_prefix("end: ").unwrap_or(name);
    let base = instruction
        .split_once('.')
        .map_or(instruction, |(base, _)| base);
    if contains(base, "fusion") && !contains(base, "::") && !contains(base, "compil")
        || base.starts_with("wrapped_")
        || HLO_WORDS.contains(&base)
        || base.starts_with("void ")
    {
        return work(instruction).unwrap_or(SliceKind::Other);
    }
    if let Some(kind) = find(HOST, name) {
        return kind;
    }
    if is_label(name) {
        SliceKind::UserLabel
    } else {
        SliceKind::Host
    }
}

/// Returns whether a name looks like a user's annotation. Programs use lower case (`train_step`,
/// `data prep`); runtimes use names of C++ types and functions.
fn is_label(name: &str) -> bool {
    name.starts_with(|first: char| first.is_lowercase())
        && !name.contains(|letter: char| letter.is_uppercase())
}
