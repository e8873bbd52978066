//! Reading a stored profile back, so that any question can be asked of it.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{
    Function, FunctionIndex, Label, LabelSetIndex, Line, LocationIndex, Mapping, MappingIndex,
    ProfileBuilder,
};
use rusqlite::{Connection, Row, Statement};

use super::heap::HEAP_TYPES;
use super::schema;
use super::stack_tree::StackTree;
use crate::error::Error;
use crate::question::Source;
use heapprof_totals::totals::Total;

pub(super) fn restore(connection: &Connection, id: i64, name: &str) -> Result<Source, Error> {
    // One transaction reads all of it at one moment, and locks the file once.
    let _at_once = connection.unchecked_transaction()?;
    let mut reader = Reader { connection, id };
    let (types, totals) = reader.types()?;
    let names: Vec<(&str, &str)> = types
        .iter()
        .map(|(_, t, unit)| (t.as_str(), unit.as_str()))
        .collect();
    let mut builder = ProfileBuilder::new(&names);
    reader.header(&mut builder)?;
    let mappings = reader.mappings(&mut builder)?;
    reader.samples(&mut builder, &types, &mappings)?;
    Ok(Source {
        name: name.to_string(),
        profile: Arc::new(builder.finish()),
        totals: Some(totals),
    })
}

struct Reader<'a> {
    connection: &'a Connection,
    id: i64,
}

