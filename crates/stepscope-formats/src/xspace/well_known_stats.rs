//! Stats with a meaning: XProf's stats, and the ones that our writer adds.
//!
//! `XSpace` cannot express instants, categories, counters, track kinds, flows of any category, or
//! nested arguments. Our writer encodes them as stats that other readers show or ignore. Each is a
//! [`Role`] here, so that reader and writer agree. `docs/formats/xspace.md` has the table for other
//! implementers.
//!
//! A stat's metadata has a description; ours starts with [`WORDS`], followed by words:
//!
//! | word | the stats with this metadata |
//! |---|---|
//! | `hidden` | have their meaning, but are no arguments of the event |
//! | `arg` | are arguments, and have no meaning whatever their name |
//! | `bool` | are true or false, written as 1 or 0 |
//! | `json` | are nested values, written as JSON text |

use stepscope_model::{FlowDirection, SliceFlags, StepNumber};

/// Prefix of the descriptions of our stat metadata.
pub(crate) const WORDS: &str = "stepscope:";

/// Line whose events are counter samples, as XProf names it.
pub const COUNTERS_LINE: &str = "_counters_";
/// Plane with the start and stop of the profile.
pub(crate) const TASK_ENVIRONMENT: &str = "Task Environment";
/// Plane with the compiled programs.
pub(crate) const METADATA_PLANE: &str = "/host:metadata";
/// Plane of the host's threads.
pub const HOST_PLANE: &str = "/host:CPU";

macro_rules! roles {
    ($( $(#[doc = $doc:literal])+ $variant:ident = $name:literal, )+) => {
        /// The meaning of a stat.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub(crate) enum Role {
            /// An argument without a special meaning.
            #[default]
            Plain,
            $( $(#[doc = $doc])+ $variant, )+
        }

        impl Role {
            /// Returns the role of stats with this name.
            pub(crate) fn from_name(name: &[u8]) -> Self {
                $( if name == $name.as_bytes() { return Self::$variant; } )+
                Self::Plain
            }

            /// Returns the name of stats with this role.
            pub(crate) const fn name(self) -> &'static str {
                match self { Self::Plain => "", $( Self::$variant => $name, )+ }
            }
        }
    };
}

roles! {
    /// Step number of a step marker.
    StepNum = "step_num",
    /// Group id: XProf's number of a step; used on `Steps` lines only.
    GroupId = "group_id",
    /// A flow in XProf's layout.
    Flow = "flow",
    /// Id that connects device work to the host call that launched it.
    Correlation = "correlation_id",
    /// Type of the flow that starts here.
    ProducerType = "_pt",
    /// Id of the flow that starts here.
    Producer = "_p",
    /// Type of the flow that ends here.
    ConsumerType = "_ct",
    /// Id of the flow that ends here.
    Consumer = "_c",
    /// Value of a counter sample.
    CounterValue = "counter_value",
    /// Ours: category of the `flow` stat before it.
    FlowCategory = "_flow_category",
    /// Mark of the events that XProf groups by.
    Root = "_r",
    /// Ours: a flow whose id does not fit into `flow`: `out 12 category`.
    WideFlow = "_flow",
    /// Ours, of event metadata: category of the events.
    Category = "_category",
    /// Ours, of event metadata: [`EventKind`].
    Kind = "_kind",
    /// Ours: the recording ended before the event.
    Unfinished = "_unfinished",
    /// Ours: computed by a tool.
    Derived = "_derived",
    /// Ours: the source gave an impossible duration.
    Impossible = "_impossible",
    /// Ours, of planes and of counters' event metadata: a [`TrackRecord`].
    Track = "_track",
    /// Ours, of planes: the lines continue the previous plane of the same name.
    Continues = "_continues",
    /// Ours, of `Task Environment`: the source's own clock at relative time zero.
    Origin = "_origin_ns",
    /// Start of the profile, Unix nanoseconds.
    ProfileStart = "profile_start_time",
    /// Operating-system process of a plane.
    ProcessId = "process_id",
    /// Number of a compiled program.
    ProgramId = "program_id",
}

impl Role {
    /// Returns whether stats of this role affect events.
    pub(crate) const fn marks_events(self) -> bool {
        matches!(
            self,
            Self::StepNum
                | Self::GroupId
                | Self::Flow
                | Self::Correlation
                | Self::ProducerType
                | Self::Producer
                | Self::ConsumerType
                | Self::Consumer
                | Self::CounterValue
                | Self::FlowCategory
                | Self::WideFlow
                | Self::Unfinished
                | Self::Derived
                | Self::Impossible
        )
    }
}

/// Display form of a stat's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Unchanged.
    #[default]
    Plain,
    /// 0 and 1 as `false` and `true`.
    Bool,
    /// JSON text.
    Json,
}

/// Properties of a stat, from its metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Meaning {
    pub(crate) role: Role,
    pub(crate) form: Form,
    /// Whether the stat is hidden from the arguments.
    pub(crate) hidden: bool,
}

