//! Where a row is in the program: the texts of an entity, and the SQL that reads them.

use std::rc::Rc;

use foldhash::{HashMap, HashMapExt};
use rusqlite::Row;

use crate::error::Error;
use crate::query::Granularity;
use crate::session::Session;

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

/// Stacks frame by frame. Equal frames of many stacks are one place.
pub(crate) struct Stacks<'a> {
    session: &'a Session,
    sql: String,
    /// By function, line and address as far as the granularity tells them apart.
    known: HashMap<[i64; 3], Rc<Place>>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(session: &'a Session, granularity: Granularity) -> Self {
        let (line, address) = match granularity {
            Granularity::Addresses => ("t.line", "t.address"),
            Granularity::Lines => ("t.line", "0"),
            _ => ("0", "0"),
        };
        let sql = format!(
            "SELECT t.function, {line}, {address}, {} FROM frame t JOIN function f ON f.id = t.function \
             WHERE t.stack = ?1 ORDER BY t.position",
            columns(granularity, "t")
        );
        Self {
            session,
            sql,
            known: HashMap::new(),
        }
    }

    /// A stack of the session's, leaf first.
    pub(crate) fn read(&mut self, stack: i64) -> Result<Vec<Rc<Place>>, Error> {
        let known = &mut self.known;
        self.session.rows(&self.sql, [stack], |row| {
            let key = [row.get(0)?, row.get(1)?, row.get(2)?];
            if let Some(place) = known.get(&key) {
                return Ok(Rc::clone(place));
            }
            let place = Rc::new(Place::read(row, 3)?);
            known.insert(key, Rc::clone(&place));
            Ok(place)
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