impl Reader<'_> {
    fn each(
        &self,
        sql: &str,
        params: impl rusqlite::Params,
        mut each: impl FnMut(&Row<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), Error> {
        let mut statement = self.connection.prepare(sql)?;
        let mut rows = statement.query(params)?;
        while let Some(row) = rows.next()? {
            each(row)?;
        }
        Ok(())
    }

    #[allow(clippy::type_complexity)]
    fn types(&self) -> Result<(Vec<(i64, String, String)>, Vec<Total>), Error> {
        let (mut types, mut totals) = (Vec::new(), Vec::new());
        self.each(
            "SELECT s.id, s.type, s.unit, t.total, t.net FROM profile_total t \
             JOIN sample_type s ON s.id = t.type WHERE t.profile = ?1 ORDER BY t.position",
            [self.id],
            |row| {
                types.push((row.get(0)?, row.get(1)?, row.get(2)?));
                totals.push(Total {
                    total: row.get(3)?,
                    net: row.get(4)?,
                });
                Ok(())
            },
        )?;
        Ok((types, totals))
    }

    fn header(&mut self, builder: &mut ProfileBuilder) -> Result<(), Error> {
        self.each("SELECT * FROM profile WHERE id = ?1", [self.id], |row| {
            let text = |builder: &mut ProfileBuilder, at| {
                Ok::<_, rusqlite::Error>(builder.text(&row.get::<_, String>(at)?))
            };
            let (r#type, unit): (String, String) = (row.get(4)?, row.get(5)?);
            let period_type = builder.value_type(&r#type, &unit);
            builder.profile.period_type =
                (!r#type.is_empty() || !unit.is_empty()).then_some(period_type);
            builder.profile.time_nanos = row.get(2)?;
            builder.profile.duration_nanos = row.get(3)?;
            builder.profile.period = row.get(6)?;
            builder.profile.default_sample_type = text(builder, 7)?;
            builder.profile.drop_frames = text(builder, 8)?;
            builder.profile.keep_frames = text(builder, 9)?;
            builder.profile.doc_url = text(builder, 10)?;
            Ok(())
        })?;
        self.each(
            "SELECT text FROM comment WHERE profile = ?1 ORDER BY position",
            [self.id],
            |row| {
                let comment = builder.text(&row.get::<_, String>(0)?);
                builder.profile.comment.push(comment);
                Ok(())
            },
        )
    }

    fn mappings(&self, builder: &mut ProfileBuilder) -> Result<HashMap<i64, MappingIndex>, Error> {
        let mut mappings = HashMap::new();
        self.each(
            "SELECT m.* FROM profile_mapping p JOIN mapping m ON m.id = p.mapping \
             WHERE p.profile = ?1 ORDER BY p.position",
            [self.id],
            |row| {
                let number = |at| Ok::<_, rusqlite::Error>(row.get::<_, i64>(at)? as u64);
                let mapping = Mapping {
                    id: 0,
                    memory_start: number(1)?,
                    memory_limit: number(2)?,
                    file_offset: number(3)?,
                    filename: builder.text(&row.get::<_, String>(4)?),
                    build_id: builder.text(&row.get::<_, String>(5)?),
                    has_functions: row.get(6)?,
                    has_filenames: row.get(7)?,
                    has_line_numbers: row.get(8)?,
                    has_inline_frames: row.get(9)?,
                };
                mappings.insert(row.get(0)?, builder.mapping(mapping));
                Ok(())
            },
        )?;
        Ok(mappings)
    }

    fn samples(
        &self,
        builder: &mut ProfileBuilder,
        types: &[(i64, String, String)],
        mappings: &HashMap<i64, MappingIndex>,
    ) -> Result<(), Error> {
        let rows = self.sample_rows(types)?;
        let tree = StackTree::read(self.connection, rows.key.iter().map(|key| key.0))?;
        let label_sets = self.label_sets(builder, rows.key.iter().map(|key| key.1))?;
        let mut locations = self.locations()?;
        let mut stack = Vec::new();
        for at in 0..rows.key.len() {
            let (mut id, set) = rows.key[at];
            stack.clear();
            while id != 0 {
                let Some((up, location)) = tree.above(id) else {
                    return Err(damaged("stack", id));
                };
                // Parents have smaller numbers. This check keeps a damaged table from leading in
                // circles.
                if up >= id {
                    return Err(Error::Sql(format!(
                        "stack {id} is its own ancestor: the database is damaged"
                    )));
                }
                stack.push(locations.get(builder, mappings, location)?);
                id = up;
            }
            let set = match label_sets.get(&set) {
                Some(&set) => set,
                None if set == 0 => LabelSetIndex(0),
                None => return Err(damaged("label set", set)),
            };
            let samples = &mut builder.profile.samples;
            samples.push(stack.iter().copied(), rows.values(at), set);
            if !rows.spread.is_empty() {
                let of_row = |column| rows.spread.get(&(at, column)).copied().unwrap_or_default();
                let known = (0..types.len()).map(of_row);
                let (sampled, variance): (Vec<u64>, Vec<f64>) = known.unzip();
                samples.set_spread(samples.len() - 1, &sampled, &variance);
            }
        }
        Ok(())
    }

    /// The rows of all sample tables, by stack and label set.
    fn sample_rows(&self, types: &[(i64, String, String)]) -> Result<SampleRows, Error> {
        let column_of = |(name, unit): (&str, &str)| {
            let mut types = types.iter();
            types.position(|t| t.1 == name && t.2 == unit)
        };
        let mut rows = SampleRows::new(types.len());
        if schema::is_narrow(self.connection)? {
            let heap = HEAP_TYPES.map(column_of);
            self.each(
                "SELECT stack, label_set, alloc_objects, alloc_space, inuse_objects, inuse_space \
                 FROM heap_sample WHERE profile = ?1 ORDER BY stack, label_set",
                [self.id],
                |row| {
                    let at = rows.push((row.get(0)?, row.get(1)?));
                    for (n, column) in heap.iter().enumerate() {
                        let value = row.get(2 + n)?;
                        match *column {
                            Some(column) => rows.value[at * types.len() + column] = value,
                            None if value != 0 => rows.unknown = Some(HEAP_TYPES[n].0.to_string()),
                            None => {}
                        }
                    }
                    Ok(())
                },
            )?;
            let mut spread = Vec::new();
            self.each(
                "SELECT stack, label_set, alloc_objects_sampled, alloc_objects_variance, \
                 alloc_space_sampled, alloc_space_variance, inuse_objects_sampled, \
                 inuse_objects_variance, inuse_space_sampled, inuse_space_variance \
                 FROM heap_spread WHERE profile = ?1 ORDER BY stack, label_set",
                [self.id],
                |row| {
                    let key: (i64, i64) = (row.get(0)?, row.get(1)?);
                    for (n, column) in heap.iter().enumerate() {
                        let known = (row.get(2 + 2 * n)?, row.get(3 + 2 * n)?);
                        if let (Some(column), (Some(sampled), Some(variance))) = (column, known) {
                            spread.push((key, *column, sampled, variance));
                        }
                    }
                    Ok(())
                },
            )?;
            for (key, column, sampled, variance) in spread {
                if let Ok(at) = rows.key.binary_search(&key) {
                    rows.spread(at, column, sampled, variance)?;
                }
            }
        }
        self.long_rows(types, &mut rows)?;
        match rows.unknown.take() {
            Some(name) => Err(Error::Sql(format!(
                "the total of sample type {name} is missing: the database is damaged"
            ))),
            None => Ok(rows),
        }
    }

    /// The rows of values of one type each.
    fn long_rows(
        &self,
        types: &[(i64, String, String)],
        rows: &mut SampleRows,
    ) -> Result<(), Error> {
        let (table, known) = match (
            schema::is_narrow(self.connection)?,
            schema::has_spread(self.connection)?,
        ) {
            (true, _) => ("other_sample", "sampled, variance"),
            (false, true) => ("sample", "sampled, variance"),
            (false, false) => ("sample", "NULL, NULL"),
        };
        let columns: HashMap<i64, usize> = types
            .iter()
            .enumerate()
            .map(|(column, t)| (t.0, column))
            .collect();
        let mut long: Vec<LongRow> = Vec::new();
        self.each(
            &format!(
                "SELECT type, stack, label_set, value, {known} FROM {table} WHERE profile = ?1"
            ),
            [self.id],
            |row| {
                let r#type: i64 = row.get(0)?;
                match columns.get(&r#type) {
                    Some(&column) => {
                        let known: (Option<i64>, Option<f64>) = (row.get(4)?, row.get(5)?);
                        let known = known.0.zip(known.1);
                        long.push(((row.get(1)?, row.get(2)?), column, row.get(3)?, known));
                    }
                    None => rows.unknown = Some(r#type.to_string()),
                }
                Ok(())
            },
        )?;
        if long.is_empty() {
            return Ok(());
        }
        long.sort_unstable_by_key(|row| (row.0, row.1));
        // Both are in order, so they are merged into rows that are.
        let wide = std::mem::replace(rows, SampleRows::new(types.len()));
        rows.unknown.clone_from(&wide.unknown);
        let mut next = 0;
        for run in long.chunk_by(|a, b| a.0 == b.0) {
            let key = run[0].0;
            while next < wide.key.len() && wide.key[next] < key {
                rows.take(&wide, next)?;
                next += 1;
            }
            let at = match wide.key.get(next) {
                Some(same) if *same == key => {
                    next += 1;
                    rows.take(&wide, next - 1)?
                }
                _ => rows.push(key),
            };
            for &(_, column, value, known) in run {
                rows.value[at * types.len() + column] = value;
                if let Some((sampled, variance)) = known {
                    rows.spread(at, column, sampled, variance)?;
                }
            }
        }
        while next < wide.key.len() {
            rows.take(&wide, next)?;
            next += 1;
        }
        Ok(())
    }

    /// The label sets of these numbers.
    fn label_sets(
        &self,
        builder: &mut ProfileBuilder,
        ids: impl Iterator<Item = i64>,
    ) -> Result<HashMap<i64, LabelSetIndex>, Error> {
        let mut ids: Vec<i64> = ids.filter(|&id| id != 0).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut found = HashMap::new();
        let mut statement = self.connection.prepare(
            "SELECT key, str, num, num_unit FROM label WHERE label_set = ?1 ORDER BY position",
        )?;
        for id in ids {
            let mut rows = statement.query([id])?;
            let mut labels = Vec::new();
            while let Some(row) = rows.next()? {
                labels.push(Label {
                    key: builder.text(&row.get::<_, String>(0)?),
                    str: builder.text(&row.get::<_, String>(1)?),
                    num: row.get(2)?,
                    num_unit: builder.text(&row.get::<_, String>(3)?),
                });
            }
            if !labels.is_empty() {
                found.insert(id, builder.label_set(&mut labels));
            }
        }
        Ok(found)
    }

    fn locations(&self) -> Result<Locations<'_>, Error> {
        let prepare = |sql| self.connection.prepare(sql);
        Ok(Locations {
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
}

/// The values of samples of one stack with one label set, a row of as many values as there are
/// types.
struct SampleRows {
    types: usize,
    /// The stack and the label set of each row, ascending.
    key: Vec<(i64, i64)>,
    value: Vec<i64>,
    /// Samples and variance of a value, by row and column.
    spread: HashMap<(usize, usize), (u64, f64)>,
    /// A type that has values, but no total.
    unknown: Option<String>,
}

/// A value of one type: its stack and label set, its column, and what is known of it.
type LongRow = ((i64, i64), usize, i64, Option<(i64, f64)>);

impl SampleRows {
    fn new(types: usize) -> Self {
        Self {
            types,
            key: Vec::new(),
            value: Vec::new(),
            spread: HashMap::new(),
            unknown: None,
        }
    }

    /// Adds a row without values, and returns its number.
    fn push(&mut self, key: (i64, i64)) -> usize {
        self.key.push(key);
        self.value.resize(self.key.len() * self.types, 0);
        self.key.len() - 1
    }

    /// Adds a row of others, and returns its number.
    fn take(&mut self, others: &Self, at: usize) -> Result<usize, Error> {
        let own = self.push(others.key[at]);
        let first = own * self.types;
        self.value[first..].copy_from_slice(others.values(at));
        for column in 0..self.types {
            if let Some(&known) = others.spread.get(&(at, column)) {
                self.spread.insert((own, column), known);
            }
        }
        Ok(own)
    }

    fn values(&self, at: usize) -> &[i64] {
        &self.value[at * self.types..][..self.types]
    }

    /// Notes what is known of a value.
    fn spread(
        &mut self,
        at: usize,
        column: usize,
        sampled: i64,
        variance: f64,
    ) -> Result<(), Error> {
        if !variance.is_finite() || variance < 0.0 {
            return Err(Error::Sql(
                "a variance is none: the database is damaged".to_string(),
            ));
        }
        self.spread
            .insert((at, column), (sampled.unsigned_abs(), variance));
        Ok(())
    }
}

/// The locations of the database. Those that a stack uses become the profile's, with their
/// functions.
struct Locations<'a> {
    location: Statement<'a>,
    line: Statement<'a>,
    function: Statement<'a>,
    /// The profile's locations, by their number in the database.
    used: Vec<Option<LocationIndex>>,
    /// The same for numbers that no sound database has.
    far: HashMap<i64, LocationIndex>,
    functions: HashMap<i64, FunctionIndex>,
}

/// The numbers up to this one are looked up by position.
const NEAR: usize = 1 << 24;

impl Locations<'_> {
    fn get(
        &mut self,
        builder: &mut ProfileBuilder,
        mappings: &HashMap<i64, MappingIndex>,
        id: i64,
    ) -> Result<LocationIndex, Error> {
        let near = usize::try_from(id).ok().filter(|&at| at < NEAR);
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
    ) -> Result<LocationIndex, Error> {
        let (mapping, address, is_folded) = {
            let mut rows = self.location.query([id])?;
            let Some(row) = rows.next()? else {
                return Err(damaged("location", id));
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
                .ok_or_else(|| damaged("mapping", number))
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
            .collect::<Result<Vec<Line>, Error>>()?;
        Ok(builder.location(mapping, address, is_folded, &lines))
    }

    fn function(&mut self, builder: &mut ProfileBuilder, id: i64) -> Result<FunctionIndex, Error> {
        if let Some(&index) = self.functions.get(&id) {
            return Ok(index);
        }
        let mut rows = self.function.query([id])?;
        let Some(row) = rows.next()? else {
            return Err(damaged("function", id));
        };
        let mut text = |at| {
            Ok::<_, Error>(
                builder.text(
                    row.get_ref(at)?
                        .as_str()
                        .map_err(|_| damaged("function", id))?,
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

pub(super) fn damaged(what: &str, id: i64) -> Error {
    Error::Sql(format!("{what} {id} is missing: the database is damaged"))
}