impl Meaning {
    /// Parses a stat metadata's name and description.
    pub(crate) fn new(name: &[u8], description: &[u8]) -> Self {
        let mut meaning = Self {
            role: Role::from_name(name),
            ..Self::default()
        };
        let words = description
            .strip_prefix(WORDS.as_bytes())
            .unwrap_or_default();
        for word in words.split(|byte| *byte == b' ') {
            match word {
                b"hidden" => meaning.hidden = true,
                b"arg" => meaning.role = Role::Plain,
                b"bool" => meaning.form = Form::Bool,
                b"json" => meaning.form = Form::Json,
                _ => {}
            }
        }
        meaning
    }

    /// Returns the description that encodes this meaning for a stat of this name; empty if the name
    /// alone suffices.
    pub(crate) fn description(self, name: &str) -> String {
        let mut words = String::new();
        let mut say = |word: &str| {
            words.push_str(if words.is_empty() { WORDS } else { "" });
            words.push(' ');
            words.push_str(word);
        };
        if self.hidden {
            say("hidden");
        }
        if self.role == Role::Plain && Role::from_name(name.as_bytes()) != Role::Plain {
            say("arg");
        }
        match self.form {
            Form::Plain => {}
            Form::Bool => say("bool"),
            Form::Json => say("json"),
        }
        words
    }
}

/// Kind of the events of one event metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// An interval.
    #[default]
    Slice,
    /// A point.
    Instant,
    /// The end of a flow that binds to the enclosing slice.
    FlowEnclosing,
    /// The end of a flow that binds to the next slice.
    FlowNext,
}

impl EventKind {
    /// Returns the value of the `_kind` stat; empty for slices, which need none.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Slice => "",
            Self::Instant => "instant",
            Self::FlowEnclosing => "flow enclosing",
            Self::FlowNext => "flow next",
        }
    }

    pub(crate) fn from_word(word: &[u8]) -> Self {
        [Self::Instant, Self::FlowEnclosing, Self::FlowNext]
            .into_iter()
            .find(|kind| kind.word().as_bytes() == word)
            .unwrap_or_default()
    }
}

/// Category of a flow, before its name is interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FlowCategory<'a> {
    /// `_pt`/`_ct`: the type of a producer and its consumers.
    Context(u64),
    /// `flow`: its top six bits.
    Flow(u8),
    /// `correlation_id`.
    Correlation,
    /// Our own stats.
    Text(&'a str),
}

/// Names of XProf's context types, by number.
const CONTEXTS: [&str; 18] = [
    "generic",
    "legacy",
    "tf_executor",
    "tfrt_executor",
    "shared_batch_scheduler",
    "pjrt",
    "adaptive_shared_batch_scheduler",
    "tfrt_tpu_runtime",
    "tpu_embedding_engine",
    "gpu_launch",
    "batcher",
    "tpu_stream",
    "tpu_launch",
    "pathways_executor",
    "pjrt_library_call",
    "threadpool_event",
    "jax_serving_executor",
    "sc_offload",
];

impl FlowCategory<'_> {
    /// Returns the category number in a `flow` stat, if the category is one of XProf's.
    pub(crate) fn flow_number(text: &str) -> Option<u8> {
        (0..64).find(|number| FlowCategory::Flow(*number).text() == text)
    }

    /// Returns the category's text.
    pub(crate) fn text(self) -> String {
        let context = |number: u64| {
            usize::try_from(number)
                .ok()
                .and_then(|number| CONTEXTS.get(number))
                .map_or_else(|| format!("context {number}"), |name| (*name).to_owned())
        };
        match self {
            Self::Context(number) => context(number),
            Self::Flow(0) => "flow".to_owned(),
            Self::Flow(number) => format!("flow {}", context(u64::from(number))),
            Self::Correlation => "correlation".to_owned(),
            Self::Text(text) => text.to_owned(),
        }
    }
}

