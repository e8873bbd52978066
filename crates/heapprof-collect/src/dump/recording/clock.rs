//! The thread of ours that makes a dump each interval; if there can be none, the program's
//! allocations look at the clock.
//!
//! Some calls a process may make only while it has one thread, and some act on all of its threads
//! alike. Such calls must not fail because of our thread, so the thread ends before them ([`end`]).
//! Each dump is made by a thread without the program's open files, because the program may close
//! all numbers that it does not know, and open its own files by them.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicUsize, Ordering};

use super::{Error, OPTIONS, dump, is_running};
use crate::options::Triggers;
use crate::platform::{status, sys};
use crate::reason::Reason;
use crate::{apart, trigger};

static INTERVAL_MS: AtomicU32 = AtomicU32::new(0);
/// Which clock thread is the current one. The others end. The threads wait on this word.
static ROUND: AtomicU32 = AtomicU32::new(0);
/// The last one's `pthread_t`, until somebody takes it to wait for its end.
static THREAD: AtomicUsize = AtomicUsize::new(0);
/// The kernel's numbers of that thread and of the last one that made a dump for it: libc takes a
/// thread for ended a little before the kernel does.
static NUMBERS: [AtomicI32; 2] = [const { AtomicI32::new(0) }; 2];
const CLOCK: usize = 0;
const DUMPER: usize = 1;
/// How many threads are about to wait for the clock's end.
static ENDING: AtomicU32 = AtomicU32::new(0);
/// The longest sleep, in milliseconds. It may take this long to see that all threads of the program
/// except this one have ended.
const SLICE: u32 = 100;

/// Whether there can be no threads yet.
static HELD: AtomicBool = AtomicBool::new(false);

/// Says that the loader is still at work, so that there can be no threads until [`let_go`].
pub fn hold() {
    HELD.store(true, Ordering::Relaxed);
}

/// Says that there can be threads from now on.
pub fn let_go() {
    if HELD.swap(false, Ordering::Relaxed) && is_running() {
        apart::guarded(|| {
            if let Some(triggers) = triggers() {
                trigger::stop_counting();
                start(&triggers);
            }
        });
    }
}

/// The triggers that the recording dumps on.
fn triggers() -> Option<Triggers> {
    OPTIONS.with(|o| o.as_ref().map(|o| o.triggers))
}

/// Dumps on the interval of these triggers from now on, if they have one.
pub(super) fn start(triggers: &Triggers) {
    let Some(interval) = triggers.interval else {
        stop();
        return;
    };
    let ms = u32::try_from(interval.as_millis())
        .unwrap_or(u32::MAX)
        .max(1);
    if HELD.load(Ordering::Relaxed) {
        trigger::count_time_inline(triggers);
        return;
    }
    if INTERVAL_MS.swap(ms, Ordering::Relaxed) != 0 {
        // A clock runs already, and goes on with the new interval.
        return;
    }
    if let Some(earlier) = take() {
        // SAFETY: nobody else waits for it. It was told to end.
        unsafe { libc::pthread_detach(earlier as libc::pthread_t) };
    }
    let round = ROUND.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    let thread = spawn(clock, round as usize);
    if let Some(thread) = thread {
        THREAD.store(thread, Ordering::SeqCst);
    }
    // Whoever ended the thread before `THREAD` was set did not wait for it.
    if thread.is_none() || ROUND.load(Ordering::SeqCst) != round {
        stop();
        trigger::count_time_inline(triggers);
    }
}

/// Tells the clock to end, if one runs. It is still there when this returns.
pub(super) fn stop() {
    if INTERVAL_MS.swap(0, Ordering::SeqCst) != 0 {
        ROUND.fetch_add(1, Ordering::SeqCst);
        sys::futex_wake(&ROUND);
    }
}

/// The clock's thread, for whoever is the first to ask.
fn take() -> Option<usize> {
    let thread = THREAD.swap(0, Ordering::SeqCst);
    (thread != 0).then_some(thread)
}

/// Called in a forked child, which has no such thread. A thread that is made here would surprise
/// it.
pub(super) fn forked(triggers: Option<Triggers>) {
    THREAD.store(0, Ordering::Relaxed);
    NUMBERS.iter().for_each(|n| n.store(0, Ordering::Relaxed));
    ENDING.store(0, Ordering::Relaxed);
    if INTERVAL_MS.swap(0, Ordering::Relaxed) != 0
        && let Some(triggers) = triggers
    {
        trigger::count_time_inline(&triggers);
    }
}

