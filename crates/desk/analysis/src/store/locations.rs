//! Reads the locations that stacks in a database use, with their lines and functions.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{
    Function, FunctionIndex, Line, LocationIndex, MappingIndex, ProfileBuilder,
};
use rusqlite::{Connection, Statement};

use super::damage::damage_error;
use crate::error::AnalysisError;

/// Reads locations of the database. A location that a stack uses is added to the profile, with its
/// functions.
pub(super) struct LocationReader<'a> {
    location: Statement<'a>,
    line: Statement<'a>,
    function: Statement<'a>,
    /// The profile's locations by their numbers in the database, for numbers below
    /// [`MAX_INDEXED_LOCATION`].
    used: Vec<Option<LocationIndex>>,
    /// The profile's locations by their numbers in the database, for numbers from
    /// [`MAX_INDEXED_LOCATION`] on. No sound database has such numbers.
    far: HashMap<i64, LocationIndex>,
    functions: HashMap<i64, FunctionIndex>,
}

/// Location numbers below this limit are positions in a list. Larger numbers are looked up in a
/// map.
const MAX_INDEXED_LOCATION: usize = 1 << 24;

impl<'a> LocationReader<'a> {
    pub(super) fn new(connection: &'a Connection) -> Result<Self, AnalysisError> {
        let prepare = |sql| connection.prepare(sql);
        Ok(Self {
            location: prepare("SELECT mapping, address, is_folded FROM location WHERE id = ?1")?,
            line: prepare(
                "SELECT function, line, column FROM line WHERE location = ?1 ORDER BY position",
            )?,
            function: prepare(
                "SELECT name, system_name, filename, start_line FROM function WHERE id = ?1",
            )?,
            used: Vec::new(),
            far: HashMap::new(),
            functions: HashMap::new(),
        })
    }

    /// Returns the profile's location for this number in the database.
    pub(super) fn get(
        &mut self,
        builder: &mut ProfileBuilder,
        mappings: &HashMap<i64, MappingIndex>,
        id: i64,
    ) -> Result<LocationIndex, AnalysisError> {
        let near = usize::try_from(id)
            .ok()
            .filter(|&at| at < MAX_INDEXED_LOCATION);
        let known = match near {
            Some(at) => self.used.get(at).copied().flatten(),
            None => self.far.get(&id).copied(),
        };
        if let Some(index) = known {
            return Ok(index);
        }
        let index = self.read(builder, mappings, id)?;
        match near {
            Some(at) => {
                if self.used.len() <= at {
                    self.used.resize(at + 1, None);
                }
                self.used[at] = Some(index);
            }
            None => drop(self.far.insert(id, index)),
        }
        Ok(index)
    }

    fn read(
        &mut self,
        builder: &mut ProfileBuilder,
        mappings: &HashMap<i64, MappingIndex>,
        id: i64,
    ) -> Result<LocationIndex, AnalysisError> {
        let (mapping, address, is_folded) = {
            let mut rows = self.location.query([id])?;
            let Some(row) = rows.next()? else {
                return Err(damage_error("location", id));
            };
            let mapping: Option<i64> = row.get(0)?;
            (mapping, row.get::<_, i64>(1)? as u64, row.get(2)?)
        };
        let mut lines: Vec<[i64; 3]> = Vec::new();
        {
            let mut rows = self.line.query([id])?;
            while let Some(row) = rows.next()? {
                lines.push([row.get(0)?, row.get(1)?, row.get(2)?]);
            }
        }
        let known = |number| {
            mappings
                .get(&number)
                .copied()
                .ok_or_else(|| damage_error("mapping", number))
        };
        let mapping = mapping.map(known).transpose()?;
        let lines = lines
            .into_iter()
            .map(|[function, line, column]| {
                let function = self.function(builder, function)?;
                Ok(Line {
                    function,
                    line,
                    column,
                })
            })
            .collect::<Result<Vec<Line>, AnalysisError>>()?;
        Ok(builder.location(mapping, address, is_folded, &lines))
    }

    fn function(
        &mut self,
        builder: &mut ProfileBuilder,
        id: i64,
    ) -> Result<FunctionIndex, AnalysisError> {
        if let Some(&index) = self.functions.get(&id) {
            return Ok(index);
        }
        let mut rows = self.function.query([id])?;
        let Some(row) = rows.next()? else {
            return Err(damage_error("function", id));
        };
        let mut text = |at| {
            Ok::<_, AnalysisError>(
                builder.text(
                    row.get_ref(at)?
                        .as_str()
                        .map_err(|_| damage_error("function", id))?,
                ),
            )
        };
        let function = Function {
            id: 0,
            name: text(0)?,
            system_name: text(1)?,
            filename: text(2)?,
            start_line: row.get(3)?,
        };
        let index = builder.function(function);
        self.functions.insert(id, index);
        Ok(index)
    }
}
