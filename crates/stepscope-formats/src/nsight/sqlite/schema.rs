//! Tables and their columns, from the texts of their `CREATE TABLE` statements.

use super::scan::{Losses, RowReader};
use super::table::Table;
use super::{Database, Record, Value};

/// Maximum number of tables that are read.
const MAX_TABLES: usize = 4_096;
/// The columns of `sqlite_schema`: type, name, `tbl_name`, rootpage, sql.
const SCHEMA_COLUMNS: [&str; 5] = ["type", "name", "tbl_name", "rootpage", "sql"];

/// The tables of a database.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    /// In the order of `sqlite_schema`.
    pub(crate) tables: Vec<Table>,
    /// Pages of `sqlite_schema` that are damaged, or after the end of the bytes.
    pub(crate) losses: Losses,
}

impl Schema {
    /// Reads the tables of a database.
    pub(crate) fn new(database: &Database<'_>) -> Self {
        let table = Table {
            name: "sqlite_schema".to_owned(),
            root: 1,
            columns: SCHEMA_COLUMNS.map(str::to_owned).to_vec(),
            ..Table::default()
        };
        let mut found = Self::default();
        let mut reader = RowReader::new(database);
        let leaves = reader.leaves(&table, &mut found.losses);
        for page in leaves {
            reader.rows(&table, page, &mut found.losses, |row| {
                let Some(record) = Record::new(row.payload) else {
                    return;
                };
                let text = |column: usize| match record.get(column) {
                    Value::Text(text) => String::from_utf8_lossy(text).into_owned(),
                    _ => String::new(),
                };
                let root = record
                    .get(3)
                    .int()
                    .and_then(|root| u32::try_from(root).ok());
                // Virtual tables have no root.
                let root = root.filter(|root| *root > 0);
                if let Some(root) = root
                    && record.get(0) == Value::Text(b"table")
                    && found.tables.len() < MAX_TABLES
                {
                    let name = text(1);
                    let definition = Definition::parse(&text(4));
                    found.tables.push(Table {
                        name,
                        root,
                        columns: definition.columns,
                        row_id: definition.row_id,
                        is_index: definition.is_index,
                    });
                }
            });
        }
        found
    }

    /// Returns the table of this name, without regard to case.
    pub(crate) fn table(&self, name: &str) -> Option<&Table> {
        let mut tables = self.tables.iter();
        tables.find(|table| table.name.eq_ignore_ascii_case(name))
    }
}

/// A token of a `CREATE TABLE` statement.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A word without quotes.
    Word(String),
    /// A name in quotes or brackets.
    Quoted(String),
    /// Any other character.
    Mark(char),
}

/// What a `CREATE TABLE` statement says about its columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Definition {
    columns: Vec<String>,
    /// Positions of the columns of the type `INTEGER`.
    integers: Vec<usize>,
    row_id: Option<usize>,
    is_index: bool,
}

