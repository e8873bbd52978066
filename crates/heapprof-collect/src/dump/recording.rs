//! A recording from start to stop: where its dumps go, why they are made, what execs do to it, and
//! what forks do to it (in [`fork`]).

mod clock;
mod fork;
mod turn;

use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicI64, Ordering};

use crate::apart::{self, guarded};
use crate::dump::output::{self, Naming};
use crate::dump::snapshot::Totals;
use crate::mode::{self, Mode};
use crate::options::{Format, LONGEST_PERIOD, Options};
use crate::platform::lock::{self, Guard, Locked};
use crate::reason::Reason;
use crate::tables::dropped::DROPPED;
pub use clock::{end as end_clock, hold as hold_clock, let_go as let_clock_go};
pub use fork::{after_fork_in_child, after_fork_in_parent, before_fork};

use crate::books::{access, begin};
use crate::code::mappings;
use crate::dump::{snapshot, text};
use crate::platform::{arena, program, stack_switch, status, sys, trial};
use crate::thread::state;
use crate::trigger;

/// Why a dump was not written.
#[derive(Debug)]
pub enum Error {
    /// Nothing was recorded since the program began.
    NotStarted,
    /// No dump can be made now: another thread dumps, forks or becomes another program, the program
    /// has ended, or this is a child that shares its parent's memory.
    Busy,
    /// The recording writes no files.
    NoOutput,
    /// There is no memory for it.
    NoMemory,
    /// The file could not be written: its path, and the errno.
    Write(String, i32),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotStarted => write!(f, "nothing is recorded: start first"),
            Self::Busy => write!(
                f,
                "no dump can be made now: another thread makes one, forks or ends the program"
            ),
            Self::NoMemory => write!(f, "there is no memory to write a profile with"),
            Self::NoOutput => write!(f, "the recording has no output path"),
            Self::Write(path, errno) => {
                // libc would look its text up in the program's locale, with the program's malloc.
                write!(f, "{path}: {} (os error {errno})", sys::error_text(*errno))
            }
        }
    }
}

impl std::error::Error for Error {}

static OPTIONS: Locked<Option<Options>> = Locked::new(None);
static DEFAULT: Locked<Option<Options>> = Locked::new(None);
static NAMING: Locked<Naming> = Locked::new(Naming::new());
static PROCESS_ID: AtomicI32 = AtomicI32::new(0);
/// Whether the process's last profile was begun.
static ENDED: AtomicBool = AtomicBool::new(false);
/// When the last dump before an exec was written, in nanoseconds, and by which thread.
static EXEC: AtomicI64 = AtomicI64::new(i64::MIN);
static EXEC_THREAD: AtomicI32 = AtomicI32::new(0);
/// How long an exec may take. Within this time it is not taken for one that failed.
const EXEC_TAKES: i64 = 500_000_000;
/// When a signal that ends the program first came in the middle of an event, in nanoseconds; 0
/// before.
static RAISED: AtomicI64 = AtomicI64::new(0);
/// The signal to raise again once the pending dump is written.
static RAISE: AtomicI32 = AtomicI32::new(0);

/// Begins a recording. An earlier one is forgotten. Returns false if there is no memory for it, if
/// a thread is held up in the middle of an event, or if the period is longer than
/// [`LONGEST_PERIOD`].
pub fn start(mut options: Options) -> bool {
    if options.period > LONGEST_PERIOD {
        return false;
    }
    guarded(|| {
        if !arena::reserve(2 << 20) {
            return false;
        }
        lock::is_no_orphan();
        state::prepare();
        access::prepare();
        if status::is_filtered() {
            sys::note_filter();
        }
        PROCESS_ID.store(sys::process_id(), Ordering::Relaxed);
        options.output.look_into_folder();
        NAMING.with(|naming| naming.prepare(&options.output, options.format));
        let (mode, period, triggers) = (options.mode, options.period, options.triggers);
        OPTIONS.with(|o| *o = Some(options));
        snapshot::begin();
        if !begin::begin(mode, period) {
            return false;
        }
        trigger::arm(triggers, do_pending);
        clock::start(&triggers);
        true
    })
}

/// Options for a recording that the program is to start itself.
pub fn set_default(options: Options) {
    // The name is looked up before the program changes its folder.
    program::name();
    DEFAULT.with(|d| *d = Some(options));
}

/// The options that [`set_default`] left, or none.
pub fn default_options() -> Option<Options> {
    guarded(|| DEFAULT.with(|d| d.clone()))
}

/// Whether a recording was started, even if it has been stopped since.
pub fn was_started() -> bool {
    guarded(|| OPTIONS.with(|o| o.is_some()))
}

