//! The samples of stored profiles, added up by stack and labels as a plan says.

use foldhash::{HashMap, HashMapExt};
use rusqlite::{Connection, Row};

use super::heap::HEAP_TYPES;
use super::schema;
use crate::error::AnalysisError;
use crate::sample_plan::{PlannedAddition, SamplePlan};

/// For each of [`HEAP_TYPES`], the position in `heap_spread` of the column with the number of
/// samples. The variance is in the next column.
const SPREAD_COLUMNS: [usize; HEAP_TYPES.len()] = [2, 4, 6, 8];

/// Sums by stack and label set. A row has as many values as there are columns.
pub(crate) struct SampleRows {
    columns: usize,
    /// The stack and the label set of each row.
    pub(crate) key: Vec<(i64, i64)>,
    value: Vec<i64>,
    /// The samples and the variance of a value, by row and column.
    spread: HashMap<(usize, usize), (f64, f64)>,
    /// The row of each stack and label set, if several profiles are added up.
    row_of: Option<HashMap<(i64, i64), usize>>,
    is_whole: bool,
}

impl SampleRows {
    /// Makes an empty table with this number of columns.
    pub(crate) fn new(columns: usize) -> Self {
        Self {
            columns,
            key: Vec::new(),
            value: Vec::new(),
            spread: HashMap::new(),
            row_of: Some(HashMap::new()),
            is_whole: false,
        }
    }

    /// Reads the samples of a plan and adds them up. The rows are in the order of their keys.
    pub(super) fn read(connection: &Connection, plan: &SamplePlan) -> Result<Self, AnalysisError> {
        let mut rows = Self {
            row_of: None,
            is_whole: plan.is_whole,
            ..Self::new(plan.types.len())
        };
        let is_narrow = schema::is_narrow(connection)?;
        let has_spread = schema::has_spread(connection)?;
        if plan.parts.len() > 1 || !is_narrow {
            rows.row_of = Some(HashMap::new());
        }
        for (profile, adds) in &plan.parts {
            if is_narrow {
                rows.heap(connection, *profile, adds)?;
            }
            rows.others(connection, *profile, adds, is_narrow, has_spread)?;
        }
        Ok(rows.finish(plan.divisor))
    }

    /// Returns the number of the row with this key. A row is added for a new key.
    pub(crate) fn row(&mut self, key: (i64, i64)) -> usize {
        let next = self.key.len();
        let row = match &mut self.row_of {
            Some(row_of) => *row_of.entry(key).or_insert(next),
            None => next,
        };
        if row == next {
            self.key.push(key);
            self.value.resize(self.value.len() + self.columns, 0);
        }
        row
    }

    /// Adds a value to a row as `add` says: to the column `add.to`, multiplied by `add.times`.
    pub(crate) fn add(
        &mut self,
        row: usize,
        add: &PlannedAddition,
        value: i64,
    ) -> Result<(), AnalysisError> {
        let sum = &mut self.value[row * self.columns + add.to];
        let more = value.checked_mul(add.times);
        let more = more.and_then(|more| sum.checked_add(more));
        *sum = more.ok_or_else(|| {
            let what = format!("the sum of {}", add.from.0);
            AnalysisError::from(heapprof_totals::TotalsError::BeyondRange(what))
        })?;
        Ok(())
    }

    /// Adds the spread of a value.
    pub(crate) fn add_spread(
        &mut self,
        row: usize,
        add: &PlannedAddition,
        known: (i64, f64),
    ) -> Result<(), AnalysisError> {
        let (sampled, variance) = known;
        if !variance.is_finite() || variance < 0.0 {
            return Err(AnalysisError::Sql(
                "a variance is negative or not finite: the database is damaged".to_string(),
            ));
        }
        let sum = self.spread.entry((row, add.to)).or_default();
        sum.0 += sampled.unsigned_abs() as f64 * add.times as f64;
        sum.1 += variance * add.times as f64;
        Ok(())
    }