/// Number of bits of an id in a `flow` stat.
pub(crate) const FLOW_ID_BITS: u32 = 56;

/// Packs a flow the way XProf does: direction, id, category from the low bits up. Returns `None` if
/// the id has more than 56 bits.
pub fn pack_flow(direction: FlowDirection, id: u64, category: u8) -> Option<u64> {
    let low = match direction {
        FlowDirection::In => 1,
        FlowDirection::Out => 2,
        FlowDirection::Through => 3,
    };
    (id < 1 << FLOW_ID_BITS).then(|| u64::from(category) << 58 | id << 2 | low)
}

/// Unpacks a result of [`pack_flow`]; `None` if the direction is unset.
pub(crate) fn unpack_flow(packed: u64) -> Option<(FlowDirection, u64, u8)> {
    let direction = match packed & 3 {
        1 => FlowDirection::In,
        2 => FlowDirection::Out,
        3 => FlowDirection::Through,
        _ => return None,
    };
    let id = packed >> 2 & ((1 << FLOW_ID_BITS) - 1);
    Some((direction, id, (packed >> 58) as u8 & 0x3f))
}

/// Properties of an event's line that affect the meaning of its stats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct EventPlacement {
    /// Whether the line is on a device plane: correlations end here.
    pub(crate) device: bool,
    /// Whether the line has step markers only.
    pub(crate) steps: bool,
}

/// A stat's value, converted as far as roles need it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum MarkValue<'a> {
    /// An integer, signed or unsigned, as its 64 bits.
    Number(u64),
    /// A floating-point number.
    Double(f64),
    /// Text.
    Text(&'a str),
}

/// The meaning of one event's stats, collected one by one.
#[derive(Debug, Default)]
pub(crate) struct EventStats<'a> {
    pub(crate) step: Option<StepNumber>,
    pub(crate) flows: Vec<(FlowCategory<'a>, u64, FlowDirection)>,
    pub(crate) value: Option<f64>,
    pub(crate) flags: SliceFlags,
    pub(crate) group: Option<i64>,
    /// Whether a stat was added since the last clear.
    touched: bool,
    producer: (u64, Option<u64>),
    consumer: (u64, Option<u64>),
}

impl<'a> EventStats<'a> {
    /// Clears the state of the last event.
    #[inline]
    pub(crate) fn clear(&mut self) {
        if self.touched {
            self.flows.clear();
            *self = Self {
                flows: std::mem::take(&mut self.flows),
                ..Self::default()
            };
        }
    }

    /// Adds a stat's value, with a reference to text resolved.
    pub(crate) fn take(&mut self, role: Role, value: MarkValue<'a>, place: EventPlacement) {
        self.touched = true;
        match value {
            MarkValue::Number(bits) => self.number(role, bits, place),
            MarkValue::Double(value) => self.double(role, value),
            MarkValue::Text(text) => self.text(role, text),
        }
    }

    fn number(&mut self, role: Role, bits: u64, place: EventPlacement) {
        match role {
            Role::StepNum => self.step = Some(bits as i64),
            Role::GroupId => self.group = Some(bits as i64),
            Role::Flow => {
                if let Some((direction, id, category)) = unpack_flow(bits) {
                    self.flows
                        .push((FlowCategory::Flow(category), id, direction));
                }
            }
            Role::Correlation if bits != 0 => {
                let direction = if place.device {
                    FlowDirection::In
                } else {
                    FlowDirection::Out
                };
                self.flows
                    .push((FlowCategory::Correlation, bits, direction));
            }
            Role::ProducerType => self.producer.0 = bits,
            Role::Producer => self.producer.1 = Some(bits),
            Role::ConsumerType => self.consumer.0 = bits,
            Role::Consumer => self.consumer.1 = Some(bits),
            Role::Unfinished if bits != 0 => self.flags = self.flags | SliceFlags::UNFINISHED,
            Role::Derived if bits != 0 => self.flags = self.flags | SliceFlags::DERIVED,
            Role::Impossible if bits != 0 => self.flags = self.flags | SliceFlags::IMPOSSIBLE,
            Role::CounterValue => self.value = Some(bits as i64 as f64),
            _ => {}
        }
    }

