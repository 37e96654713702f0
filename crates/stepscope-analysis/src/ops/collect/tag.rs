//! Arguments of slices that determine their rows.

use stepscope_model::{ArgKeys, ArgValue, NameId};
use stepscope_store::{EventId, Trace};

use crate::names::json_on_one_line;
use crate::ops::{class, hlo};
use crate::torch_args::{DIMS, is_dims};

/// Properties that all slices of one sum share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::ops) struct Tag {
    /// `jit_step(8)`.
    pub(in crate::ops) program: Option<String>,
    /// The HLO operation, where it differs from the slice's own name.
    pub(in crate::ops) hlo_op: Option<String>,
    /// Argument `tf_op`.
    pub(in crate::ops) tf_op: Option<String>,
    /// Argument `hlo_category`.
    pub(in crate::ops) category: Option<String>,
    /// Argument `source`.
    pub(in crate::ops) source: Option<String>,
    /// The whole name, where the slice shows only the type of an operation of TensorFlow.
    pub(in crate::ops) long_name: Option<String>,
    /// Input shapes, where rows are split by them.
    pub(in crate::ops) shapes: Option<String>,
    /// Path of the enclosing modules, outermost first, ending with its own; or, where rows are split by stack,
    /// the names of the enclosing Python functions, outermost first.
    pub(in crate::ops) around: Vec<NameId>,
}

/// Returns operation and type from a slice's whole name, see [`class::tensorflow`].
pub(in crate::ops) fn operation_of(tag: &Tag) -> Option<(&str, &str)> {
    class::tensorflow(tag.long_name.as_deref()?, "")
}

/// Arguments that [`read_tag`] reads.
const KEYS: ArgKeys = ArgKeys::new(&[
    "hlo_op",
    "long_name",
    "hlo_module",
    "program_id",
    "tf_op",
    "hlo_category",
    "source",
    DIMS[0],
    DIMS[1],
    "shape_with_layout",
]);

/// Reads the tag from a slice's arguments; returns whether they could not be read.
pub(in crate::ops) fn read_tag(trace: &Trace, event: EventId) -> (Tag, bool) {
    let mut tag = Tag::default();
    let (mut module, mut program_id) = (None, None);
    let lost = trace
        .args_of(event, KEYS, &mut |key, value| match (key, value) {
            ("hlo_op", ArgValue::Str(text)) => tag.hlo_op = Some(text.to_owned()),
            ("long_name", ArgValue::Str(text)) => tag.long_name = Some(text.to_owned()),
            ("hlo_module", ArgValue::Str(text)) => module = Some(text.to_owned()),
            ("program_id", ArgValue::Int(id)) => program_id = Some(id.cast_unsigned()),
            ("program_id", ArgValue::Uint(id)) => program_id = Some(id),
            ("program_id", ArgValue::Str(text)) => program_id = text.parse().ok(),
            ("tf_op", ArgValue::Str(text)) if !text.is_empty() => tag.tf_op = Some(text.to_owned()),
            ("hlo_category", ArgValue::Str(text)) => tag.category = Some(text.to_owned()),
            ("source", ArgValue::Str(text)) => tag.source = Some(text.to_owned()),
            (key, ArgValue::Json(text) | ArgValue::Str(text)) if is_dims(key) => {
                tag.shapes = Some(json_on_one_line(text).into_owned());
            }
            ("shape_with_layout", ArgValue::Str(text)) => tag.shapes = Some(text.to_owned()),
            _ => {}
        })
        .is_err();
    tag.program = module.map(|module| hlo::shown(&module, program_id));
    (tag, lost)
}

/// Result of [`read_shapes`].
pub(super) enum Shapes {
    /// The arguments contain only the input shapes, if they were recorded.
    Only {
        /// Whether there are any shapes.
        any: bool,
        /// Whether the arguments could not be read.
        lost: bool,
    },
    /// They contain more: call [`read_tag`].
    More,
}

/// Reads the shapes of a slice's inputs into `text`, without allocation for slices of the same shapes.
pub(super) fn read_shapes(trace: &Trace, event: EventId, text: &mut String) -> Shapes {
    let (mut any, mut more) = (false, false);
    let read = trace.args_of(event, KEYS, &mut |key, value| match (key, value) {
        (key, ArgValue::Json(shapes) | ArgValue::Str(shapes)) if is_dims(key) => {
            any = true;
            text.clear();
            text.push_str(shapes);
        }
        _ => more = true,
    });
    if more {
        return Shapes::More;
    }
    let lost = read.is_err();
    Shapes::Only { any, lost }
}
