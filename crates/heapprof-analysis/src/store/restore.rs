//! Reading a stored profile back, so that any question can be asked of it.

use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{
    Function, FunctionIndex, Label, LabelSetIndex, Line, LocationIndex, Mapping, MappingIndex,
    ProfileBuilder,
};
use rusqlite::{Connection, Row, Statement};

use super::bytes;
use super::stack_tree::StackTree;
use crate::error::Error;
use crate::question::Source;
use heapprof_totals::totals::Total;

pub(super) fn restore(connection: &Connection, id: i64, name: &str) -> Result<Source, Error> {
    let mut reader = Reader { connection, id };
    let (types, totals) = reader.types()?;
    if let Some(profile) = bytes::read(connection, id, &totals)? {
        return Ok(Source::new(name, profile));
    }
    let names: Vec<(&str, &str)> = types
        .iter()
        .map(|(_, t, unit)| (t.as_str(), unit.as_str()))
        .collect();
    let mut builder = ProfileBuilder::new(&names);
    reader.header(&mut builder)?;
    let mappings = reader.mappings(&mut builder)?;
    let columns: HashMap<i64, usize> = types
        .iter()
        .enumerate()
        .map(|(column, t)| (t.0, column))
        .collect();
    reader.samples(&mut builder, &columns, &mappings)?;
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
        columns: &HashMap<i64, usize>,
        mappings: &HashMap<i64, MappingIndex>,
    ) -> Result<(), Error> {
        let tree = StackTree::read(self.connection)?;
        let mut rows: Vec<((i64, i64), usize, i64)> = Vec::new();
        let mut unknown = None;
        let mut spread: HashMap<((i64, i64), usize), (u64, f64)> = HashMap::new();
        let known = match super::schema::has_spread(self.connection)? {
            true => "sampled, variance",
            false => "NULL, NULL",
        };
        self.each(
            &format!(
                "SELECT type, stack, label_set, value, {known} FROM sample WHERE profile = ?1"
            ),
            [self.id],
            |row| {
                match columns.get(&row.get(0)?) {
                    Some(&column) => {
                        let at = (row.get(1)?, row.get(2)?);
                        rows.push((at, column, row.get(3)?));
                        if let (Some(sampled), Some(variance)) = (row.get(4)?, row.get(5)?) {
                            spread.insert((at, column), (i64::unsigned_abs(sampled), variance));
                        }
                    }
                    None => unknown = Some(row.get(0)?),
                }
                Ok(())
            },
        )?;
        if let Some(r#type) = unknown {
            return Err(damaged("the total of sample type", r#type));
        }
        if spread
            .values()
            .any(|&(_, v): &(u64, f64)| !v.is_finite() || v < 0.0)
        {
            return Err(Error::Sql(
                "a variance is none: the database is damaged".to_string(),
            ));
        }
        rows.sort_unstable();
        let label_sets = self.label_sets(builder)?;
        let mut locations = self.locations()?;
        let mut values = vec![0; columns.len()];
        let mut stack = Vec::new();
        for run in rows.chunk_by(|a, b| a.0 == b.0) {
            let (mut at, set) = run[0].0;
            values.fill(0);
            for &(_, column, value) in run {
                values[column] = value;
            }
            stack.clear();
            while at != 0 {
                let Some(position) = tree.position(at) else {
                    return Err(damaged("stack", at));
                };
                let (up, location) = tree.above(position);
                // Parents have smaller numbers. This check keeps a damaged table from leading in
                // circles.
                if up >= at {
                    return Err(Error::Sql(format!(
                        "stack {at} is its own ancestor: the database is damaged"
                    )));
                }
                stack.push(locations.get(builder, mappings, location)?);
                at = up;
            }
            let set = match label_sets.get(&set) {
                Some(&set) => set,
                None if set == 0 => LabelSetIndex(0),
                None => return Err(damaged("label set", set)),
            };
            builder
                .profile
                .samples
                .push(stack.iter().copied(), &values, set);
            if !spread.is_empty() {
                let (mut sampled, mut variance) = (vec![0; values.len()], vec![0.0; values.len()]);
                for &(at, column, _) in run {
                    if let Some(&known) = spread.get(&(at, column)) {
                        (sampled[column], variance[column]) = known;
                    }
                }
                let samples = &mut builder.profile.samples;
                samples.set_spread(samples.len() - 1, &sampled, &variance);
            }
        }
        Ok(())
    }

    fn label_sets(
        &self,
        builder: &mut ProfileBuilder,
    ) -> Result<HashMap<i64, LabelSetIndex>, Error> {
        let mut stored: HashMap<i64, Vec<Label>> = HashMap::new();
        self.each(
            "SELECT label_set, key, str, num, num_unit FROM label WHERE label_set IN \
             (SELECT label_set FROM sample WHERE profile = ?1) ORDER BY label_set, position",
            [self.id],
            |row| {
                let label = Label {
                    key: builder.text(row.get_ref(1)?.as_str()?),
                    str: builder.text(row.get_ref(2)?.as_str()?),
                    num: row.get(3)?,
                    num_unit: builder.text(row.get_ref(4)?.as_str()?),
                };
                stored.entry(row.get(0)?).or_default().push(label);
                Ok(())
            },
        )?;
        Ok(stored
            .into_iter()
            .map(|(id, mut labels)| (id, builder.label_set(&mut labels)))
            .collect())
    }

    fn locations(&self) -> Result<Locations<'_>, Error> {
        let mut lines: HashMap<i64, Vec<[i64; 3]>> = HashMap::new();
        self.each(
            "SELECT location, function, line, column FROM line ORDER BY location, position",
            [],
            |row| {
                let line = [row.get(1)?, row.get(2)?, row.get(3)?];
                lines.entry(row.get(0)?).or_default().push(line);
                Ok(())
            },
        )?;
        let mut stored = HashMap::new();
        self.each("SELECT * FROM location", [], |row| {
            let id: i64 = row.get(0)?;
            let address = row.get::<_, i64>(2)? as u64;
            let lines = lines.remove(&id).unwrap_or_default();
            stored.insert(id, (row.get(1)?, address, row.get::<_, bool>(3)?, lines));
            Ok(())
        })?;
        Ok(Locations {
            stored,
            used: HashMap::new(),
            function: self.connection.prepare(
                "SELECT name, system_name, filename, start_line FROM function WHERE id = ?1",
            )?,
            functions: HashMap::new(),
        })
    }
}

/// A stored location: the number of its mapping in the database, its address, whether it is folded,
/// and its lines as function, line and column.
type Stored = (Option<i64>, u64, bool, Vec<[i64; 3]>);

/// The locations of the database. Those that a stack uses become the profile's, with their
/// functions. What only other profiles use is left out.
struct Locations<'a> {
    stored: HashMap<i64, Stored>,
    /// The profile's locations, by their number in the database.
    used: HashMap<i64, LocationIndex>,
    function: Statement<'a>,
    functions: HashMap<i64, FunctionIndex>,
}

impl Locations<'_> {
    fn get(
        &mut self,
        builder: &mut ProfileBuilder,
        mappings: &HashMap<i64, MappingIndex>,
        id: i64,
    ) -> Result<LocationIndex, Error> {
        if let Some(&index) = self.used.get(&id) {
            return Ok(index);
        }
        let Some((mapping, address, is_folded, lines)) = self.stored.remove(&id) else {
            return Err(damaged("location", id));
        };
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
        let index = builder.location(mapping, address, is_folded, &lines);
        self.used.insert(id, index);
        Ok(index)
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
