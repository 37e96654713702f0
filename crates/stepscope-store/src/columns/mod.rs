//! The columns of a trace: in memory, or mapped from a cache image.
//!
//! Reading order: `plain` (values as bytes), `sections` (verifies the columns of an image),
//! `mapped` (views of an image), `column`, then the types made of columns: `level`, `table`,
//! `text_column`. `max_end_index` finds the slices that are open at a time, `pages` reserves large
//! pages.

pub(crate) mod column;
pub(crate) mod level;
pub(crate) mod mapped;
pub(crate) mod max_end_index;
pub mod pages;
pub(crate) mod plain;
pub(crate) mod sections;
pub(crate) mod table;
pub(crate) mod text_column;
