//! The places in the code that rows are about: their texts, and the SQL that reads these texts.

use std::cell::Cell;

use foldhash::HashSet;
use heapprof_profile::is_place_of_code;
use rusqlite::Row;

use crate::error::AnalysisError;
use crate::session::AnalysisSession;
use heapprof_totals::query::Granularity;

/// The part of the file's path that the [`label`](CodePlace::label) of a place shows beside the
/// function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ShownFile {
    /// The whole file.
    #[default]
    Whole,
    /// Only this number of characters at the end of the file's path. They distinguish the function
    /// from other functions with the same name. The number is 0 if the name alone is enough.
    End(u32),
}

/// A place in the code, which a row is about. A field is `None` if the granularity does not
/// distinguish it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CodePlace {
    /// The name of the function; with granularity `files` the name of the file.
    pub function: String,
    /// The source file.
    pub file: Option<String>,
    /// The line number.
    pub line: Option<i64>,
    /// The address of the instruction.
    pub address: Option<u64>,
    /// The part of `file` that is shown to people.
    pub shown_file: ShownFile,
}

impl CodePlace {
    /// Returns the place in one line of text: `function file:line` or
    /// `0xaddress function file:line`.
    pub fn label(&self) -> String {
        self.label_as(&self.function, self.shown_file())
    }

    /// Returns the part of the file that is shown beside the function.
    pub fn shown_file(&self) -> Option<&str> {
        let file = self.file.as_deref()?;
        match self.shown_file {
            ShownFile::Whole => Some(file),
            ShownFile::End(0) => None,
            ShownFile::End(characters) => {
                let mut starts = file.char_indices().rev();
                let start = starts.nth(characters as usize - 1).map_or(0, |(at, _)| at);
                Some(&file[start..])
            }
        }
    }

    /// Returns the label of the place, with these texts instead of its function and its file. The
    /// texts may be shortened.
    pub fn label_as(&self, function: &str, file: Option<&str>) -> String {
        let mut label = String::new();
        let named = !self.is_address();
        if let Some(address) = self.address.filter(|&a| a != 0 && named) {
            label.push_str(&format!("{address:#018x} "));
        }
        label.push_str(function);
        // In some profiles, the name of a function is its file, or its file and line.
        let is_its_name = |file: &String| {
            let Some(behind) = self.function.strip_prefix(file.as_str()) else {
                return false;
            };
            let line = behind
                .strip_prefix(':')
                .and_then(|line| line.parse::<i64>().ok());
            behind.is_empty() || line.is_some_and(|line| self.line.is_none_or(|l| l == line))
        };
        let is_shown = self
            .file
            .as_ref()
            .is_some_and(|file| !file.is_empty() && !is_its_name(file));
        if let (true, Some(file)) = (is_shown, file) {
            label.push(' ');
            label.push_str(file);
            if let Some(line) = self.line.filter(|&l| l != 0) {
                label.push_str(&format!(":{line}"));
            }
        }
        label
    }

    /// Whether the place is code without a name. Reports name such code by its address, or by its
    /// file and the offset in that file.
    pub fn is_nameless(&self) -> bool {
        let is_bare = self.file.as_ref().is_none_or(String::is_empty);
        self.is_address() || is_bare && is_place_of_code(&self.function)
    }

    /// Whether the place is a frame without symbols, whose name is its address.
    fn is_address(&self) -> bool {
        self.function.starts_with("0x")
    }

    /// Reads a place from a row that has the columns of [`columns`] from position `at` on.
    pub(crate) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        let [function, file, line, address, characters] = PLACE_COLUMNS.map(|column| at + column);
        Ok(Self {
            function: row.get(function)?,
            file: row.get(file)?,
            line: row.get(line)?,
            address: row.get::<_, Option<i64>>(address)?.map(|a| a as u64),
            shown_file: match row.get(characters)? {
                Some(characters) => ShownFile::End(characters),
                None => ShownFile::Whole,
            },
        })
    }
}

/// The name of the row that stands for all rows that were left out.
pub const OTHER_NAME: &str = "(other)";

/// A place by its number in the [`PlaceTable`] of a report: equal numbers are equal places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PlaceId(pub(crate) u32);

impl PlaceId {
    /// The place of the row `(other)`, which stands for several places that were left out.
    pub const OTHER: Self = Self(0);

    /// Returns the number as a position in a list with one entry for each place.
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// Reads the number of a place from column `at`.
    pub(crate) fn read(row: &Row<'_>, at: usize) -> rusqlite::Result<Self> {
        row.get(at).map(Self)
    }
}

/// The places that the rows of a report are about. Rows refer to places by their numbers.
#[derive(Clone, Debug)]
pub struct PlaceTable(Vec<CodePlace>);

impl Default for PlaceTable {
    fn default() -> Self {
        Self(vec![CodePlace {
            function: OTHER_NAME.to_string(),
            ..CodePlace::default()
        }])
    }
}

impl PlaceTable {
    /// Reads all places of the session's question, by the numbers of their entities.
    pub(crate) fn new(
        session: &AnalysisSession,
        granularity: Granularity,
    ) -> Result<Self, AnalysisError> {
        let sql = format!(
            "SELECT {} FROM entity e JOIN function f ON f.id = e.function ORDER BY e.id",
            columns(granularity, "e")
        );
        let mut places = Self::default();
        session.each(&sql, [], |row| {
            places.0.push(CodePlace::read(row, 0)?);
            Ok::<_, AnalysisError>(())
        })?;
        Ok(places)
    }