/// Whether allocations are being recorded.
pub fn is_running() -> bool {
    mode::now() != Mode::Off
}

/// Says that the process goes on after its last profile, and that another end is to come.
pub fn go_on() {
    ENDED.store(false, Ordering::Release);
}

/// Ends the recording; dumps still show what it recorded.
pub fn stop() {
    mode::stop();
    clock::stop();
}

/// Whether this is the process that records, and not a vfork child that only shares its memory.
pub fn is_own_process() -> bool {
    PROCESS_ID.load(Ordering::Relaxed) == sys::process_id()
}

/// Writes the dump that the program asks for, once no other thread dumps. With a `path`, it goes
/// there in pprof's format. Otherwise it goes where the recording's pattern says, in the
/// recording's format. Returns its path.
///
/// # Errors
/// See [`Error`]. This waits ten seconds for another thread's dump. It does not wait at all in a
/// signal's handler that came in the middle of an event.
pub fn request(path: Option<&[u8]>) -> Result<CString, Error> {
    let made = turn::wait(|has_waited| {
        let result = dump(Reason::Request, path, has_waited);
        // Nothing comes after the last dump.
        let has_ended = has_waited && ENDED.load(Ordering::Acquire);
        let is_to_wait = matches!(result, Err(Error::Busy)) && !has_ended;
        (!is_to_wait).then_some(result)
    });
    made.unwrap_or(Err(Error::Busy))
}

/// Writes a dump whose path somebody wants to know. If it has waited for its turn, it dumps only if
/// the program goes on.
fn dump(reason: Reason, path: Option<&[u8]>, has_waited: bool) -> Result<CString, Error> {
    // A vfork child shares this memory; what it writes would be taken for the parent's.
    if !is_own_process() {
        return Err(if PROCESS_ID.load(Ordering::Relaxed) == 0 {
            Error::NotStarted
        } else {
            Error::Busy
        });
    }
    in_turn(reason, lock::patience(), |turn| match turn {
        // What was waited for may have been the last one.
        Some(_) if !(has_waited && ENDED.load(Ordering::Acquire)) => make(reason, path),
        _ => Err(Error::Busy),
    })
}

/// Does `work` in this thread's turn, or without a turn if that is not to be had. Then makes the
/// dump that a signal asked for meanwhile.
fn in_turn<R>(reason: Reason, patience: i64, work: impl FnOnce(Option<Guard<'static>>) -> R) -> R {
    // A handler that ended or left the dump half-way would leave its locks behind.
    guarded(|| {
        let done = work(turn::take(reason, patience));
        // After the last dump there is nothing to be dumped, and one after an exec's would take
        // that back.
        if !reason.is_last() {
            turn::follow_up(|| make(Reason::Signal, None).is_ok());
        }
        done
    })
}

/// What became of a dump that nobody wants to know the path of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dumped {
    /// It is written, or noted for whoever dumps now.
    Written,
    /// It is not written.
    Failed,
    /// It is not written, but should be once another thread's fork is over.
    Later,
}

/// Writes a dump whose path nobody wants to know, also from a signal's handler. It waits for a
/// thread that forks for at most `patience` nanoseconds.
fn dump_only(reason: Reason, patience: i64) -> Dumped {
    if !is_own_process() {
        return Dumped::Failed;
    }
    in_turn(reason, patience, |turn| match turn {
        // The path is freed while forks wait, because they take the allocator's lock as well.
        Some(_) => match make(reason, None).is_ok() {
            true => Dumped::Written,
            false => Dumped::Failed,
        },
        // A thread that ends the program waits for anything except a fork.
        None if reason.is_last() || lock::is_forking() => Dumped::Later,
        None if reason == Reason::Signal => {
            turn::note();
            Dumped::Written
        }
        None => Dumped::Failed,
    })
}

/// Writes the last dump, or the one before an exec.
pub fn dump_at_end(reason: Reason) {
    dump_only(reason, lock::patience());
}

/// Makes a dump, and tells of it. It is this thread's turn.
fn make(reason: Reason, path: Option<&[u8]>) -> Result<CString, Error> {
    let result = make_in_silence(reason, path);
    // A dump that is put off may come when there is nothing else to do. Whoever asked is told in
    // another way.
    let is_put_off = matches!(result, Err(Error::Busy));
    if let Some(tell) = TELL.get().filter(|_| !is_put_off) {
        tell(&result);
    }
    result
}

/// The function that is told what became of each dump.
static TELL: OnceLock<fn(&Result<CString, Error>)> = OnceLock::new();

/// Tells `tell` what becomes of every dump, wherever it is made, with signals blocked. Only the
/// first call counts.
pub fn on_dump(tell: fn(&Result<CString, Error>)) {
    let _ = TELL.set(tell);
}

