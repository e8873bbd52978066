//! Where a row is in the program: the texts of an entity, and the SQL that reads them.

use rusqlite::Row;

use crate::query::Granularity;

/// The texts of a row; `None` for what the granularity does not tell apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Function name, at `files` the file's.
    pub function: String,
    /// Source file.
    pub file: Option<String>,
    /// Line number.
    pub line: Option<i64>,
    /// Address of the instruction.
    pub address: Option<u64>,
}

impl Place {
    /// How one line of text names it: `function file:line` or `0xaddress function file:line`.
    pub fn label(&self) -> String {
        let mut label = String::new();
        let named = !self.is_address();
        if let Some(address) = self.address.filter(|&a| a != 0 && named) {
            label.push_str(&format!("{address:#018x} "));
        }
        label.push_str(&self.function);
        if let Some(file) = self
            .file
            .as_ref()
            .filter(|f| !f.is_empty() && **f != self.function)
        {
            label.push(' ');
            label.push_str(file);
            if let Some(line) = self.line.filter(|&l| l != 0) {
                label.push_str(&format!(":{line}"));
            }
        }
        label
    }

    /// Whether it is a frame without symbols, whose name is its address.
    pub(crate) fn is_address(&self) -> bool {
        self.function.starts_with("0x")
    }

    /// Reads the columns of [`columns`], which begin at `at`.
    pub(crate) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        Ok(Self {
            function: row.get(at)?,
            file: row.get(at + 1)?,
            line: row.get(at + 2)?,
            address: row.get::<_, Option<i64>>(at + 3)?.map(|a| a as u64),
        })
    }
}

/// The columns of a place, from `function f` and a table `t` with `line` and `address`.
pub(crate) fn columns(granularity: Granularity, t: &str) -> String {
    match granularity {
        Granularity::Functions => "f.name, NULL, NULL, NULL".to_string(),
        Granularity::FileFunctions => "f.name, f.filename, NULL, NULL".to_string(),
        Granularity::Files => "f.filename, f.filename, NULL, NULL".to_string(),
        Granularity::Lines => format!("f.name, f.filename, {t}.line, NULL"),
        Granularity::Addresses => format!("f.name, f.filename, {t}.line, {t}.address"),
    }
}

/// The same columns as a list to group or order by.
pub(crate) fn order(granularity: Granularity, t: &str) -> String {
    match granularity {
        Granularity::Functions => "f.name".to_string(),
        Granularity::FileFunctions => "f.name, f.filename".to_string(),
        Granularity::Files => "f.filename".to_string(),
        Granularity::Lines => format!("f.name, f.filename, {t}.line"),
        Granularity::Addresses => format!("f.name, f.filename, {t}.line, {t}.address"),
    }
}
