//! The library's beginning: at the process's first allocation or its constructor, whichever comes first.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use heapprof_collect as collect;

use crate::{end, environment, mapped, real, signals};

static STATE: AtomicU8 = AtomicU8::new(NEW);
const NEW: u8 = 0;
const STARTING: u8 = 1;
const DONE: u8 = 2;

static VERBOSE: AtomicBool = AtomicBool::new(false);

/// Whether there is nothing left to begin.
#[inline(always)]
pub fn is_done() -> bool {
    STATE.load(Ordering::Relaxed) == DONE
}

/// Begins, unless the C library has not got that far. `caller` is where the program allocates.
#[cold]
pub fn at_first_allocation(caller: *const c_void) {
    if collect::is_apart() {
        return;
    }
    collect::apart(|| {
        // The allocator behind us must be known before anything is passed on to it.
        real::find();
        let ready = environment::is_there();
        if ready
            && STATE
                .compare_exchange(NEW, STARTING, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
        {
            if begin() && !real::is_libc(caller) {
                end::register();
            }
            STATE.store(DONE, Ordering::Release);
        }
    });
}

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

extern "C" fn constructor() {
    at_first_allocation(constructor as *const c_void);
    if !is_secure() {
        end::register();
    }
}

/// Whether the program has more rights than its user, whose environment is not obeyed then.
fn is_secure() -> bool {
    // SAFETY: plain libc call.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Sets everything up; whether it may.
fn begin() -> bool {
    if is_secure() {
        return false;
    }
    // Nothing here panics; if it did, not into the program's output.
    std::panic::set_hook(Box::new(|_| {}));
    collect::prepare();
    end::prepare();
    signals::prepare();
    record();
    true
}

/// Records, if the environment asks for it.
fn record() {
    let asked = match environment::read() {
        Ok(Some(asked)) => asked,
        Ok(None) => return,
        Err(wrong) => {
            misunderstood(&wrong);
            return;
        }
    };
    VERBOSE.store(asked.verbose, Ordering::Relaxed);
    let other_malloc = real::defined_elsewhere(c"malloc");
    if other_malloc && asked.verbose {
        say(&[b"heapprof: this program brings its own malloc, in front of the hooks; use heapprof-alloc in it"]);
    }
    if !asked.options.follow_children
        && asked.options.output.parent != Some(collect::sys::parent_id())
    {
        return;
    }
    mapped::enable(asked.mmap);
    // What heapprof_start goes by when it is given no output.
    collect::set_default(asked.options.clone());
    if asked.start {
        collect::start(asked.options);
    }
    if let Some(signal) = asked.signal
        && !signals::dump_on(signal)
        && asked.verbose
    {
        say(&[b"heapprof: the program handles the dump signal itself; not taken"]);
    }
    if asked.recorded {
        signals::catch_ends();
    }
}

/// Says which variable stands in the way.
pub fn misunderstood(wrong: &environment::Misunderstood) {
    say(&[
        b"heapprof: ",
        wrong.name.to_bytes(),
        b": expected ",
        wrong.expected.as_bytes(),
        b"; not recording",
    ]);
}

/// A line on stderr, for what was asked for and can't be done.
pub fn say(parts: &[&[u8]]) {
    let mut line = parts.concat();
    line.push(b'\n');
    collect::sys::write_to(2, &line);
}

/// Says what became of a dump, if that was asked for.
pub fn report(result: &Result<std::ffi::CString, collect::Error>) {
    if !VERBOSE.load(Ordering::Relaxed) {
        return;
    }
    match result {
        Ok(path) => say(&[b"heapprof: wrote ", path.to_bytes()]),
        Err(error) => say(&[b"heapprof: ", error.to_string().as_bytes()]),
    }
}

/// The library's own errno convention: 0, or what went wrong.
pub fn status(result: Result<std::ffi::CString, collect::Error>) -> c_int {
    report(&result);
    match result {
        Ok(_) => 0,
        Err(collect::Error::Write(_, errno)) => errno,
        Err(collect::Error::Busy) => libc::EBUSY,
        Err(collect::Error::NotStarted) => libc::EINVAL,
        Err(collect::Error::NoOutput) => libc::ENOENT,
        Err(collect::Error::NoMemory) => libc::ENOMEM,
    }
}

/// The text behind a C string, if it is one.
pub unsafe fn text<'a>(string: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller's contract: null, or a string.
    (!string.is_null()).then(|| unsafe { CStr::from_ptr(string) }.to_bytes())
}
