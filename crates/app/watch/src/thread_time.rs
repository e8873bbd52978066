//! Measures what a watch costs.

use rustix::time::{ClockId, clock_gettime};

/// Returns how much processor time this thread has used, in microseconds.
#[must_use]
pub fn thread_time_micros() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec
        .saturating_mul(1_000_000)
        .saturating_add(time.tv_nsec / 1000)
}
