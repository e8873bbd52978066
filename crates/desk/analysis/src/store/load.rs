//! Adds a profile to a database. Rows are compared by content, and only rows that the database
//! lacks are written.

mod samples;

use std::collections::BTreeMap;
use std::hash::Hash;
use std::sync::Arc;

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Label, LabelSetIndex, LocationIndex, Profile};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{remove, series};
use crate::error::AnalysisError;
use crate::question::{ProfileQuestion, QuestionSource, TypeSelection};
use heapprof_totals::estimate::{SumSpread, ValueEstimate};
use heapprof_totals::query::Query;

/// The numbers of a table's rows, by content. New rows get the next numbers.
struct NumberedRows<K> {
    index: HashMap<K, i64>,
    next: i64,
}

impl<K: Hash + Eq> NumberedRows<K> {
    fn read(
        transaction: &Transaction<'_>,
        sql: &str,
        key: impl Fn(&rusqlite::Row<'_>) -> rusqlite::Result<K>,
    ) -> Result<Self, AnalysisError> {
        let mut index = HashMap::new();
        let mut next = 1;
        let mut statement = transaction.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let id: i64 = row.get(0)?;
            next = next.max(id + 1);
            index.insert(key(row)?, id);
        }
        Ok(Self { index, next })
    }

    /// Returns the number of `key`, and whether the number is new.
    fn number(&mut self, key: K) -> (i64, bool) {
        let next = self.next;
        let id = *self.index.entry(key).or_insert(next);
        self.next += i64::from(id == next);
        (id, id == next)
    }
}

/// Returns a count as a signed 64-bit number, because SQLite has no unsigned numbers.
fn signed_count(samples: u64) -> i64 {
    i64::try_from(samples).unwrap_or(i64::MAX)
}

/// The samples, variance, least and largest value of an estimate; all are `None` if the value is
/// exact.
type SpreadColumns = (Option<i64>, Option<f64>, Option<i64>, Option<i64>);

fn spread_columns(estimate: Option<ValueEstimate>, spread: Option<SumSpread>) -> SpreadColumns {
    match estimate.zip(spread) {
        None => (None, None, None, None),
        Some((estimate, spread)) => (
            Some(signed_count(spread.samples)),
            Some(spread.variance),
            Some(estimate.low),
            Some(estimate.high),
        ),
    }
}

/// A profile that is to be stored.
pub(super) struct NewProfile<'a> {
    pub(super) name: &'a str,
    pub(super) profile: &'a Arc<Profile>,
    pub(super) labels: &'a BTreeMap<String, String>,
}

/// Stores `new` profiles and removes the `removed` ones. Either all of this is done or nothing.
pub(super) fn load(
    connection: &mut Connection,
    new: &[NewProfile<'_>],
    removed: &[i64],
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), AnalysisError> {
    let questions = new.iter().map(|new| {
        // The sums are computed first, so that a profile that overflows is refused before the
        // database is locked.
        let source = QuestionSource::new(new.name, Arc::clone(new.profile));
        ProfileQuestion::new(vec![source], &Query::default(), TypeSelection::All)
    });
    let questions = questions.collect::<Result<Vec<_>, _>>()?;
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for (new, question) in new.iter().zip(&questions) {
        add(&transaction, new, question, progress)?;
    }
    if !removed.is_empty() {
        remove::remove(&transaction, removed)?;
    }
    transaction.commit()?;
    Ok(())
}

fn add(
    transaction: &Transaction<'_>,
    new: &NewProfile<'_>,
    question: &ProfileQuestion,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), AnalysisError> {
    let NewProfile {
        name,
        profile,
        labels,
    } = *new;
    let work = LoadProgress::new(profile, progress);
    let mut loader = ProfileLoader {
        profile,
        question,
        transaction,
        id: 0,
        work,
    };
    loader.profile(name)?;
    series::write(transaction, loader.id, labels)?;
    let types = loader.types()?;
    let functions = loader.functions()?;
    let locations = loader.locations(&functions)?;
    let label_sets = loader.label_sets()?;
    loader.samples(&types, &locations, &label_sets)
}

struct ProfileLoader<'a> {
    profile: &'a Profile,
    question: &'a ProfileQuestion,
    transaction: &'a Transaction<'a>,
    id: i64,
    work: LoadProgress<'a>,
}

