//! System calls, made directly, because libc's wrappers set errno, which belongs to the program.

#[cfg(not(any(miri, shuttle)))]
mod clock;
mod exec;
mod file;
mod memory;
mod memory_file;

use std::sync::atomic::AtomicU32;

#[cfg(not(any(miri, shuttle)))]
pub use clock::nanoseconds;
pub use exec::{execute, is_there};
pub use file::{EngineFile, error_text, is_executable, open_regular, read_file, write_to};
pub use file::{
    WaitTimeout, close_last, file_owner, is_same_file, is_short_of_files, leave_files,
    make_folder_in, read_link, rename_in, set_mode_in, stat_in, take_back_signal, unlink_in,
    working_folder,
};
pub use memory::{
    LARGE_PAGE_SIZE, PAGE_SIZE, discard, map_dense, map_word, resident, shared_word, wipe_on_fork,
};
pub use memory::{
    make_executable, map, map_at, map_to_read, mark_as_own, read_each, read_memory, remap, unmap,
};
pub use memory_file::{
    hand_over, map_behind, map_file, memory_file, move_over, send_message, send_request,
    soft_limit, try_to_send,
};

pub use crate::arch::call;
use crate::tls;

#[cfg(shuttle)]
pub use model::{barrier, nanoseconds, register_barrier, sleep, yield_now};

/// Registers this process for [`barrier`]. Returns whether the kernel supports it.
#[cfg(not(shuttle))]
pub fn register_barrier() -> bool {
    const REGISTER_PRIVATE_EXPEDITED: usize = 1 << 4;
    // SAFETY: takes no memory.
    unsafe {
        call(
            libc::SYS_membarrier,
            [REGISTER_PRIVATE_EXPEDITED, 0, 0, 0, 0, 0],
        ) == 0
    }
}

/// Runs a memory barrier on every core that runs a thread of this process. Returns whether the
/// kernel did so.
#[cfg(not(shuttle))]
pub fn barrier() -> bool {
    const PRIVATE_EXPEDITED: usize = 1 << 3;
    // SAFETY: takes no memory.
    unsafe { call(libc::SYS_membarrier, [PRIVATE_EXPEDITED, 0, 0, 0, 0, 0]) == 0 }
}

/// Lets another thread run.
#[cfg(not(shuttle))]
pub fn yield_now() {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}

/// Whether this process has a thread with the kernel's id `number`.
pub fn is_thread(number: i32) -> bool {
    let args = [process_id() as usize, number as usize, 0, 0, 0, 0];
    // SAFETY: no signal is sent.
    unsafe { call(libc::SYS_tgkill, args) == 0 }
}

/// Returns this thread's pending signals, as a set of bits that begins with signal 1.
pub fn waiting_signals() -> u64 {
    let mut set = 0u64;
    let args = [&raw mut set as usize, size_of::<u64>(), 0, 0, 0, 0];
    // SAFETY: the kernel writes the set.
    unsafe { call(libc::SYS_rt_sigpending, args) };
    set
}

/// Returns whether the program's handler for a signal restarts system calls (SA_RESTART); `None` if
/// the program has no handler for it.
pub fn signal_handler(signal: u32) -> Option<bool> {
    // The kernel's structure: the handler, flags, the function that returns from it, and a mask.
    let mut action = [0usize; 4];
    let at = action.as_mut_ptr() as usize;
    let args = [signal as usize, 0, at, size_of::<u64>(), 0, 0];
    // SAFETY: the kernel writes the action.
    let answered = unsafe { call(libc::SYS_rt_sigaction, args) } == 0;
    let is_handled = action[0] != libc::SIG_DFL && action[0] != libc::SIG_IGN;
    (answered && is_handled).then_some(action[1] & libc::SA_RESTART as usize != 0)
}

/// Sleeps for a moment: 50 microseconds.
pub fn nap() {
    sleep(50_000);
}

/// Sleeps for `nanoseconds` (less than a second), or until a signal comes. This waits by a futex on
/// a word that no thread changes. An attacher may have interrupted a sleep of the program in this
/// thread. A nanosleep would make the kernel forget how to resume that sleep.
#[cfg(not(shuttle))]
pub fn sleep(nanoseconds: u64) {
    let word = AtomicU32::new(0);
    futex_wait_for(&word, 0, nanoseconds as i64);
}

/// Sleeps while `word` is `expected`, until [`futex_wake`] wakes this thread. It may also return
/// earlier.
pub fn futex_wait(word: &AtomicU32, expected: u32) {
    wait(word, expected, std::ptr::null());
}

/// Sleeps while `word` is `expected`, until [`futex_wake`] wakes this thread, for at most
/// `nanoseconds`. It may also return earlier.
pub fn futex_wait_for(word: &AtomicU32, expected: u32, nanoseconds: i64) {
    let time = libc::timespec {
        tv_sec: nanoseconds / 1_000_000_000,
        tv_nsec: nanoseconds % 1_000_000_000,
    };
    wait(word, expected, &raw const time);
}

fn wait(word: &AtomicU32, expected: u32, most: *const libc::timespec) {
    const WAIT_PRIVATE: usize = 128;
    let (at, most) = (word.as_ptr() as usize, most as usize);
    let args = [at, WAIT_PRIVATE, expected as usize, most, 0, 0];
    // SAFETY: the word and the time, if there is one, outlive the call.
    unsafe { call(libc::SYS_futex, args) };
}

/// Wakes one thread that sleeps on `word`.
pub fn futex_wake(word: &AtomicU32) {
    const WAKE_PRIVATE: usize = 129;
    // SAFETY: the word outlives the call.
    unsafe {
        call(
            libc::SYS_futex,
            [word.as_ptr() as usize, WAKE_PRIVATE, 1, 0, 0, 0],
        )
    };
}

