//! The interval clock, a thread of the engine. It makes a dump at each interval, answers `record
//! --live`, and scans for lines that grow. If the process can have no such thread, the program's
//! allocations check the clock.
//!
//! Some calls are allowed only in a process with one thread, and some act on all threads. Such
//! calls must not fail because of the engine's thread, so this thread ends before them ([`end`]).
//! Each dump is made by a thread that does not share the program's open files, because the program
//! may close all descriptors that it does not know, and reuse their numbers.

use std::alloc::{Layout, alloc, dealloc};
use std::sync::atomic::Ordering;

use heapprof_platform::{status, sys};

use crate::dump::DumpError;
use crate::dump::clock::{CLOCK_THREAD, DUMPER_THREAD};
use crate::engine::Engine;
use crate::options::DumpTriggers;
use crate::reason::DumpReason;
use crate::recording::dumps::{dump, scan};

/// The longest sleep of the clock's thread, in milliseconds. When all other threads have ended, the
/// clock's thread may take this long to notice that.
const MAX_SLEEP: u32 = 100;
/// The interval of a clock that makes no dumps, in milliseconds.
const NO_INTERVAL: u32 = u32::MAX;

/// Notes that the process can have threads from now on, and starts a clock that had to wait for
/// this.
pub(super) fn allow_threads(engine: &'static Engine) {
    let (process, dumping) = (&engine.process, &engine.dumping);
    if dumping.clock.is_suspended.swap(false, Ordering::Relaxed) && process.recorded.is_running() {
        engine.with_guard_and_signals_blocked(|| {
            if let Some(triggers) = dumping.triggers(process) {
                dumping.due.stop_counting();
                start(engine, &triggers);
            }
        });
    }
}

/// Starts the clock if `triggers` needs one: for dumps at an interval, for `record --live`, or for
/// reports of the growth of lines. Otherwise stops the clock.
pub(super) fn start(engine: &'static Engine, triggers: &DumpTriggers) {
    let (clock, due) = (&engine.dumping.clock, &engine.dumping.due);
    let ms = match triggers.interval {
        Some(interval) => u32::try_from(interval.as_millis())
            .unwrap_or(NO_INTERVAL)
            .max(1),
        None if triggers.live || triggers.line_growth.is_some() => NO_INTERVAL,
        None => {
            clock.stop();
            return;
        }
    };
    if clock.is_suspended.load(Ordering::Relaxed) {
        due.count_time_inline(triggers);
        return;
    }
    if clock.interval.swap(ms, Ordering::Relaxed) != 0 {
        // A clock runs already, and goes on with the new interval.
        return;
    }
    if let Some(earlier) = clock.take_thread() {
        // SAFETY: no other thread waits for it. It was told to end.
        unsafe { libc::pthread_detach(earlier as libc::pthread_t) };
    }
    let round = clock.round.fetch_add(1, Ordering::SeqCst).wrapping_add(1);
    let thread = ClockRound { engine, round }.spawn();
    if let Some(thread) = thread {
        clock.set_thread(thread);
    }
    // A thread that ended the clock meanwhile did not know of this thread, or of its round.
    let is_ended = clock.interval.load(Ordering::SeqCst) == 0;
    if thread.is_none() || is_ended || clock.round.load(Ordering::SeqCst) != round {
        clock.end_round();
        due.count_time_inline(triggers);
    }
}

/// Ends the clock's thread and waits until it is gone. From then on the program's allocations check
/// the clock.
pub(super) fn end(engine: &'static Engine) {
    let (process, clock) = (&engine.process, &engine.dumping.clock);
    // Nothing is asked of the kernel if there is no clock.
    if clock.is_gone() || !process.is_own() {
        return;
    }
    engine.with_guard_and_signals_blocked(|| {
        clock.ending.fetch_add(1, Ordering::AcqRel);
        let ran = clock.interval.load(Ordering::Acquire) != 0;
        clock.stop();
        // SAFETY: the call only reads.
        let own = unsafe { libc::pthread_self() } as usize;
        if let Some(thread) = clock.take_thread().filter(|&thread| thread != own) {
            // This is not pthread_join, in which the program's thread could be cancelled.
            // SAFETY: no other thread waits for it.
            while unsafe {
                libc::pthread_tryjoin_np(thread as libc::pthread_t, std::ptr::null_mut())
            } == libc::EBUSY
            {
                // The clock may be one that another thread has started since.
                clock.end_round();
                sys::nap();
            }
            for number in &clock.numbers {
                let number = number.swap(0, Ordering::AcqRel);
                while number != 0 && sys::is_thread(number) {
                    clock.end_round();
                    sys::nap();
                }
            }
        }
        if ran && let Some(triggers) = engine.dumping.triggers(process) {
            engine.dumping.due.count_time_inline(&triggers);
        }
        clock.ending.fetch_sub(1, Ordering::AcqRel);
        // Another thread may have taken the clock's thread first, and may still be waiting.
        while clock.ending.load(Ordering::Acquire) != 0 {
            sys::nap();
        }
    });
}

type ThreadMain = extern "C" fn(*mut libc::c_void) -> *mut libc::c_void;