fn make_in_silence(reason: Reason, path: Option<&[u8]>) -> Result<CString, Error> {
    let is_end = reason.ends_program();
    if ENDED.fetch_or(is_end, Ordering::AcqRel) && !reason.is_last() && reason != Reason::Request {
        // The process still runs, but has its last profile already.
        return Err(Error::Busy);
    }
    if !reason.is_last() && is_about_to_exec() {
        // This image would end in the middle of the dump.
        if reason == Reason::Signal {
            turn::note();
        }
        return Err(Error::Busy);
    }
    let mut result = Err(Error::NotStarted);
    // All of this is done there: the program's stack may be a signal's, of a few pages.
    in_own_place(&mut || {
        let reserved = arena::reserve(snapshot::memory_needed());
        if let Some(options) = OPTIONS.with(|o| o.clone()) {
            result = if reserved {
                write(&options, reason, path)
            } else {
                Err(Error::NoMemory)
            };
            trigger::rearm();
        }
        matches!(result, Err(Error::Write(_, libc::EMFILE | libc::ENFILE)))
    });
    if let Err(error) = &result {
        in_own_place(&mut || {
            let list = OPTIONS.with(|o| o.as_ref().map(|o| o.output.list.clone()));
            output::add_to_list(&list.unwrap_or_default(), &unwritten(error));
            false
        });
    }
    if reason == Reason::Exec {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        EXEC_THREAD.store(sys::thread_id(), Ordering::Relaxed);
        EXEC.store(now, Ordering::Relaxed);
    }
    result
}

/// More files than a dump has open at a time.
const FILES: u32 = 8;

/// Does `work` on a stack of our own. If `work` says that the program has used up the numbers for
/// its files, does it once more in a child that has some.
fn in_own_place(work: &mut dyn FnMut() -> bool) {
    let mut lacks_files = false;
    stack_switch::on_own_stack(|| lacks_files = work());
    // A filter may end the program because of a child, and the first child of a new namespace would
    // be its init.
    if lacks_files && !sys::is_filtered() && !trial::makes_first_process() {
        let process = sys::process_id();
        stack_switch::in_child(&mut || {
            sys::act_for(process);
            sys::close_last(FILES);
            work();
        });
    }
}

/// Whether another thread's exec is under way. If this thread called the last exec and goes on
/// here, that exec has failed.
fn is_about_to_exec() -> bool {
    let since = EXEC.load(Ordering::Relaxed);
    since != i64::MIN
        && sys::nanoseconds(libc::CLOCK_MONOTONIC).saturating_sub(since) < EXEC_TAKES
        && EXEC_THREAD.load(Ordering::Relaxed) != sys::thread_id()
}

fn write(options: &Options, reason: Reason, path: Option<&[u8]>) -> Result<CString, Error> {
    let named = path.is_some();
    let path = match path {
        Some(path) => CString::new(path).map_err(|_| Error::NoOutput)?,
        None => NAMING
            .with(|naming| naming.next(&options.output, options.format, reason))
            .ok_or(Error::NoOutput)?,
    };
    // A dump to a given path is asked for by our functions only: gperftools' take no path.
    let format = if named { Format::Pprof } else { options.format };
    let failed = |errno| Error::Write(path.to_string_lossy().into_owned(), errno);
    let mut totals = Totals::default();
    // This is done before the output takes one of the program's last descriptors.
    mappings::remember();
    let written = output::write(&path, options, |file| match format {
        Format::Pprof => {
            snapshot::write_profile(reason, &options.wrappers, file).map(|of| totals = of)
        }
        Format::Text => text::write(file).map(|of| totals = of),
    })
    .map_err(failed)?;
    if reason == Reason::Exec {
        NAMING.with(|naming| naming.written_for_exec(written));
    }
    if !options.output.list.is_empty() {
        output::add_to_list(&options.output.list, &listed(&path, reason, &totals));
    }
    Ok(path)
}

/// What the list of dumps says of one dump, so that nobody has to read the profile for that.
fn listed(path: &CStr, reason: Reason, totals: &Totals) -> CString {
    let mut line = format!(
        "{} {} {} {} {} {} {} ",
        sys::process_id(),
        match reason {
            Reason::Exec => 2,
            reason => u8::from(reason.ends_program()),
        },
        u8::from(mode::is_exact()),
        totals.in_use,
        totals.peak,
        totals.stacks,
        DROPPED.lost(),
    )
    .into_bytes();
    // The program may be in another folder than `record`.
    if !path.to_bytes().starts_with(b"/") {
        line.extend_from_slice(&output::working_folder());
        line.push(b'/');
    }
    line.extend_from_slice(path.to_bytes());
    CString::new(line).unwrap_or_default()
}

