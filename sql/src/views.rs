//! Tables under the names of other profilers, so that queries written for them run: `perfetto.slice`,
//! `xprof.events`, `nsys.stringids`. Each is a query over our tables.

use std::fmt;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use datafusion::catalog::{SchemaProvider, TableProvider};
use datafusion::datasource::ViewTable;
use datafusion::error::Result;
use datafusion::execution::SessionState;
use datafusion::prelude::SessionContext;
use datafusion::sql::sqlparser::ast::{Expr, SelectItem, SetExpr, Statement};
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::parser::Parser;
use parking_lot::RwLock;

/// The statements of each schema: `CREATE VIEW SCHEMA.NAME AS QUERY;`, with the meaning in a comment above.
const SCHEMAS: [(&str, &str); 3] = [
    ("perfetto", include_str!("views/perfetto.sql")),
    ("xprof", include_str!("views/xprof.sql")),
    ("nsys", include_str!("views/nsys.sql")),
];

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Schema.
    pub schema: &'static str,
    /// Name in the schema.
    pub name: &'static str,
    /// Meaning.
    pub meaning: &'static str,
    pub(crate) query: &'static str,
}

impl View {
    /// Returns the name in queries: `SCHEMA.NAME`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.schema, self.name)
    }

    /// Returns the names of its columns, in order.
    pub fn columns(&self) -> Vec<String> {
        let statements = Parser::parse_sql(&GenericDialect {}, self.query).unwrap_or_default();
        let Some(Statement::Query(query)) = statements.into_iter().next() else {
            return Vec::new();
        };
        let mut body = *query.body;
        // The first part of a union names the columns.
        while let SetExpr::SetOperation { left, .. } = body {
            body = *left;
        }
        let SetExpr::Select(select) = body else {
            return Vec::new();
        };
        let name_of = |item: &SelectItem| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.value.clone()),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(path)) => {
                path.last().map(|name| name.value.clone())
            }
            _ => None,
        };
        select.projection.iter().filter_map(name_of).collect()
    }
}

/// Returns all views.
pub fn all() -> Vec<View> {
    let each = SCHEMAS.iter();
    each.flat_map(|(schema, text)| of_schema(schema, text))
        .collect()
}

/// Reads the statements of a schema.
fn of_schema(schema: &'static str, text: &'static str) -> Vec<View> {
    let mut views = Vec::new();
    for statement in text.split(";\n") {
        let Some((before, rest)) = statement.split_once("CREATE VIEW ") else {
            continue;
        };
        let Some((name, query)) = rest.split_once(" AS\n") else {
            continue;
        };
        let comment = before.trim_end().rsplit("-- ").next();
        views.push(View {
            schema,
            name: name
                .strip_prefix(schema)
                .map_or(name, |name| name.trim_start_matches('.')),
            meaning: comment.unwrap_or_default(),
            query,
        });
    }
    views
}

/// Registers the views of a session that has its tables.
pub(crate) fn register(context: &SessionContext) -> Result<()> {
    let state = context.state_weak_ref();
    let catalog = context.catalog(&context.state().config_options().catalog.default_catalog);
    let Some(catalog) = catalog else {
        return Ok(());
    };
    for (schema, text) in SCHEMAS {
        let provider = Views {
            views: of_schema(schema, text),
            state: state.clone(),
        };
        catalog.register_schema(schema, Arc::new(provider))?;
    }
    Ok(())
}

/// The views of one schema. A view is planned when a query names it: sessions open as fast as without them.
struct Views {
    views: Vec<View>,
    /// The session's tables. Weak: the session owns its schemas.
    state: Weak<RwLock<SessionState>>,
}

impl fmt::Debug for Views {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.views).finish()
    }
}

#[async_trait]
impl SchemaProvider for Views {
    fn table_names(&self) -> Vec<String> {
        self.views.iter().map(|view| view.name.to_owned()).collect()
    }

    async fn table(&self, name: &str) -> Result<Option<Arc<dyn TableProvider>>> {
        let view = self.views.iter().find(|view| view.name == name);
        let state = self.state.upgrade().map(|state| state.read().clone());
        let (Some(view), Some(state)) = (view, state) else {
            return Ok(None);
        };
        let plan = state.create_logical_plan(view.query).await?;
        Ok(Some(Arc::new(ViewTable::new(
            plan,
            Some(view.query.to_owned()),
        ))))
    }

    fn table_exist(&self, name: &str) -> bool {
        self.views.iter().any(|view| view.name == name)
    }
}