    /// Reads all places of the session's question, for reports that show whole stacks. The place of
    /// a Perl value has the path of names to the value as its file. This path is hidden, because a
    /// stack shows it anyway.
    pub(crate) fn for_stacks(
        session: &AnalysisSession,
        granularity: Granularity,
    ) -> Result<Self, AnalysisError> {
        let mut places = Self::new(session, granularity)?;
        let is_ambiguous = |place: &&CodePlace| matches!(place.shown_file, ShownFile::End(1..));
        if places.iter().any(|place| is_ambiguous(&place)) {
            let path = |place: &CodePlace| match place.file.as_deref() {
                None | Some("") => place.function.clone(),
                Some(file) => format!("{file};{}", place.function),
            };
            let paths: HashSet<String> = places.iter().map(path).collect();
            let is_path = |file: &String| paths.contains(file);
            for place in &mut places.0 {
                if is_ambiguous(&&*place) && place.file.as_ref().is_some_and(is_path) {
                    place.shown_file = ShownFile::End(0);
                }
            }
        }
        Ok(places)
    }

    /// Returns all places, in the order of their numbers.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &CodePlace> + Clone {
        self.0.iter()
    }

    /// Returns the place with this number.
    pub fn get(&self, id: PlaceId) -> &CodePlace {
        &self.0[id.index()]
    }
}

/// Reads stacks frame by frame.
pub(crate) struct StackReader<'a> {
    session: &'a AnalysisSession,
    /// Whether a stack was read by SQL already.
    has_read_by_sql: Cell<bool>,
}

impl<'a> StackReader<'a> {
    pub(crate) fn new(session: &'a AnalysisSession) -> Self {
        Self {
            session,
            has_read_by_sql: Cell::new(false),
        }
    }

    /// Returns a stack of the session, leaf first. The first stack is read by SQL, so that the
    /// session shows the statement that the report uses. Other stacks are read from the table
    /// itself, because there may be millions of stacks.
    pub(crate) fn read(&self, stack: i64) -> Result<Vec<PlaceId>, AnalysisError> {
        if let Some(question) = &self.session.question
            && self.has_read_by_sql.replace(true)
        {
            let entities = question.samples().stacks.get((stack - 1) as usize);
            return Ok(entities.iter().map(|&entity| PlaceId(entity + 1)).collect());
        }
        const STACK_SQL: &str =
            "SELECT t.entity FROM frame t WHERE t.stack = ?1 ORDER BY t.position";
        self.session
            .rows(STACK_SQL, [stack], |row| PlaceId::read(row, 0))
    }

    /// Calls the closure `each` with every stack of the session's question, leaf first, in the
    /// order of their numbers.
    pub(crate) fn each(&self, mut each: impl FnMut(i64, &[PlaceId])) -> Result<(), AnalysisError> {
        const ALL_STACKS_SQL: &str =
            "SELECT t.stack, t.entity FROM frame t ORDER BY t.stack, t.position";
        let mut frames = Vec::new();
        let mut current = 0;
        self.session.each(ALL_STACKS_SQL, [], |row| {
            let stack: i64 = row.get(0)?;
            if stack != current {
                each(current, &frames);
                frames.clear();
                current = stack;
            }
            frames.push(PlaceId::read(row, 1)?);
            Ok::<_, AnalysisError>(())
        })?;
        each(current, &frames);
        Ok(())
    }
}

/// The number of columns that [`columns`] returns.
pub(crate) const PLACE_COLUMN_COUNT: usize = PLACE_COLUMNS.len();
/// The positions of the columns of a place: function, file, line, address, shown characters of the
/// file.
const PLACE_COLUMNS: [usize; 5] = [0, 1, 2, 3, 4];

/// Returns the SQL for the columns of a place. They come from `function f`, and from a table `t`
/// with `line` and `address`.
pub(crate) fn columns(granularity: Granularity, t: &str) -> String {
    match granularity {
        Granularity::Functions => "f.name, f.filename, NULL, NULL, f.file_end".to_string(),
        Granularity::FileFunctions => "f.name, f.filename, NULL, NULL, NULL".to_string(),
        Granularity::Files => "f.filename, f.filename, NULL, NULL, NULL".to_string(),
        Granularity::Lines => format!("f.name, f.filename, {t}.line, NULL, NULL"),
        Granularity::Addresses => format!("f.name, f.filename, {t}.line, {t}.address, NULL"),
    }
}

/// Returns the SQL for the columns by which places are grouped or ordered.
pub(crate) fn order(granularity: Granularity, t: &str) -> String {
    match granularity {
        Granularity::Functions | Granularity::FileFunctions => "f.name, f.filename".to_string(),
        Granularity::Files => "f.filename".to_string(),
        Granularity::Lines => format!("f.name, f.filename, {t}.line"),
        Granularity::Addresses => format!("f.name, f.filename, {t}.line, {t}.address"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_once() {
        let label = |function: &str, file: &str, line| {
            let place = CodePlace {
                function: function.to_string(),
                file: Some(file.to_string()),
                line,
                ..CodePlace::default()
            };
            place.label()
        };
        for (function, file, line, expected) in [
            ("f", "a.py", Some(3), "f a.py:3"),
            ("f", "a.py", None, "f a.py"),
            ("a.py", "a.py", Some(3), "a.py"),
            ("a.py:3", "a.py", Some(3), "a.py:3"),
            ("a.py:3", "a.py", None, "a.py:3"),
            ("a.py:3", "a.py", Some(4), "a.py:3 a.py:4"),
            ("a.py:x", "a.py", Some(4), "a.py:x a.py:4"),
        ] {
            assert_eq!(label(function, file, line), expected);
        }
    }
}