    fn double(&mut self, role: Role, value: f64) {
        if role == Role::CounterValue {
            self.value = Some(value);
        }
    }

    fn text(&mut self, role: Role, text: &'a str) {
        match role {
            Role::FlowCategory => {
                if let Some((category @ FlowCategory::Flow(_), _, _)) = self.flows.last_mut() {
                    *category = FlowCategory::Text(text);
                }
            }
            Role::WideFlow => {
                if let Some(flow) = wide_flow(text) {
                    self.flows.push(flow);
                }
            }
            _ => {}
        }
    }

    /// Completes the event after its last stat.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if !self.touched {
            return;
        }
        if let (category, Some(id)) = self.producer {
            let category = FlowCategory::Context(category);
            self.flows.push((category, id, FlowDirection::Out));
        }
        if let (category, Some(id)) = self.consumer {
            let category = FlowCategory::Context(category);
            self.flows.push((category, id, FlowDirection::In));
        }
    }

    /// Returns the step number, if the event is a step marker. On a line of step markers every
    /// event is one: its number is `step_num`, or the number at the end of its name, or its group,
    /// or its index in the line.
    #[inline]
    pub(crate) fn step_number(
        &self,
        place: EventPlacement,
        in_name: Option<StepNumber>,
        ordinal: u64,
    ) -> Option<StepNumber> {
        if place.steps {
            let number = self.step.or(in_name).or(self.group);
            return Some(number.unwrap_or(ordinal as i64));
        }
        self.step
    }
}

/// Returns the text of a `_flow` stat.
pub(crate) fn wide_flow_text(category: &str, id: u64, direction: FlowDirection) -> String {
    let word = match direction {
        FlowDirection::Out => "out",
        FlowDirection::Through => "through",
        FlowDirection::In => "in",
    };
    format!("{word} {id} {category}")
}

fn wide_flow(text: &str) -> Option<(FlowCategory<'_>, u64, FlowDirection)> {
    let mut parts = text.splitn(3, ' ');
    let direction = match parts.next()? {
        "out" => FlowDirection::Out,
        "through" => FlowDirection::Through,
        "in" => FlowDirection::In,
        _ => return None,
    };
    let id = parts.next()?.parse().ok()?;
    let category = FlowCategory::Text(parts.next().unwrap_or_default());
    Some((category, id, direction))
}

/// Parses the number at the end of a step's name (`train 12`, `7`), as on `Steps` lines.
pub(crate) fn number_in_name(name: &str) -> Option<StepNumber> {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    name.get(name.len() - digits..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_packed_as_xprof_does() {
        // Out, id 5, category 9 (gpu_launch).
        let packed = pack_flow(FlowDirection::Out, 5, 9).unwrap();
        assert_eq!(packed, 9 << 58 | 5 << 2 | 2);
        for direction in [
            FlowDirection::In,
            FlowDirection::Out,
            FlowDirection::Through,
        ] {
            for id in [0, 1, (1 << 56) - 1] {
                let packed = pack_flow(direction, id, 63).unwrap();
                assert_eq!(unpack_flow(packed), Some((direction, id, 63)));
            }
        }
        assert_eq!(pack_flow(FlowDirection::In, 1 << 56, 0), None);
        assert_eq!(unpack_flow(4), None);
    }

    #[test]
    fn a_wide_link_keeps_its_category_with_blanks() {
        let text = wide_flow_text("ac2g fwd", u64::MAX, FlowDirection::Through);
        assert_eq!(
            wide_flow(&text),
            Some((
                FlowCategory::Text("ac2g fwd"),
                u64::MAX,
                FlowDirection::Through
            ))
        );
        assert_eq!(wide_flow("sideways 1 x"), None);
    }

    #[test]
    fn a_description_says_what_its_reading_finds() {
        for name in ["flow", "anything"] {
            for form in [Form::Plain, Form::Bool, Form::Json] {
                for role in [Role::Plain, Role::from_name(name.as_bytes())] {
                    for hidden in [false, true] {
                        let meaning = Meaning { role, form, hidden };
                        let description = meaning.description(name);
                        let read = Meaning::new(name.as_bytes(), description.as_bytes());
                        assert_eq!(read, meaning, "{name} {description}");
                    }
                }
            }
        }
        assert_eq!(
            Meaning::new(b"flow", b"a flow, hidden"),
            Meaning {
                role: Role::Flow,
                ..Meaning::default()
            }
        );
    }
}
