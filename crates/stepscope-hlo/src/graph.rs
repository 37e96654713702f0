//! The graph of a compiled program: neighbourhoods, groups, paths and a drawing.
//!
//! [`DataFlow`] knows who uses a value and who calls a computation. [`neighbourhood`] selects the
//! instructions around one, [`VisibleGraph`] turns a selection into at most a few hundred nodes, and
//! [`GraphLayout`] gives each node a position and each edge a line. The order of everything is the order of the
//! file: the same module gives the same drawing.

mod class;
mod draw;
mod flow;
mod layout;
mod neighbourhood;
mod search;
mod text;
mod view;

pub use class::NodeClass;
pub use draw::{write_dot, write_svg};
pub use flow::DataFlow;
pub use layout::{GraphLayout, Line, Rect};
pub use neighbourhood::{Neighbourhood, is_inlined, neighbourhood};
pub use search::{adjacent, path, search};
pub use text::{instruction_text, module_text};
pub use view::{DrawnNodeKind, EdgeEnds, Selection, VisibleGraph, VisibleNode};
