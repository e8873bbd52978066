//! Waits for events that must come. No test may fail because the machine is busy, so no wait here
//! is short: only a hang reaches the limit.

use std::fmt::Display;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

/// Time after which a wait counts as a hang.
pub const HANG_TIMEOUT: Duration = Duration::from_secs(300);
/// Pause between two checks.
const POLL_PAUSE: Duration = Duration::from_millis(5);

/// Calls `ask` until it returns a value; `None` if it returns no value before [`HANG_TIMEOUT`].
pub fn try_for<T>(mut ask: impl FnMut() -> Option<T>) -> Option<T> {
    let began = Instant::now();
    loop {
        let answer = ask();
        if answer.is_some() || began.elapsed() > HANG_TIMEOUT {
            return answer;
        }
        std::thread::sleep(POLL_PAUSE);
    }
}

/// Calls `ask` until it returns a value. Panics with a message about `what` if it returns no value
/// before [`HANG_TIMEOUT`].
pub fn wait_for<T>(what: impl Display, ask: impl FnMut() -> Option<T>) -> T {
    try_for(ask).unwrap_or_else(|| panic!("hangs: {what} did not come in {HANG_TIMEOUT:?}"))
}

/// Waits until `holds` returns true. Panics with a message about `what` if that takes longer than
/// [`HANG_TIMEOUT`].
pub fn wait_until(what: impl Display, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Waits for the end of a child. A child that hangs is killed.
pub fn ended(child: &mut Child) -> ExitStatus {
    let status = try_for(|| child.try_wait().unwrap());
    status.unwrap_or_else(|| {
        let _ = child.kill();
        let _ = child.wait();
        panic!("hangs: the program did not end in {HANG_TIMEOUT:?}");
    })
}

/// Returns the processor time of this thread so far. Unlike elapsed time, it does not depend on
/// other programs.
pub fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    // The fields after the name begin with the state; the 12th and 13th are utime and stime.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let times = rest.split(' ').skip(11).take(2);
    let ticks: u64 = times.map(|ticks| ticks.parse::<u64>().unwrap()).sum();
    // To user programs, Linux always reports ticks of ten milliseconds.
    Duration::from_millis(10 * ticks)
}

/// Waits until a process is in one of `states`, which are letters of `/proc/PID/stat`. X also means
/// that the process no longer exists.
pub fn in_state(pid: u32, states: &str) {
    let state = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_string());
        rest.map_or(Some('X'), |rest| rest.chars().next())
    };
    wait_until(format_args!("state {states} of process {pid}"), || {
        state().is_some_and(|state| states.contains(state))
    });
}
