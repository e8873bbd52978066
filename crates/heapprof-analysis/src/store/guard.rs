//! What a connection to a file of unknown origin may do: a database is data, and somebody may have
//! made it to do harm.
//!
//! Nothing in the file is run: triggers and views are off, and functions that reach out of the
//! database are not trusted. What the file can still do is claim to hold more than it does: pages
//! that are their own children have rows without end. So the work of our own statements is bounded
//! by the size of the file.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use rusqlite::limits::Limit;

use crate::error::Error;

/// The longest value, in bytes. A longer one is neither stored nor read.
const LONGEST: i32 = 64 << 20;
/// The smallest limit on the length of values, for small files.
const LEAST: u64 = 1 << 20;

/// The work is checked each time SQLite's machine has taken so many steps.
const STEPS: i32 = 10_000;
/// The steps that are allowed whatever the size of the file.
const ALWAYS: u64 = 10_000_000;
/// The steps that are allowed for each byte of the file. Reading and removing take less than 1.
const PER_BYTE: u64 = 10;

/// How many steps a connection may still take.
#[derive(Clone)]
pub(super) struct Budget(Arc<AtomicU64>);

impl Budget {
    /// Allows more steps, for data that is not in the file yet.
    pub(super) fn allow(&self, bytes: u64) {
        let more = bytes.saturating_mul(PER_BYTE);
        let _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                Some(left.saturating_add(more))
            });
    }

    /// Allows what a file of this size may cost, beside what is left.
    pub(super) fn allow_file(&self, bytes: u64) {
        self.allow(bytes.saturating_add(ALWAYS / PER_BYTE));
    }

    /// Takes steps off, and returns whether that was more than was left.
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

/// Sets up a new connection, before the first statement. `bytes` is the size of the file.
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
    // SQLite checks cells when it reads a page. No statement before this one reads a page.
    connection.pragma_update(None, "cell_size_check", true)?;
    Ok(budget)
}

/// Lets new rows have values that are longer than the file is now.
pub(super) fn set_up_to_write(connection: &Connection) -> Result<(), Error> {
    Ok(connection
        .set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)
        .map(drop)?)
}

/// Lets a statement that the user wrote take as long as it needs and use the views, which were
/// compared with ours.
pub(super) fn set_up_for_statements(connection: &mut Connection) -> Result<(), Error> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, true)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST)?;
    Ok(connection.progress_handler(0, None::<fn() -> bool>)?)
}