impl Definition {
    fn parse(sql: &str) -> Self {
        let tokens = tokens(sql);
        let mut found = Self::default();
        let Some(start) = tokens.iter().position(|token| *token == Token::Mark('(')) else {
            return found;
        };
        let mut depth = 1_usize;
        let mut part = Vec::new();
        let mut rest = tokens[start + 1..].iter();
        for token in rest.by_ref() {
            match token {
                Token::Mark('(') => depth += 1,
                Token::Mark(')') => depth -= 1,
                Token::Mark(',') if depth == 1 => {
                    found.add(&part);
                    part.clear();
                    continue;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
            part.push(token.clone());
        }
        found.add(&part);
        let rest: Vec<&Token> = rest.collect();
        found.is_index = rest
            .windows(2)
            .any(|pair| is_word(pair[0], "WITHOUT") && is_word(pair[1], "ROWID"));
        found
    }

    /// Adds a column, or reads a constraint of the table.
    fn add(&mut self, part: &[Token]) {
        const CONSTRAINTS: [&str; 5] = ["CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"];
        let Some(first) = part.first() else {
            return;
        };
        let name = match first {
            Token::Word(word) if CONSTRAINTS.iter().any(|one| one.eq_ignore_ascii_case(word)) => {
                self.key(part);
                return;
            }
            Token::Word(name) | Token::Quoted(name) => name.clone(),
            Token::Mark(_) => return,
        };
        let is_key = part
            .windows(2)
            .any(|pair| is_word(&pair[0], "PRIMARY") && is_word(&pair[1], "KEY"));
        let position = self.columns.len();
        self.columns.push(name);
        if is_integer(&part[1..]) {
            self.integers.push(position);
            if is_key {
                self.row_id = Some(position);
            }
        }
    }

    /// Reads `PRIMARY KEY (column)`.
    fn key(&mut self, part: &[Token]) {
        let Some(open) = part.iter().position(|token| *token == Token::Mark('(')) else {
            return;
        };
        if !part[..open].iter().any(|token| is_word(token, "PRIMARY")) {
            return;
        }
        let [Token::Word(name) | Token::Quoted(name), Token::Mark(')')] = &part[open + 1..] else {
            return;
        };
        let column = self
            .columns
            .iter()
            .position(|column| column.eq_ignore_ascii_case(name));
        self.row_id = column
            .filter(|column| self.integers.contains(column))
            .or(self.row_id);
    }
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.eq_ignore_ascii_case(word))
}

/// Returns whether the tokens after a column's name begin with the type `INTEGER` and no longer one: only such a
/// column can stand for the number of the row.
fn is_integer(rest: &[Token]) -> bool {
    const ENDS: [&str; 11] = [
        "PRIMARY",
        "NOT",
        "NULL",
        "UNIQUE",
        "CHECK",
        "DEFAULT",
        "COLLATE",
        "REFERENCES",
        "CONSTRAINT",
        "GENERATED",
        "AS",
    ];
    let ends = |token: &Token| ENDS.iter().any(|word| is_word(token, word));
    rest.first().is_some_and(|token| is_word(token, "INTEGER")) && rest.get(1).is_none_or(ends)
}

/// Splits a statement into tokens; comments and spaces are left out.
fn tokens(sql: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let mut letters = sql.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '-' if letters.peek() == Some(&'-') => {
                letters.by_ref().find(|letter| *letter == '\n');
            }
            '/' if letters.peek() == Some(&'*') => {
                letters.next();
                let mut last = ' ';
                letters.by_ref().find(|letter| {
                    let ends = last == '*' && *letter == '/';
                    last = *letter;
                    ends
                });
            }
            '"' | '`' | '\'' | '[' => {
                let end = if letter == '[' { ']' } else { letter };
                let mut name = String::new();
                while let Some(inner) = letters.next() {
                    if inner != end {
                        name.push(inner);
                    } else if letter != '[' && letters.peek() == Some(&end) {
                        // A quote within quotes is written twice.
                        letters.next();
                        name.push(end);
                    } else {
                        break;
                    }
                }
                found.push(Token::Quoted(name));
            }
            letter if letter.is_whitespace() => {}
            letter if is_in_word(letter) => {
                let mut word = String::from(letter);
                while let Some(inner) = letters.next_if(|inner| is_in_word(*inner)) {
                    word.push(inner);
                }
                found.push(Token::Word(word));
            }
            other => found.push(Token::Mark(other)),
        }
    }
    found
}

fn is_in_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_' || letter == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(sql: &str) -> (Vec<String>, Option<usize>) {
        let found = Definition::parse(sql);
        (found.columns, found.row_id)
    }

    #[test]
    fn columns_are_found_between_comments_and_constraints() {
        let sql = "CREATE TABLE StringIds (\n    -- Values, which repeat (a lot).\n\n    id   INTEGER   NOT NULL   PRIMARY KEY,\n    \
                   value TEXT NOT NULL REFERENCES b(c, d), -- it's text\n [end] INT /* , x */, \"a\"\"b\" DECIMAL(1, 2)\n);";
        let names = ["id", "value", "end", "a\"b"].map(str::to_owned).to_vec();
        assert_eq!(columns(sql), (names, Some(0)));
    }

    #[test]
    fn only_an_integer_key_stands_for_the_row() {
        let id = |sql: &str| columns(sql).1;
        assert_eq!(
            id("CREATE TABLE a (b TEXT, id integer primary key)"),
            Some(1)
        );
        assert_eq!(id("CREATE TABLE a (id INT NOT NULL PRIMARY KEY)"), None);
        assert_eq!(id("CREATE TABLE a (id INTEGER UNSIGNED PRIMARY KEY)"), None);
        assert_eq!(
            id("CREATE TABLE a (x INTEGER, id INTEGER, PRIMARY KEY (\"id\"))"),
            Some(1)
        );
        assert_eq!(
            id("CREATE TABLE a (id INTEGER, depth INTEGER, PRIMARY KEY (id, depth))"),
            None
        );
        assert_eq!(id("CREATE TABLE a (id INTEGER, UNIQUE (id))"), None);
        assert_eq!(id("CREATE TABLE a (id TEXT, PRIMARY KEY (id))"), None);
    }

    #[test]
    fn tables_without_row_numbers_and_no_tables_are_recognised() {
        let is_index = |sql: &str| Definition::parse(sql).is_index;
        assert!(is_index("CREATE TABLE a (b PRIMARY KEY) WITHOUT ROWID"));
        assert!(!is_index("CREATE TABLE a (b TEXT)"));
        for sql in [
            "",
            "CREATE TABLE",
            "(",
            "(((",
            "('",
            "(a",
            ")(",
            "(,,)",
            "--",
            "/*",
            "/* *",
        ] {
            let _ = Definition::parse(sql);
        }
        assert_eq!(columns("CREATE TABLE a (b").0, ["b"]);
    }
}
