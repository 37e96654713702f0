//! The buckets of a step's time: their order, keys and names, for reports, SQL and the viewer.

macro_rules! buckets {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $key:literal, $label:literal, $title:literal; )+) => {
        /// Bucket of a step's time, in the order of the equation in [`breakdown`](super::breakdown).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum StepBucket {
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl StepBucket {
            /// All buckets in the order of the equation.
            pub const ALL: [Self; 7] = [$( Self::$variant, )+];

            /// Returns the name in data: the start of its keys.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $key, )+ }
            }

            /// Returns the name in sentences and legends.
            pub const fn label(self) -> &'static str {
                match self { $( Self::$variant => $label, )+ }
            }

            /// Returns the heading of its time.
            pub const fn title(self) -> &'static str {
                match self { $( Self::$variant => $title, )+ }
            }

            /// Returns the key of its time in nanoseconds.
            pub const fn ns_key(self) -> &'static str {
                match self { $( Self::$variant => concat!($key, "_ns"), )+ }
            }

            /// Returns the key of its share of the step.
            pub const fn share_key(self) -> &'static str {
                match self { $( Self::$variant => concat!($key, "_share"), )+ }
            }

            /// Returns the key of its time beyond that of a typical step, in nanoseconds.
            pub const fn excess_ns_key(self) -> &'static str {
                match self { $( Self::$variant => concat!($key, "_excess_ns"), )+ }
            }

            /// Returns the heading of its time beyond that of a typical step.
            pub const fn excess_title(self) -> &'static str {
                match self { $( Self::$variant => concat!("More ", $label), )+ }
            }
        }
    };
}

buckets! {
    /// Computation.
    Compute = "compute", "compute", "Compute";
    /// Communication without concurrent computation.
    ExposedCommunication = "exposed_communication", "exposed communication", "Exposed communication";
    /// Copies without concurrent computation or communication.
    ExposedCopy = "exposed_copy", "exposed copies", "Exposed copies";
    /// The step's thread fetches its input.
    Input = "input", "input wait", "Input wait";
    /// Compilation.
    Compile = "compile", "compilation", "Compilation";
    /// Other activity of the step's thread.
    Host = "host", "host time", "Host time";
    /// Time without a recorded event.
    Idle = "idle", "idle time", "Idle time";
}

impl StepBucket {
    /// Returns the bucket of a name in data.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|bucket| bucket.as_str() == name)
    }

    /// Returns whether its owners are operations that did the work, not the thread of the step.
    pub const fn is_work(self) -> bool {
        matches!(
            self,
            Self::Compute | Self::ExposedCommunication | Self::ExposedCopy
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_bucket_agree() {
        for bucket in StepBucket::ALL {
            let key = bucket.as_str();
            assert_eq!(StepBucket::from_name(key), Some(bucket));
            assert_eq!(bucket.ns_key(), format!("{key}_ns"));
            assert_eq!(bucket.title().to_lowercase(), bucket.label());
            assert_eq!(bucket.excess_title(), format!("More {}", bucket.label()));
        }
    }
}
