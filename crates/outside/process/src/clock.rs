//! The clock of the machine: the present time as a number since 1970 UTC. If the clock shows an
//! earlier time, the number is 0.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn since_1970() -> Duration {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default()
}

/// Returns the present time in milliseconds since 1970 UTC.
#[must_use]
pub fn millis() -> i64 {
    i64::try_from(since_1970().as_millis()).unwrap_or(i64::MAX)
}

/// Returns the present time in nanoseconds since 1970 UTC.
#[must_use]
pub fn nanos() -> i64 {
    i64::try_from(since_1970().as_nanos()).unwrap_or(i64::MAX)
}
