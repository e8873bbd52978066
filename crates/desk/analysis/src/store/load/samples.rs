//! Stores the rows of a profile's samples and of their stacks.

use heapprof_profile::Profile;
use heapprof_totals::estimate::SumSpread;
use rusqlite::params_from_iter;
use rusqlite::types::Value;

use super::{LoadProgress, NumberedRows, ProfileLoader, signed_count};
use crate::error::AnalysisError;
use crate::store::heap::{self, spread_of_samples};

impl ProfileLoader<'_> {
    /// Returns the number of each sample's stack. Stacks that are not in the database are added.
    fn stacks(&mut self, locations: &[i64]) -> Result<Vec<i64>, AnalysisError> {
        let known: NumberedRows<(i64, i64)> = NumberedRows::read(
            self.transaction,
            "SELECT id, parent, location FROM stack",
            |row| Ok((row.get(1)?, row.get(2)?)),
        )?;
        let transaction = self.transaction;
        let mut insert = transaction.prepare("INSERT INTO stack VALUES (?1, ?2, ?3)")?;
        let NumberedRows { index, mut next } = known;
        let first_new = next;
        let work = &mut self.work;
        self.profile
            .samples
            .number_stacks(locations, |parent, location, frames| {
                work.advance(frames);
                // A stack above a new parent is new, too.
                if parent < first_new
                    && let Some(&id) = index.get(&(parent, location))
                {
                    return Ok(id);
                }
                let id = next;
                next += 1;
                insert.execute((id, parent, location))?;
                Ok(id)
            })
    }

    pub(super) fn samples(
        &mut self,
        types: &[i64],
        locations: &[i64],
        label_sets: &[i64],
    ) -> Result<(), AnalysisError> {
        let samples = &self.profile.samples;
        // Rows are written in the order of the primary key, so that pages fill up.
        let mut placed: Vec<(i64, i64, u32)> = self
            .stacks(locations)?
            .into_iter()
            .enumerate()
            .map(|(i, stack)| (stack, label_sets[samples.label_set(i).index()], i as u32))
            .collect();
        placed.sort_unstable();
        let of_one_stack = |a: &(i64, i64, u32), b: &(i64, i64, u32)| (a.0, a.1) == (b.0, b.1);
        let worth = |at: &(i64, i64, u32)| samples.values(at.2 as usize).iter().any(|&v| v != 0);
        let distinct = placed.chunk_by(of_one_stack);
        let distinct = distinct.filter(|run| run.iter().any(worth)).count();
        self.transaction.execute(
            "UPDATE profile SET samples = ?1 WHERE id = ?2",
            [distinct as i64, self.id],
        )?;
        let (heap, mut others) = heap::columns(self.profile);
        let is_known = samples.has_spread();
        let mut sums = vec![0; self.profile.sample_type.len()];
        {
            let mut insert = self
                .transaction
                .prepare("INSERT INTO heap_sample VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
            let mut spread = self.transaction.prepare(
                "INSERT INTO heap_spread VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            )?;
            for run in placed.chunk_by(of_one_stack) {
                let (stack, label_set, _) = run[0];
                add_up(self.profile, run, &mut sums);
                let [ao, a, io, i] = heap.map(|column| column.map_or(0, |column| sums[column]));
                if [ao, a, io, i] != [0; 4] {
                    insert.execute((self.id, stack, label_set, ao, a, io, i))?;
                }
                if is_known {
                    let known = heap.map(|column| {
                        let column = column.filter(|&column| sums[column] != 0)?;
                        spread_of_samples(self.profile, run.iter().map(|at| at.2), column)
                    });
                    if known.iter().any(Option::is_some) {
                        let key = [self.id, stack, label_set].map(Value::Integer);
                        let known = known.into_iter().flat_map(spread_cells);
                        spread.execute(params_from_iter(key.into_iter().chain(known)))?;
                    }
                }
                self.work
                    .advance(run.len() as u64 * LoadProgress::FRAMES_PER_ROW);
            }
        }
        let mut insert = self
            .transaction
            .prepare("INSERT INTO other_sample VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?;
        others.sort_by_key(|&column| types[column]);
        for column in others {
            for run in placed.chunk_by(of_one_stack) {
                let (stack, label_set, _) = run[0];
                let values = run.iter().map(|at| samples.values(at.2 as usize)[column]);
                let value: i64 = values.sum();
                if value != 0 {
                    let numbers = [self.id, types[column], stack, label_set, value];
                    let known = spread_cells(spread_of_samples(
                        self.profile,
                        run.iter().map(|at| at.2),
                        column,
                    ));
                    let row = numbers.map(Value::Integer).into_iter().chain(known);
                    insert.execute(params_from_iter(row))?;
                }
                self.work
                    .advance(run.len() as u64 * LoadProgress::FRAMES_PER_ROW);
            }
        }
        Ok(())
    }
}

/// Samples of one stack with one label set.
type SampleRun<'a> = &'a [(i64, i64, u32)];

/// Adds up the values of samples.
fn add_up(profile: &Profile, run: SampleRun<'_>, sums: &mut [i64]) {
    sums.fill(0);
    for at in run {
        let values = profile.samples.values(at.2 as usize);
        for (sum, value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
}

/// Returns the cells for a spread: samples and variance. Both are NULL for an exact value.
fn spread_cells(known: Option<SumSpread>) -> [Value; 2] {
    match known {
        Some(known) => [signed_count(known.samples).into(), known.variance.into()],
        None => [Value::Null, Value::Null],
    }
}