    /// Adds the rows of `heap_sample`, which have the four values of heap samples.
    fn heap(
        &mut self,
        connection: &Connection,
        profile: i64,
        adds: &[PlannedAddition],
    ) -> Result<(), AnalysisError> {
        let of = |n: usize| {
            let is_it = move |add: &&PlannedAddition| (&*add.from.0, &*add.from.1) == HEAP_TYPES[n];
            adds.iter().filter(is_it)
        };
        let of_column: [Vec<&PlannedAddition>; 4] = [0, 1, 2, 3].map(|n| of(n).collect());
        // If only one profile is read, its rows come in order, and each has a new key.
        let mut statement = connection.prepare_cached(
            "SELECT stack, label_set, alloc_objects, alloc_space, inuse_objects, inuse_space \
             FROM heap_sample WHERE profile = ?1 ORDER BY stack, label_set",
        )?;
        let mut found = statement.query([profile])?;
        while let Some(row) = found.next()? {
            let values: [i64; 4] = [row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?];
            let is_wanted = |n: &usize| values[*n] != 0 && !of_column[*n].is_empty();
            let is_lost = |n: &usize| values[*n] != 0 && of_column[*n].is_empty();
            if let Some(n) = (0..4).find(is_lost).filter(|_| self.is_whole) {
                return Err(lost_type_error(HEAP_TYPES[n].0));
            }
            if !(0..4).any(|n| is_wanted(&n)) {
                continue;
            }
            let at = self.row((row.get(0)?, row.get(1)?));
            for n in (0..4).filter(is_wanted) {
                for add in &of_column[n] {
                    self.add(at, add, values[n])?;
                }
            }
        }
        let with_spread = of_column.each_ref().map(|adds| {
            let with_spread = adds.iter().filter(|add| add.with_spread);
            with_spread.copied().collect::<Vec<&PlannedAddition>>()
        });
        if with_spread.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let mut statement = connection.prepare_cached(
            "SELECT stack, label_set, alloc_objects_sampled, alloc_objects_variance, \
             alloc_space_sampled, alloc_space_variance, inuse_objects_sampled, \
             inuse_objects_variance, inuse_space_sampled, inuse_space_variance \
             FROM heap_spread WHERE profile = ?1 ORDER BY stack, label_set",
        )?;
        let mut found = statement.query([profile])?;
        while let Some(row) = found.next()? {
            let Some(at) = self.find_row((row.get(0)?, row.get(1)?)) else {
                continue;
            };
            for (n, adds) in with_spread.iter().enumerate() {
                if let Some(known) = read_sampled_variance(row, SPREAD_COLUMNS[n])? {
                    for add in adds {
                        self.add_spread(at, add, known)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the row of a key, if a row with that key was read.
    pub(crate) fn find_row(&self, key: (i64, i64)) -> Option<usize> {
        match &self.row_of {
            Some(row_of) => row_of.get(&key).copied(),
            None => self.key.binary_search(&key).ok(),
        }
    }

    /// Adds the rows that have only one value, of one sample type. An older database has only such
    /// rows.
    fn others(
        &mut self,
        connection: &Connection,
        profile: i64,
        adds: &[PlannedAddition],
        is_narrow: bool,
        has_spread: bool,
    ) -> Result<(), AnalysisError> {
        let table = if is_narrow { "other_sample" } else { "sample" };
        let columns = match is_narrow || has_spread {
            true => "s.sampled, s.variance",
            false => "NULL, NULL",
        };
        let mut statement = connection.prepare_cached(&format!(
            "SELECT t.type, t.unit, s.stack, s.label_set, s.value, {columns} FROM {table} s \
             LEFT JOIN sample_type t ON t.id = s.type WHERE s.profile = ?1"
        ))?;
        let mut found = statement.query([profile])?;
        while let Some(row) = found.next()? {
            let (Some(name), Some(unit)) = (
                row.get_ref(0)?.as_str_or_null().unwrap_or_default(),
                row.get_ref(1)?.as_str_or_null().unwrap_or_default(),
            ) else {
                return Err(AnalysisError::Sql(
                    "a sample type is missing: the database is damaged".to_string(),
                ));
            };
            let wanted = adds.iter();
            let wanted = wanted.filter(|add| (&*add.from.0, &*add.from.1) == (name, unit));
            let mut wanted = wanted.peekable();
            if wanted.peek().is_none() {
                match self.is_whole {
                    true => return Err(lost_type_error(name)),
                    false => continue,
                }
            }
            if self.row_of.is_none() {
                let rows = self.key.iter().enumerate();
                self.row_of = Some(rows.map(|(at, &key)| (key, at)).collect());
            }
            let at = self.row((row.get(2)?, row.get(3)?));
            let known = read_sampled_variance(row, 5)?;
            for add in wanted {
                self.add(at, add, row.get(4)?)?;
                if let Some(known) = known.filter(|_| add.with_spread) {
                    self.add_spread(at, add, known)?;
                }
            }
        }
        Ok(())
    }

    /// Divides all sums, rounded to the nearest whole number, and sorts the rows by their keys.
    pub(crate) fn finish(mut self, divisor: i64) -> Self {
        self.divide(divisor);
        self.in_order()
    }

    fn divide(&mut self, divisor: i64) {
        if divisor == 1 {
            return;
        }
        for value in &mut self.value {
            let half = if *value < 0 {
                -divisor / 2
            } else {
                divisor / 2
            };
            *value = value.saturating_add(half) / divisor;
        }
        for known in self.spread.values_mut() {
            *known = (known.0 / divisor as f64, known.1 / divisor as f64);
        }
    }

    /// Sorts the rows by stack and label set.
    fn in_order(self) -> Self {
        if self.key.is_sorted() {
            return self;
        }
        let mut order: Vec<usize> = (0..self.key.len()).collect();
        order.sort_unstable_by_key(|&at| self.key[at]);
        let mut place = vec![0; order.len()];
        for (new, &old) in order.iter().enumerate() {
            place[old] = new;
        }
        let mut value = Vec::with_capacity(self.value.len());
        for &at in &order {
            value.extend_from_slice(self.values(at));
        }
        Self {
            columns: self.columns,
            key: order.iter().map(|&at| self.key[at]).collect(),
            value,
            spread: self
                .spread
                .into_iter()
                .map(|((row, column), known)| ((place[row], column), known))
                .collect(),
            row_of: None,
            is_whole: self.is_whole,
        }
    }

    /// Returns the values of a row.
    pub(crate) fn values(&self, row: usize) -> &[i64] {
        &self.value[row * self.columns..][..self.columns]
    }

    /// Returns the spreads of the values of a row, as samples and variances; `None` if all values
    /// are exact.
    pub(crate) fn spread(&self, row: usize) -> Option<(Vec<u64>, Vec<f64>)> {
        if self.spread.is_empty() {
            return None;
        }
        let of = |column| self.spread.get(&(row, column)).copied().unwrap_or_default();
        let known = (0..self.columns).map(of);
        Some(
            known
                .map(|(n, v): (f64, f64)| (n.max(0.0).round() as u64, v.max(0.0)))
                .unzip(),
        )
    }
}

/// Returns the error for values of a type that the profile does not have.
fn lost_type_error(sample_type: &str) -> AnalysisError {
    AnalysisError::Sql(format!(
        "the total of sample type {sample_type} is missing: the database is damaged"
    ))
}

/// Reads the samples and the variance of a value from two columns; `None` if the value is exact.
fn read_sampled_variance(row: &Row<'_>, sampled: usize) -> rusqlite::Result<Option<(i64, f64)>> {
    let variance = sampled + 1;
    let sampled: Option<i64> = row.get(sampled)?;
    let variance: Option<f64> = row.get(variance)?;
    Ok(sampled.zip(variance))
}