/// Starts a thread of the engine that takes no signals. Returns `None` if the kernel denies the
/// thread.
fn spawn(engine: &Engine, main: ThreadMain, argument: *mut libc::c_void) -> Option<usize> {
    let mask = engine.process.block_signals();
    // SAFETY: plain pthread calls with valid arguments; the thread's function lives as long as the
    // library.
    let made = unsafe {
        let mut attributes = std::mem::zeroed();
        // This is a number with glibc, and a pointer with musl.
        let mut id: libc::pthread_t = std::mem::zeroed();
        let made = libc::pthread_attr_init(&raw mut attributes) == 0
            && libc::pthread_attr_setstacksize(&raw mut attributes, 256 << 10) == 0
            && libc::pthread_create(&raw mut id, &raw const attributes, main, argument) == 0;
        made.then_some(id as usize)
    };
    sys::restore_signals(mask);
    made
}

/// The engine and the round of a clock's thread.
struct ClockRound {
    engine: &'static Engine,
    round: u32,
}

impl ClockRound {
    const LAYOUT: Layout = Layout::new::<Self>();

    /// Starts the thread. Returns `None` if the kernel denies the thread, or if there is no memory.
    fn spawn(self) -> Option<usize> {
        let engine = self.engine;
        // SAFETY: the layout is not empty. The block is the thread's, or nothing's if there is
        // none.
        unsafe {
            let block = alloc(Self::LAYOUT).cast::<Self>();
            if block.is_null() {
                return None;
            }
            block.write(self);
            let thread = spawn(engine, run_clock, block.cast());
            if thread.is_none() {
                dealloc(block.cast(), Self::LAYOUT);
            }
            thread
        }
    }

    /// Whether the clock is still in this round.
    fn is_on(&self) -> bool {
        self.engine.dumping.clock.round.load(Ordering::Relaxed) == self.round
    }

    /// Makes a dump at each interval, until the round is over.
    fn count_intervals(self) {
        let Self { engine, round } = self;
        let clock = &engine.dumping.clock;
        clock.numbers[CLOCK_THREAD].store(sys::thread_id(), Ordering::Release);
        let process = sys::process_id();
        let (mut slept, mut unlooked) = (0, 0);
        while self.is_on() {
            let ms = clock.interval.load(Ordering::Relaxed);
            let slice = MAX_SLEEP.min(ms.saturating_sub(slept)).max(1);
            sys::futex_wait_for(&clock.round, round, i64::from(slice) * 1_000_000);
            slept = slept.saturating_add(slice);
            unlooked += slice;
            if unlooked >= MAX_SLEEP {
                unlooked = 0;
                if status::is_deserted() {
                    // All others are gone: without us the process would have ended.
                    let code = status::main_thread_exit_code();
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
            let is_running = engine.process.recorded.is_running();
            let is_own = sys::process_id() == process;
            let due = &engine.dumping.due;
            let is_to_look = || due.live.pending_request().is_some() || due.has_news_of_lines();
            if is_own && is_running && self.is_on() && is_to_look() {
                with_own_files(engine, scan_with_own_files, scan_now);
            }
            if slept >= ms && ms != NO_INTERVAL && self.is_on() {
                slept = 0;
                if is_own && is_running && with_own_files(engine, dump_with_own_files, make_dump) {
                    // Another dump is under way, or an exec. The clock tries again soon.
                    slept = ms.saturating_sub(MAX_SLEEP);
                }
            }
        }
    }
}

extern "C" fn run_clock(block: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the block is what `spawn` wrote, and no other thread gets it.
    let engine = unsafe { (*block.cast::<ClockRound>()).engine };
    engine.with_reentrancy_guard(|| {
        // SAFETY: as above. It was allocated with this layout.
        let round = unsafe {
            let round = block.cast::<ClockRound>().read();
            dealloc(block.cast(), ClockRound::LAYOUT);
            round
        };
        round.count_intervals();
    });
    std::ptr::null_mut()
}

/// Runs `main` in a new thread that does not share the program's open files. If no thread can be
/// started, runs `here` in this thread. Returns whether the work must be tried again.
fn with_own_files(
    engine: &'static Engine,
    main: ThreadMain,
    here: fn(&'static Engine) -> bool,
) -> bool {
    let argument = std::ptr::from_ref(engine).cast_mut().cast();
    let Some(thread) = spawn(engine, main, argument) else {
        return here(engine);
    };
    let mut result = std::ptr::null_mut();
    // SAFETY: no other thread waits for it.
    unsafe { libc::pthread_join(thread as libc::pthread_t, &raw mut result) };
    !result.is_null()
}

extern "C" fn dump_with_own_files(engine: *mut libc::c_void) -> *mut libc::c_void {
    do_with_own_files(engine, make_dump)
}

extern "C" fn scan_with_own_files(engine: *mut libc::c_void) -> *mut libc::c_void {
    do_with_own_files(engine, scan_now)
}

fn do_with_own_files(
    engine: *mut libc::c_void,
    work: fn(&'static Engine) -> bool,
) -> *mut libc::c_void {
    // SAFETY: the argument is the engine, which lives as long as the process.
    let engine: &'static Engine = unsafe { &*engine.cast_const().cast() };
    engine.with_reentrancy_guard(|| {
        let number = &engine.dumping.clock.numbers[DUMPER_THREAD];
        number.store(sys::thread_id(), Ordering::Release);
        sys::leave_files();
        std::ptr::without_provenance_mut(usize::from(work(engine)))
    })
}

/// Makes a dump. Returns whether it must be tried again, because no dump can be made now.
fn make_dump(engine: &'static Engine) -> bool {
    matches!(
        dump(engine, DumpReason::Interval, None, false),
        Err(DumpError::Busy)
    )
}

/// Answers `record --live`, and scans for lines that grow. If another thread is dumping, this does
/// nothing, and the clock tries again soon.
fn scan_now(engine: &'static Engine) -> bool {
    scan(engine);
    false
}