/// Ends the clock's thread and waits until it is gone; from now on the program's allocations look
/// at the clock.
pub fn end() {
    // Nothing is asked of the kernel if there is no clock.
    if THREAD.load(Ordering::Acquire) == 0 && ENDING.load(Ordering::Acquire) == 0
        || !super::is_own_process()
    {
        return;
    }
    apart::guarded(|| {
        ENDING.fetch_add(1, Ordering::AcqRel);
        let ran = INTERVAL_MS.load(Ordering::Acquire) != 0;
        stop();
        // SAFETY: the call only reads.
        let own = unsafe { libc::pthread_self() } as usize;
        if let Some(thread) = take().filter(|&thread| thread != own) {
            // This is not pthread_join, in which the program's thread could be cancelled.
            // SAFETY: nobody else waits for it.
            while unsafe {
                libc::pthread_tryjoin_np(thread as libc::pthread_t, std::ptr::null_mut())
            } == libc::EBUSY
            {
                sys::nap();
            }
            for number in &NUMBERS {
                let number = number.swap(0, Ordering::AcqRel);
                while number != 0 && sys::is_thread(number) {
                    sys::nap();
                }
            }
        }
        if ran && let Some(triggers) = triggers() {
            trigger::count_time_inline(&triggers);
        }
        ENDING.fetch_sub(1, Ordering::AcqRel);
        // Another thread may have got to it first.
        while ENDING.load(Ordering::Acquire) != 0 {
            sys::nap();
        }
    });
}

type Main = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

/// Makes a thread of our own that takes no signals; `None` if threads are denied.
fn spawn(main: Main, argument: usize) -> Option<usize> {
    let mask = sys::block_signals();
    // SAFETY: plain pthread calls with valid arguments; the thread's function lives as long as the
    // library.
    let made = unsafe {
        let mut attributes = std::mem::zeroed();
        // This is a number with glibc, and a pointer with musl.
        let mut id: libc::pthread_t = std::mem::zeroed();
        let made = libc::pthread_attr_init(&raw mut attributes) == 0
            && libc::pthread_attr_setstacksize(&raw mut attributes, 256 << 10) == 0
            && libc::pthread_create(
                &raw mut id,
                &raw const attributes,
                main,
                std::ptr::without_provenance_mut(argument),
            ) == 0;
        made.then_some(id as usize)
    };
    sys::restore_signals(mask);
    made
}

extern "C" fn clock(round: *mut libc::c_void) -> *mut libc::c_void {
    let round = round.addr() as u32;
    apart::apart(|| {
        NUMBERS[CLOCK].store(sys::thread_id(), Ordering::Release);
        let process = sys::process_id();
        let (mut slept, mut unlooked) = (0, 0);
        while ROUND.load(Ordering::Relaxed) == round {
            let ms = INTERVAL_MS.load(Ordering::Relaxed);
            let slice = SLICE.min(ms.saturating_sub(slept)).max(1);
            sys::futex_wait_for(&ROUND, round, i64::from(slice) * 1_000_000);
            slept += slice;
            unlooked += slice;
            if unlooked >= SLICE {
                unlooked = 0;
                if status::is_deserted() {
                    // All others are gone: without us the process would have ended.
                    let code = status::code_of_main_thread();
                    if code != 0 {
                        // This is a bare system call, because the last thread's code is the
                        // process's.
                        // SAFETY: it ends this thread, of which nothing is needed any more.
                        unsafe { sys::call(libc::SYS_exit, [usize::from(code), 0, 0, 0, 0, 0]) };
                    }
                    // If libc ended the others, it calls exit after this one.
                    break;
                }
            }
            if slept >= ms && ROUND.load(Ordering::Relaxed) == round {
                slept = 0;
                if sys::process_id() == process && is_running() && is_too_early() {
                    // Another dump is under way, or an exec. The clock tries again soon.
                    slept = ms.saturating_sub(SLICE);
                }
            }
        }
    });
    std::ptr::null_mut()
}

/// Makes a dump in a thread of its own. Returns whether it could not be made yet.
fn is_too_early() -> bool {
    let Some(thread) = spawn(make_with_own_files, 0) else {
        return make();
    };
    let mut result = std::ptr::null_mut();
    // SAFETY: nobody else waits for it.
    unsafe { libc::pthread_join(thread as libc::pthread_t, &raw mut result) };
    !result.is_null()
}

extern "C" fn make_with_own_files(_: *mut libc::c_void) -> *mut libc::c_void {
    apart::apart(|| {
        NUMBERS[DUMPER].store(sys::thread_id(), Ordering::Release);
        sys::leave_files();
        std::ptr::without_provenance_mut(usize::from(make()))
    })
}

/// Makes a dump. Returns whether it could not be made yet.
fn make() -> bool {
    matches!(dump(Reason::Interval, None, false), Err(Error::Busy))
}
