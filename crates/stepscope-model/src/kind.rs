//! What a slice is about, for colour and for grouping.
//!
//! The kind is a reading of names and categories, not something that files hold. It decides the
//! colour of a slice in the viewer and the first split of an analysis; it never changes a number.

#[cfg(test)]
mod tests;
mod words;

use crate::track::TrackKind;
use crate::vocabulary::kineto::Category;
use words::{HLO_WORDS, HOST, LABELS, MAX_BYTES, RUNTIME_CALLS, WORK, contains, find};

macro_rules! kinds {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $value:literal, $label:literal; )+) => {
        /// What a slice is about. The numbers are part of the HTTP interface.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum SliceKind {
            $( $(#[doc = $doc])+ $variant = $value, )+
            /// None of the others.
            #[default]
            Other = 0,
        }

        impl SliceKind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[Self::Other, $( Self::$variant, )+];

            /// The words on the legend.
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
    /// Element-wise work and reductions.
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
    /// Labels that the user put there, steps among them.
    UserLabel = 11, "user label";
    /// Waiting and synchronising.
    Wait = 12, "wait, sync";
}

impl SliceKind {
    /// Reads the kind off a slice's name, its category and its track.
    ///
    /// Rules, first match wins: what the category says for sure (`kernel`, `python_function`,
    /// `user_annotation`, runtime calls, copies), then the kind of track, then words in the name.
    /// Letters of either case are the same; of a long name the first 512 bytes are looked at.
    /// Allocates nothing. Costs some microseconds, so callers remember the answer per name.
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

/// `%copy-start.4` of `%copy-start.4 = (f32[5,1024]{1,0}, ...) copy-start(...)`.
fn hlo_name(name: &str) -> &str {
    if name.starts_with('%') {
        name.split_once(" = ").map_or(name, |(head, _)| head)
    } else {
        name
    }
}

/// On a host thread, without a category that says more.
fn host(name: &str) -> SliceKind {
    // XLA's CPU threads show the instructions that they run, and when they end.
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

/// Programs label their parts in small letters (`train_step`, `data prep`); runtimes name theirs
/// like types and functions of C++.
fn is_label(name: &str) -> bool {
    name.starts_with(|first: char| first.is_lowercase())
        && !name.contains(|letter: char| letter.is_uppercase())
}
