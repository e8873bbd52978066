//! Suspends threads of another process for a moment, so that its memory can be copied.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use heapprof_process::{status, thread_state};

use crate::arch::SYSTEM_CALL;
use crate::thread::StoppedThread;

/// A suspended thread. When this value is dropped, the thread resumes as if it had not been
/// suspended: with its registers unchanged, and in the same system call. All methods must be called
/// from one thread.
#[derive(Debug)]
pub struct SuspendedThread(StoppedThread);

impl SuspendedThread {
    /// Suspends a thread of a process. `memory` is the process's memory (`/proc/PID/mem`). Returns
    /// `None` if the thread can't be suspended now, because it works inside the kernel.
    ///
    /// # Errors
    /// The thread may be gone, or belong to another user.
    pub fn new(pid: u32, tid: u32, memory: &File) -> io::Result<Option<Self>> {
        let is_busy = || thread_state(pid, tid) == Some('D');
        let Some(mut stopped) = StoppedThread::new(tid, false, is_busy)? else {
            return Ok(None);
        };
        let is_call = |next: u64| {
            let mut before = [0; 2];
            let at = next.wrapping_sub(2);
            at < 1 << 62 && memory.read_exact_at(&mut before, at).is_ok() && before == SYSTEM_CALL
        };
        stopped.prepare_restart(is_call, || has_signals(tid));
        Ok(Some(Self(stopped)))
    }

    /// Returns the thread's registers that may contain addresses.
    #[must_use]
    pub fn registers(&self) -> [u64; 17] {
        let all = self.0.registers();
        std::array::from_fn(|i| all[i])
    }

    /// Returns the thread's stack pointer.
    #[must_use]
    pub fn stack(&self) -> u64 {
        self.0.place().1
    }
}

/// Whether a thread has a pending signal that it does not block.
pub(crate) fn has_signals(tid: u32) -> bool {
    let sets = status(tid, ["SigPnd:", "ShdPnd:", "SigBlk:"]);
    let [own, shared, blocked] = sets.map(|set| u64::from_str_radix(&set, 16).unwrap_or(0));
    (own | shared) & !blocked != 0
}