/// Returns a clock's time in nanoseconds. This version is for Miri.
#[cfg(all(miri, not(shuttle)))]
pub fn nanoseconds(clock: libc::clockid_t) -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid to write.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// Returns the id of this process. A child of the engine may share the memory of the process that
/// it works for. In such a child, this returns the id of that process.
pub fn process_id() -> i32 {
    match tls::works_for() {
        0 => kernels_process_id(),
        process => process,
    }
}

fn kernels_process_id() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_getpid, [0; 6]) as i32 }
}

/// Waits for the end of a child of the engine. Such an end sends the program no signal.
pub fn reap(child: usize) {
    wait_for_child(child, 0);
}

/// Whether a child of the engine has ended.
pub fn has_ended(child: usize) -> bool {
    wait_for_child(child, libc::WNOHANG) != 0
}

fn wait_for_child(child: usize, options: i32) -> isize {
    let options = (options | libc::__WALL) as usize;
    // SAFETY: no status is requested.
    unsafe { call(libc::SYS_wait4, [child, 0, options, 0, 0, 0]) }
}

/// Returns the id of this process's parent.
pub fn parent_id() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_getppid, [0; 6]) as i32 }
}

/// Returns the effective user id of this process.
pub fn effective_user() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_geteuid, [0; 6]) as u32 }
}

/// Returns the effective group id of this process.
pub fn effective_group() -> u32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_getegid, [0; 6]) as u32 }
}

/// Returns the calling thread's id.
pub fn thread_id() -> i32 {
    // SAFETY: takes no arguments.
    unsafe { call(libc::SYS_gettid, [0; 6]) as i32 }
}

/// Maximum length of a thread's name in bytes, including the zero at its end.
pub const THREAD_NAME_LEN: usize = 16;

/// Returns the calling thread's name, which ends with a zero.
pub fn thread_name() -> [u8; THREAD_NAME_LEN] {
    let mut name = [0; THREAD_NAME_LEN];
    let to = name.as_mut_ptr() as usize;
    // SAFETY: the kernel writes `THREAD_NAME_LEN` bytes.
    unsafe {
        call(
            libc::SYS_prctl,
            [libc::PR_GET_NAME as usize, to, 0, 0, 0, 0],
        )
    };
    name
}

/// Returns the kernel's number for this thread's mode of filtering system calls (seccomp). It is 0
/// without a filter; `None` if the kernel does not report it.
pub fn seccomp_mode() -> Option<u32> {
    let args = [libc::PR_GET_SECCOMP as usize, 0, 0, 0, 0, 0];
    // SAFETY: the call only reads a number.
    let mode = unsafe { call(libc::SYS_prctl, args) };
    u32::try_from(mode).ok()
}

/// Whether the calling thread is the process's first thread. In a forked child, the first thread is
/// the one that called fork.
pub fn is_main_thread() -> bool {
    thread_id() == process_id()
}

/// Returns the path by which this program was executed.
pub fn executed_path() -> Option<&'static std::ffi::CStr> {
    // SAFETY: null, or a string that the kernel put at the end of the stack.
    unsafe {
        let at = libc::getauxval(libc::AT_EXECFN) as *const libc::c_char;
        (!at.is_null()).then(|| std::ffi::CStr::from_ptr(at))
    }
}

/// A signal mask that stands for "not blocked". No thread has it, because two signals can't be
/// blocked. [`restore_signals`] does nothing with this mask.
pub const NOT_BLOCKED: u64 = u64::MAX;

/// Blocks all signals of this thread. Returns the previous mask, for [`restore_signals`].
pub fn block_signals() -> u64 {
    let (all, mut before) = (!signal_for_all_threads(), 0u64);
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const all as usize,
        &raw mut before as usize,
        8,
        0,
        0,
    ];
    // SAFETY: both masks are 8 bytes, as the kernel's are.
    unsafe { call(libc::SYS_rt_sigprocmask, args) };
    before
}

/// Returns the mask of libc's own signal for new identities. The thread that changes them waits for
/// all other threads to take it, some of which may wait for this thread.
fn signal_for_all_threads() -> u64 {
    const GLIBC_SETXID: u32 = 33;
    const MUSL_SYNCCALL: u32 = 34;
    let is_musl = cfg!(target_env = "musl") || crate::loader::is_musl();
    1 << (if is_musl { MUSL_SYNCCALL } else { GLIBC_SETXID } - 1)
}

/// Restores the mask that [`block_signals`] returned.
pub fn restore_signals(before: u64) {
    if before == NOT_BLOCKED {
        return;
    }
    let args = [
        libc::SIG_SETMASK as usize,
        &raw const before as usize,
        0,
        8,
        0,
        0,
    ];
    // SAFETY: the mask is 8 bytes, as the kernel's is.
    unsafe { call(libc::SYS_rt_sigprocmask, args) };
}

/// Replacements, for model tests, of the kernel calls by which threads wait for each other. Each
/// call lets another thread run, no time passes, and memory is ordered.
#[cfg(shuttle)]
mod model {
    use shuttle::thread;

    /// Registers nothing, because a model needs no barrier of the kernel.
    pub fn register_barrier() -> bool {
        true
    }

    /// Lets another thread run.
    pub fn barrier() -> bool {
        thread::yield_now();
        true
    }

    /// Lets another thread run.
    pub fn yield_now() {
        thread::yield_now();
    }

    /// Lets another thread run, because no time passes.
    pub fn sleep(_nanoseconds: u64) {
        thread::yield_now();
    }

    /// Returns 0, because no time passes.
    pub fn nanoseconds(_clock: libc::clockid_t) -> i64 {
        0
    }
}
