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

/// What tells places apart: function, line and address, zero where the granularity does not look.
type Key = [i64; 3];

/// Stacks frame by frame. Equal frames of many stacks are one place.
pub(crate) struct Stacks<'a> {
    session: &'a Session,
    granularity: Granularity,
    known: HashMap<Key, Rc<Place>>,
}

impl<'a> Stacks<'a> {
    pub(crate) fn new(session: &'a Session, granularity: Granularity) -> Self {
        Self {
            session,
            granularity,
            known: HashMap::new(),
        }
    }

    /// A stack of the session's, leaf first.
    pub(crate) fn read(&mut self, stack: i64) -> Result<Vec<Rc<Place>>, Error> {
        let sql = format!(
            "SELECT {} FROM frame t WHERE t.stack = ?1 ORDER BY t.position",
            self.key()
        );
        let keys = self.session.rows(&sql, [stack], |row| key(row, 0))?;
        let mut stack = Vec::with_capacity(keys.len());
        for key in keys {
            stack.push(self.place(key)?);
        }
        Ok(stack)
    }

    /// Gives every stack of the session's question in the order of their numbers, leaf first.
    pub(crate) fn each(&mut self, mut each: impl FnMut(i64, &[Rc<Place>])) -> Result<(), Error> {
        // The table has frames stack by stack.
        let sql = format!("SELECT t.stack, {} FROM frame t", self.key());
        let mut frames = Vec::new();
        let mut current = 0;
        let session = self.session;
        session.query(&sql, [], |row| {
            let stack: i64 = row.get(0)?;
            if stack != current {
                each(current, &frames);
                frames.clear();
                current = stack;
            }
            frames.push(self.place(key(row, 1)?)?);
            Ok(())
        })?;
        each(current, &frames);
        Ok(())
    }

    /// The columns of a key.
    fn key(&self) -> &'static str {
        match self.granularity {
            Granularity::Addresses => "t.function, t.line, t.address",
            Granularity::Lines => "t.function, t.line, 0",
            _ => "t.function, 0, 0",
        }
    }

    fn place(&mut self, key: Key) -> rusqlite::Result<Rc<Place>> {
        if let Some(place) = self.known.get(&key) {
            return Ok(Rc::clone(place));
        }
        let granularity = self.granularity;
        let sql = "SELECT f.name, f.filename FROM function f WHERE f.id = ?1";
        let read = |row: &Row<'_>| {
            let (name, file): (String, String) = (row.get(0)?, row.get(1)?);
            let is_file = granularity == Granularity::Files;
            Ok(Place {
                function: if is_file { file.clone() } else { name },
                file: granularity.has_file().then_some(file),
                line: granularity.has_line().then_some(key[1]),
                address: granularity.has_address().then_some(key[2] as u64),
            })
        };
        let mut found = self.session.query(sql, [key[0]], read)?;
        let place = Rc::new(found.pop().unwrap_or_default());
        self.known.insert(key, Rc::clone(&place));
        Ok(place)
    }
}

fn key(row: &Row<'_>, at: usize) -> rusqlite::Result<Key> {
    Ok([row.get(at)?, row.get(at + 1)?, row.get(at + 2)?])
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