/// What the list of dumps says of a dump that was not written, for whoever started the recording.
fn unwritten(error: &Error) -> CString {
    let line = match error {
        Error::Write(path, errno) => format!("!{errno} {path}"),
        error => format!("!{error}"),
    };
    CString::new(line).unwrap_or_default()
}

/// The profile as it is now, gzipped. It is empty if nothing was started, if there is no memory, or
/// if [`request`] could not dump now.
pub fn profile(reason: Reason) -> Vec<u8> {
    let wrappers = OPTIONS.with(|o| o.as_ref().map(|o| o.wrappers.clone()));
    let wrappers = wrappers.unwrap_or_default();
    render(|file| snapshot::write_profile(reason, &wrappers, file).map(drop))
}

/// The profile as it is now, in gperftools' text form.
pub fn text_profile() -> Vec<u8> {
    render(|file| text::write(file).map(drop))
}

fn render(write: impl Fn(&mut dyn std::io::Write) -> std::io::Result<()>) -> Vec<u8> {
    let rendered = turn::wait(|_| {
        in_turn(Reason::Request, 0, |turn| {
            turn.map(|_turn| {
                let mut bytes = Vec::new();
                in_own_place(&mut || {
                    bytes.clear();
                    let possible = was_started() && arena::reserve(snapshot::memory_needed());
                    // Without mappings its addresses would say nothing.
                    let lacks_files = possible && !mappings::remember() && sys::is_short_of_files();
                    if possible && write(&mut bytes).is_err() {
                        bytes.clear();
                    }
                    lacks_files
                });
                bytes
            })
        })
    });
    rendered.unwrap_or_default()
}

/// Does what was asked for in the middle of an event.
fn do_pending(reason: Reason) {
    let mask = sys::block_signals();
    let became = dump_only(reason, 0);
    match became {
        Dumped::Written => {}
        // The limits that asked for it were switched off.
        Dumped::Failed => trigger::rearm(),
        // Whoever forks, or comes next, makes it.
        Dumped::Later => trigger::ask(reason),
    }
    sys::restore_signals(mask);
    if became == Dumped::Later || reason != Reason::Terminated {
        return;
    }
    // A signal asked for this. It must still do its own work.
    let signal = RAISE.swap(0, Ordering::AcqRel);
    if signal != 0 {
        end_by(signal);
    }
}

/// Ends the program, but not in the middle of another thread's dump.
fn end_by(signal: i32) {
    let _turn = turn::take(Reason::Terminated, lock::patience());
    raise_default(signal);
}

/// Dumps at once, or has the dump made right after what is under way: an event of this thread, or
/// another thread's fork or dump. Returns whether it dumped at once. It is for signal handlers.
fn dump_or_ask(reason: Reason) -> bool {
    let later = apart::is_apart() || dump_only(reason, 0) == Dumped::Later;
    if later {
        trigger::ask(reason);
    }
    !later
}

/// Called by the handler of a signal that asks for a dump. It is async-signal-safe: it uses no
/// memory or lock of the program's.
pub fn dump_from_signal() {
    let mask = sys::block_signals();
    if is_own_process() && is_running() {
        dump_or_ask(Reason::Signal);
    }
    sys::restore_signals(mask);
}

/// Called by the handler of a signal that ends the program. Dumps, then lets the signal do what it
/// does by default.
pub fn end_from_signal(signal: i32) {
    let _ = sys::block_signals();
    if !is_own_process() || !is_running() {
        raise_default(signal);
        return;
    }
    RAISE.store(signal, Ordering::Release);
    if apart::is_apart() {
        // An event takes microseconds. If it does not end, a handler has jumped out of it.
        const PATIENCE: i64 = 200_000_000;
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let first = RAISED.compare_exchange(0, now, Ordering::AcqRel, Ordering::Acquire);
        if first.is_err_and(|first| now - first > PATIENCE) {
            raise_default(signal);
        }
    }
    if dump_or_ask(Reason::Terminated) {
        end_by(signal);
    }
}

/// Lets a signal do what it does by default: mostly, end the process.
pub fn raise_default(signal: i32) {
    // This is the kernel's structure: handler, flags, restorer, mask. All zero is the default.
    // libc's function may be the program's own.
    let default = [0usize; 4];
    let args = [signal as usize, default.as_ptr() as usize, 0, 8, 0, 0];
    // SAFETY: a valid structure of the kernel's size, then plain libc calls.
    unsafe {
        sys::call(libc::SYS_rt_sigaction, args);
        let mut only = std::mem::zeroed();
        libc::sigemptyset(&raw mut only);
        libc::sigaddset(&raw mut only, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only, std::ptr::null_mut());
    }
}
