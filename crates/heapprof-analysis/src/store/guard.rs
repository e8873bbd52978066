//! What a connection to a file of unknown origin may do: a database is data, and somebody may have
//! made it to do harm.
//!
//! Nothing that it holds is run: triggers and views are off, and functions that reach out of it are
//! not trusted. What it can still do is claim more than there is: pages that are their own children
//! have rows without end. So the work of our own statements is bounded by the size of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;

use crate::error::Error;

/// The longest value, in bytes. A longer one is neither stored nor read.
const LONGEST: i32 = 64 << 20;
/// The shortest bound on values, for files that are small.
const LEAST: u64 = 1 << 20;

/// After how many steps of SQLite's machine the work is looked at.
const STEPS: i32 = 10_000;
/// What may be done whatever the file's size.
const ALWAYS: u64 = 10_000_000;
/// What may be done for each byte of the file. Reading and removing take less than 1.
const PER_BYTE: u64 = 10;

/// How many steps a connection may still take.
#[derive(Clone)]
pub(super) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Allows more, for work that is not in the file yet.
    pub(super) fn allow(&self, bytes: u64) {
        let more = bytes.saturating_mul(PER_BYTE);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_add(more))
            });
    }

    /// Takes steps off. Whether that was more than was left.
    fn spend(&self, steps: u64) -> bool {
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(steps)
            })
            .is_err()
    }
}

#[cfg(test)]
impl Budget {
    pub(super) fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The steps that a file of this size may cost.
pub(super) fn allowed(bytes: u64) -> u64 {
    ALWAYS.saturating_add(bytes.saturating_mul(PER_BYTE))
}

/// Sets a new connection up, before the first statement. `bytes` is the size of the file.
pub(super) fn set_up(connection: &mut Connection, bytes: u64) -> Result<Budget, Error> {
    for (config, value) in [
        (DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true),
        (DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false),
        (DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false),
        (DbConfig::SQLITE_DBCONFIG_DQS_DDL, false),
    ] {
        connection.set_db_config(config, value)?;
    }
    let longest = bytes.clamp(LEAST, LONGEST as u64);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, longest as i32)?;
    let budget = Budget(Arc::new(AtomicU64::new(allowed(bytes))));
    let of_handler = budget.clone();
    let handler = move || of_handler.spend(STEPS as u64);
    connection.progress_handler(STEPS, Some(handler))?;
    // Cells are checked when a page is read. No statement before this one reads a page.
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(budget)
}

/// Lets new rows have values that are larger than the file is now.
pub(super) fn set_up_to_write(connection: &Connection) -> Result<(), Error> {
    Ok(connection
        .set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)
        .map(drop)?)
}

/// Lets a statement of the user's take its time, and use the views, which were compared with ours.
pub(super) fn set_up_for_statements(connection: &mut Connection) -> Result<(), Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    Ok(connection.progress_handler(0, None::<fn() -> bool>)?)
}
