//! The clocks of the machine: the present time as a number since 1970 UTC, which is 0 if the clock
//! shows an earlier time, and the processor time of a thread.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

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

/// Returns the processor time that this thread has used so far.
#[must_use]
pub fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}
