//! Restrictions on a connection to a file of unknown origin: the file may have been made to do
//! harm.
//!
//! Nothing in the file is run: triggers and views are off, and functions that reach outside the
//! database are not trusted. The file can still pretend to have more rows than it has: for example,
//! pages that are their own children have endless rows. So the work of heapprof's own statements is
//! bounded by the size of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;

use crate::error::AnalysisError;

/// Largest value, in bytes. A longer value is neither stored nor read.
const MAX_VALUE_BYTES: i32 = 64 << 20;
/// Smallest limit on the length of a value, in bytes. Small files have this limit.
const MIN_VALUE_BYTES_LIMIT: u64 = 1 << 20;

/// Number of steps of SQLite's virtual machine after which the budget is checked.
const STEPS_PER_CHECK: i32 = 10_000;
/// Number of steps that are allowed for a file of any size.
const MIN_STEP_LIMIT: u64 = 10_000_000;
/// Number of steps that are allowed for each byte of the file. Reading and removing take less than
/// one step per byte.
const MAX_STEPS_PER_BYTE: u64 = 10;

/// The number of steps of SQLite's virtual machine that a connection may still take.
#[derive(Clone)]
pub(super) struct StepBudget(Arc<AtomicU64>);

impl StepBudget {
    /// Allows additional steps for `bytes` of data that are not in the file yet.
    pub(super) fn allow(&self, bytes: u64) {
        let more = bytes.saturating_mul(MAX_STEPS_PER_BYTE);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_add(more))
            });
    }

    /// Allows additional steps for a file of this size.
    pub(super) fn allow_file(&self, bytes: u64) {
        self.allow(bytes.saturating_add(MIN_STEP_LIMIT / MAX_STEPS_PER_BYTE));
    }

    /// Subtracts steps, and returns whether they exceeded the remaining steps.
    fn spend(&self, steps: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(steps)
            })
            .is_err()
    }
}

#[cfg(test)]
impl StepBudget {
    pub(super) fn remaining_steps(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Returns the number of steps that are allowed for a file of this size.
pub(super) fn step_limit(bytes: u64) -> u64 {
    MIN_STEP_LIMIT.saturating_add(bytes.saturating_mul(MAX_STEPS_PER_BYTE))
}

/// Sets up a new connection, before the first statement. `bytes` is the size of the file.
pub(super) fn set_up(connection: &mut Connection, bytes: u64) -> Result<StepBudget, AnalysisError> {
    for (config, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
    ] {
        connection.set_db_config(config, value)?;
    }
    let longest = bytes.clamp(MIN_VALUE_BYTES_LIMIT, MAX_VALUE_BYTES as u64);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest as i32)?;
    let budget = StepBudget(Arc::new(AtomicU64::new(step_limit(bytes))));
    let of_handler = budget.clone();
    let handler = move || of_handler.spend(STEPS_PER_CHECK as u64);
    connection.progress_handler(STEPS_PER_CHECK, Some(handler))?;
    // SQLite checks cells when it reads a page. No statement before this one reads a page.
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(budget)
}

/// Raises the limit on the length of values, because a new value may be longer than the whole file.
pub(super) fn set_up_to_write(connection: &Connection) -> Result<(), AnalysisError> {
    Ok(connection
        .set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
        .map(drop)?)
}

/// Prepares a connection for the user's own statements. They may take as long as they need, and use
/// the database's views, which are known to be the same as heapprof's.
pub(super) fn set_up_for_statements(connection: &mut Connection) -> Result<(), AnalysisError> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)?;
    Ok(connection.progress_handler(0, None::<fn() -> bool>)?)
}
