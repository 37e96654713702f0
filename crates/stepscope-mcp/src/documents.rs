//! Pages of the documentation for models. `embedded/` links to `docs/`; a package carries the files behind the links.

pub(crate) const DEFINITIONS: &str = include_str!("../embedded/definitions.md");
pub(crate) const FINDINGS: &str = include_str!("../embedded/findings.md");
pub(crate) const REPORTS: &str = include_str!("../embedded/reports.md");
pub(crate) const SQL: &str = include_str!("../embedded/sql.md");
pub(crate) const SQL_GUIDE: &str = include_str!("../embedded/sql_guide.md");