/// The progress of a load, counted in frames. A sample row counts as `FRAMES_PER_ROW` frames.
struct LoadProgress<'a> {
    done: u64,
    reported: u64,
    all: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> LoadProgress<'a> {
    /// Number of frames that take as long to store as one sample row. This was measured.
    const FRAMES_PER_ROW: u64 = 4;

    fn new(profile: &Profile, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        let samples = &profile.samples;
        let rows = (samples.len() * profile.sample_type.len()) as u64;
        let all = samples.frames() as u64 + rows * Self::FRAMES_PER_ROW;
        progress(0, all);
        Self {
            done: 0,
            reported: 0,
            all,
            progress,
        }
    }

    fn advance(&mut self, done: u64) {
        self.done += done;
        if self.done - self.reported >= 1 << 16 {
            self.reported = self.done;
            (self.progress)(self.done.min(self.all), self.all);
        }
    }
}

impl ProfileLoader<'_> {
    fn profile(&mut self, name: &str) -> Result<(), AnalysisError> {
        let p = self.profile;
        let taken: i64 = self.transaction.query_row(
            "SELECT count(*) FROM profile WHERE name = ?1",
            [name],
            |row| row.get(0),
        )?;
        if taken > 0 {
            return Err(AnalysisError::NameTaken(name.to_string()));
        }
        self.transaction.execute(
            "INSERT INTO profile (name, time_nanos, duration_nanos, period_type, period_unit, \
             period, default_sample_type, drop_frames, keep_frames, doc_url, samples) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0)",
            (
                name,
                p.time_nanos,
                p.duration_nanos,
                p.period_type.map_or("", |t| p.text(t.r#type)),
                p.period_type.map_or("", |t| p.text(t.unit)),
                p.period,
                p.text(p.default_sample_type),
                p.text(p.drop_frames),
                p.text(p.keep_frames),
                p.text(p.doc_url),
            ),
        )?;
        self.id = self.transaction.last_insert_rowid();
        let mut insert = self
            .transaction
            .prepare("INSERT INTO comment VALUES (?1, ?2, ?3)")?;
        for (position, &comment) in p.comment.iter().enumerate() {
            insert.execute((self.id, position as i64, p.text(comment)))?;
        }
        Ok(())
    }

    /// Stores the profile's sample types and totals, and returns the number of each sample type in
    /// the database.
    fn types(&self) -> Result<Vec<i64>, AnalysisError> {
        let mut known = NumberedRows::read(
            self.transaction,
            "SELECT id, type, unit FROM sample_type",
            |row| Ok((row.get::<_, String>(1)?, row.get::<_, String>(2)?)),
        )?;
        let mut insert = self
            .transaction
            .prepare("INSERT INTO sample_type VALUES (?1, ?2, ?3)")?;
        let mut total = self
            .transaction
            .prepare("INSERT INTO profile_total VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)")?;
        let mut types = Vec::new();
        for (position, t) in self.profile.sample_type.iter().enumerate() {
            check_differs_from_earlier(self.profile, position)?;
            let (name, unit) = (self.profile.text(t.r#type), self.profile.text(t.unit));
            let (id, new) = known.number((name.to_string(), unit.to_string()));
            if new {
                insert.execute((id, name, unit))?;
            }
            let sums = self.question.parts[0].whole[position];
            let part = &self.question.parts[0];
            let spread = part.whole_spreads[position].map(|known| known.spread);
            let (samples, variance, low, high) =
                spread_columns(part.whole_estimate(position), spread);
            total.execute((
                self.id,
                position as i64,
                id,
                sums.total,
                sums.net,
                samples,
                variance,
                low,
                high,
            ))?;
            types.push(id);
        }
        Ok(types)
    }

    /// Stores functions that the database lacks, and returns the database's number for each row of
    /// the question's function table. The table has the profile's functions, and rows for addresses
    /// without symbols. A row that nothing refers to gets 0.
    fn functions(&self) -> Result<Vec<i64>, AnalysisError> {
        // The module is part of the key, because two programs may have different main functions.
        type FunctionRowKey = (String, String, String, i64, Option<String>, Option<bool>);
        let mut known: NumberedRows<FunctionRowKey> = NumberedRows::read(
            self.transaction,
            "SELECT id, name, system_name, filename, start_line, module, is_library FROM function",
            |row| {
                let texts = (row.get(1)?, row.get(2)?, row.get(3)?);
                Ok((
                    texts.0,
                    texts.1,
                    texts.2,
                    row.get(4)?,
                    row.get(5)?,
                    row.get(6)?,
                ))
            },
        )?;
        let mut insert = self
            .transaction
            .prepare("INSERT INTO function VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        let table = &self.question.table;
        let needed = self.needed_functions();
        let mut numbers = Vec::with_capacity(table.function.len());
        let rows = table.function.iter().zip(self.question.modules());
        for ((function, module), needed) in rows.zip(needed) {
            if !needed {
                numbers.push(0);
                continue;
            }
            let text = |id| table.text(id).to_string();
            let key = (
                text(function.name),
                text(function.system_name),
                text(function.filename),
                function.start_line,
                Some(module.name.clone()),
                Some(module.is_library),
            );
            let (id, new) = known.number(key);
            if new {
                insert.execute((
                    id,
                    table.text(function.name),
                    table.text(function.system_name),
                    table.text(function.filename),
                    function.start_line,
                    &module.name,
                    module.is_library,
                ))?;
            }
            numbers.push(id);
        }
        Ok(numbers)
    }

    /// Returns, for each row of the question's function table, whether a line or a location refers
    /// to it.
    fn needed_functions(&self) -> Vec<bool> {
        let (part, table) = (&self.question.parts[0], &self.question.table);
        let mut needed = vec![false; table.function.len()];
        for line in &self.profile.line {
            needed[part.entities.function[line.function.index()] as usize] = true;
        }
        for location in 0..self.profile.location.len() {
            if let Some(function) = self.question.stand_in(LocationIndex(location as u32)) {
                needed[function as usize] = true;
            }
        }
        let samples = &self.profile.samples;
        let is_empty = |i: usize| samples.stack(i).is_empty();
        if (0..samples.len()).any(is_empty) {
            let empty = table.entity[table.empty_stack as usize].function;
            needed[empty as usize] = true;
        }
        needed
    }

    fn mappings(&self) -> Result<Vec<i64>, AnalysisError> {
        let columns = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(Vec<i64>, String, String)> {
            let numbers = [1, 2, 3, 6, 7, 8, 9].map(|at| row.get(at));
            let numbers = numbers.into_iter().collect::<Result<_, _>>()?;
            Ok((numbers, row.get(4)?, row.get(5)?))
        };
        let mut known = NumberedRows::read(self.transaction, "SELECT * FROM mapping", columns)?;
        let mut insert = self
            .transaction
            .prepare("INSERT INTO mapping VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)")?;
        let mut of_profile = self
            .transaction
            .prepare("INSERT INTO profile_mapping VALUES (?1, ?2, ?3)")?;
        let mut numbers = Vec::new();
        for (position, m) in self.profile.mapping.iter().enumerate() {
            let (filename, build_id) =
                (self.profile.text(m.filename), self.profile.text(m.build_id));
            let columns = vec![
                m.memory_start as i64,
                m.memory_limit as i64,
                m.file_offset as i64,
                i64::from(m.has_functions),
                i64::from(m.has_filenames),
                i64::from(m.has_line_numbers),
                i64::from(m.has_inline_frames),
            ];
            let key = (columns.clone(), filename.to_string(), build_id.to_string());
            let (id, new) = known.number(key);
            if new {
                insert.execute((
                    id, columns[0], columns[1], columns[2], filename, build_id, columns[3],
                    columns[4], columns[5], columns[6],
                ))?;
            }
            of_profile.execute((self.id, position as i64, id))?;
            numbers.push(id);
        }
        Ok(numbers)
    }

    /// Stores locations that the database lacks, and returns the number of each location in the
    /// database.
    fn locations(&self, functions: &[i64]) -> Result<Vec<i64>, AnalysisError> {
        type LocationRowKey = (Option<i64>, i64, bool, Option<i64>, Vec<[i64; 3]>);
        let mappings = self.mappings()?;
        let mut lines: HashMap<i64, Vec<[i64; 3]>> = HashMap::new();
        {
            let mut statement = self.transaction.prepare(
                "SELECT location, function, line, column FROM line ORDER BY location, position",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let line = [row.get(1)?, row.get(2)?, row.get(3)?];
                lines.entry(row.get(0)?).or_default().push(line);
            }
        }
        let lines = std::cell::RefCell::new(lines);
        let mut known: NumberedRows<LocationRowKey> = NumberedRows::read(
            self.transaction,
            "SELECT id, mapping, address, is_folded, function FROM location",
            |row| {
                let of = lines.borrow_mut().remove(&row.get(0)?).unwrap_or_default();
                Ok((row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, of))
            },
        )?;
        let mut insert = self
            .transaction
            .prepare("INSERT INTO location VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let mut insert_line = self
            .transaction
            .prepare("INSERT INTO line VALUES (?1, ?2, ?3, ?4, ?5)")?;
        let function_of = &self.question.parts[0].entities.function;
        let mut numbers = Vec::with_capacity(self.profile.location.len());
        for (at, location) in self.profile.location.iter().enumerate() {
            let lines: Vec<[i64; 3]> = self
                .profile
                .lines(location)
                .iter()
                .map(|l| {
                    let function = functions[function_of[l.function.index()] as usize];
                    [function, l.line, l.column]
                })
                .collect();
            let mapping = location.mapping.map(|m| mappings[m.index()]);
            let address = location.address as i64;
            let stand_in = self.question.stand_in(LocationIndex(at as u32));
            let stand_in = stand_in.map(|function| functions[function as usize]);
            let is_folded = location.is_folded;
            let key = (mapping, address, is_folded, stand_in, lines.clone());
            let (id, new) = known.number(key);
            if new {
                insert.execute((id, mapping, address, is_folded, stand_in))?;
                for (position, [function, line, column]) in lines.into_iter().enumerate() {
                    insert_line.execute((id, position as i64, function, line, column))?;
                }
            }
            numbers.push(id);
        }
        Ok(numbers)
    }

    /// Stores label sets that the database lacks, and returns the number of each label set in the
    /// database; 0 for the empty label set.
    fn label_sets(&self) -> Result<Vec<i64>, AnalysisError> {
        type LabelRowTexts = (String, String, i64, String);
        let mut stored: BTreeMap<i64, Vec<LabelRowTexts>> = Default::default();
        {
            let mut statement = self.transaction.prepare(
                "SELECT label_set, key, str, num, num_unit FROM label ORDER BY label_set, position",
            )?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                let label = (row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?);
                stored.entry(row.get(0)?).or_default().push(label);
            }
        }
        let mut known = NumberedRows {
            next: stored.last_key_value().map_or(1, |(id, _)| id + 1),
            index: stored
                .into_iter()
                .map(|(id, labels)| (labels, id))
                .collect(),
        };
        let mut insert = self
            .transaction
            .prepare("INSERT INTO label VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?;
        let p = self.profile;
        let text = |l: &Label| -> LabelRowTexts {
            let text = |id| p.text(id).to_string();
            (text(l.key), text(l.str), l.num, text(l.num_unit))
        };
        let mut numbers = vec![0];
        for set in 1..p.label_sets.len() as u32 {
            let labels: Vec<LabelRowTexts> = p
                .label_sets
                .get(LabelSetIndex(set))
                .iter()
                .map(text)
                .collect();
            let (id, new) = known.number(labels.clone());
            if new {
                for (position, (key, str, num, num_unit)) in labels.into_iter().enumerate() {
                    insert.execute((id, position as i64, key, str, num, num_unit))?;
                }
            }
            numbers.push(id);
        }
        Ok(numbers)
    }
}

/// Fails if the sample type at `position` is also at an earlier position of the profile.
pub(crate) fn check_differs_from_earlier(
    profile: &Profile,
    position: usize,
) -> Result<(), AnalysisError> {
    let of = profile.sample_type[position];
    if profile.sample_type[..position].contains(&of) {
        return Err(AnalysisError::Sql(format!(
            "can't store a profile with two sample types named {}; the database could not tell \
             them apart",
            profile.text(of.r#type)
        )));
    }
    Ok(())
}
