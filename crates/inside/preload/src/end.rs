//! Hooks for all ends of a program image: exit, _exit, quick_exit, abort, exec and signals. Each of
//! them makes a last dump.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use heapprof_engine::{DumpReason, ENGINE, raise_default};
use heapprof_platform::{sys, weak};
use heapprof_providers::interpreters;

use crate::atfork;
use crate::entry_hooks;
use crate::environment;
use crate::exec_check;
use crate::hook::{announced, label};
use crate::real_functions::{self, ALIGNED_ALLOC, HookedFunction};
use crate::wiretap;

/// The state of the last dump.
static LAST_DUMP_STATE: AtomicU8 = AtomicU8::new(NOT_BEGUN);
/// The thread that makes the last dump.
static LAST_DUMP_THREAD: AtomicI32 = AtomicI32::new(0);
const NOT_BEGUN: u8 = 0;
const BEGUN: u8 = 1;
const DONE: u8 = 2;

fn dump(reason: DumpReason) {
    ENGINE.dumps().dump_at_end(reason);
}

/// Whether the last dump was made, or is being made.
pub fn has_ended() -> bool {
    LAST_DUMP_STATE.load(Ordering::Acquire) != NOT_BEGUN
}

/// Makes the last dump by calling `dump`, which returns the new [`LAST_DUMP_STATE`]. If another
/// thread is making the last dump, this waits for that thread, because the process must not end
/// before the dump is complete. Returns whether this call made the dump. The caller must block
/// signals. Otherwise a signal handler on this thread could wait for its own thread.
fn run_once(dump: impl FnOnce() -> u8) -> bool {
    let free =
        LAST_DUMP_STATE.compare_exchange(NOT_BEGUN, BEGUN, Ordering::AcqRel, Ordering::Acquire);
    match free {
        Ok(_) => {
            LAST_DUMP_THREAD.store(sys::thread_id(), Ordering::Relaxed);
            match dump() {
                NOT_BEGUN => go_on(),
                state => LAST_DUMP_STATE.store(state, Ordering::Release),
            }
        }
        // This thread's own dump has led to an abort. No other thread will make the dump.
        Err(BEGUN) if LAST_DUMP_THREAD.load(Ordering::Relaxed) == sys::thread_id() => {}
        Err(_) => wait(),
    }
    free.is_ok()
}

/// Resets the state of the last dump, because the program continues and will end later.
fn go_on() {
    LAST_DUMP_THREAD.store(0, Ordering::Relaxed);
    LAST_DUMP_STATE.store(NOT_BEGUN, Ordering::Release);
    ENGINE.lifecycle().go_on();
}

/// Waits until another thread has made the last dump, but for at most half a minute: a dump that
/// hangs must not keep the program alive.
fn wait() {
    const MAX_WAITS: u32 = 30_000;
    for _ in 0..MAX_WAITS {
        if LAST_DUMP_STATE.load(Ordering::Acquire) != BEGUN {
            return;
        }
        sys::sleep(1_000_000);
    }
}

/// Whether `record` expects a profile when the program ends. `record` expects it even if the
/// program stopped the recording.
static IS_RECORDED: AtomicBool = AtomicBool::new(false);
/// Whether the program stopped a recording while [`IS_RECORDED`] was set.
static WAS_STOPPED: AtomicBool = AtomicBool::new(false);

/// Sets that `record` waits for a profile when the program ends.
pub fn expect_profile() {
    IS_RECORDED.store(true, Ordering::Relaxed);
}

/// Ends the recording at the program's request. The recorded data can still be dumped.
pub fn stop() {
    if ENGINE.lifecycle().is_running() {
        WAS_STOPPED.store(IS_RECORDED.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    ENGINE.lifecycle().stop();
}

/// Whether a dump must be made when this program image ends.
fn is_due() -> bool {
    let is_there = ENGINE.lifecycle().is_running()
        || WAS_STOPPED.load(Ordering::Relaxed) && !ENGINE.lifecycle().is_sandboxed();
    is_there && ENGINE.lifecycle().is_own_process()
}

fn make_last_dump() {
    wiretap::end();
    if is_due() {
        let mask = ENGINE.lifecycle().block_signals();
        run_once(|| {
            dump(DumpReason::Exit);
            DONE
        });
        ENGINE.lifecycle().restore_signals(mask);
    }
}

/// Makes the last dump and ends the recording, before the program enters a sandbox in which no dump
/// can be made.
pub fn shut_in() {
    wiretap::end();
    let mask = ENGINE.lifecycle().block_signals();
    run_once(|| {
        dump(DumpReason::Sandbox);
        DONE
    });
    ENGINE.lifecycle().stop();
    ENGINE.lifecycle().restore_signals(mask);
    ENGINE.lifecycle().enter_sandbox();
}

/// Makes the last dump, and ends the program by a signal. If this thread is inside an event, both
/// happen after the event. The signal's handler calls this function, with all signals blocked.
pub fn by_signal(signal: c_int) {
    if !ENGINE.lifecycle().is_own_process() {
        raise_default(signal);
        return;
    }
    wiretap::end();
    let own = run_once(|| {
        ENGINE.dumps().end_from_signal(signal);
        // The process is still here. This thread may be in the middle of an event; after that event
        // it dumps and ends the process. Otherwise the kernel spares this process, as it spares the
        // first process of a container.
        NOT_BEGUN
    });
    if !own {
        raise_default(signal);
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _exit(status: c_int) -> ! {
    make_last_dump();
    if let Some(other) = EXIT.interposed() {
        // SAFETY: another library's function of this name.
        unsafe { std::mem::transmute::<*const c_void, unsafe extern "C" fn(c_int)>(other)(status) };
    }
    loop {
        // SAFETY: ends the process, as libc's own does.
        unsafe { sys::call(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn _Exit(status: c_int) -> ! {
    // SAFETY: the same function by C's name.
    unsafe { _exit(status) }
}

/// Whether this process has called abort and has already made its last dump.
static IS_ABORTING: AtomicBool = AtomicBool::new(false);

/// Makes the last dump, unless the hook of abort has made it, and ends the program by SIGABRT. If
/// the heap is damaged or the stack was smashed, libc aborts without calling the hook of abort. A
/// thread that is inside an event at that moment runs the real allocator, and has none of the
/// library's locks.
pub fn by_abort(signal: c_int) {
    wiretap::end();
    if !IS_ABORTING.swap(false, Ordering::AcqRel) && is_due() {
        run_once(|| {
            dump(DumpReason::Terminated);
            DONE
        });
    }
    raise_default(signal);
}

type AbortFn = unsafe extern "C" fn() -> !;
type AssertFailFn = unsafe extern "C" fn(*const c_char, *const c_char, c_uint, *const c_char) -> !;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn abort() -> ! {
    make_last_dump();
    // SAFETY: this calls libc's own abort, or does what that function does in the end.
    unsafe {
        // A signal handler of the program may jump out of the abort and go on. Then another end is
        // to come.
        go_on();
        IS_ABORTING.store(true, Ordering::Release);
        let real = ABORT.get();
        if !real.is_null() {
            std::mem::transmute::<*const c_void, AbortFn>(real)();
        }
        raise_default(libc::SIGABRT);
        _exit(127)
    }
}

/// Hook for a failed assert. libc's own function would call libc's abort instead of the hook.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __assert_fail(
    assertion: *const c_char,
    file: *const c_char,
    line: c_uint,
    function: *const c_char,
) -> ! {
    make_last_dump();
    // SAFETY: the arguments are passed on as they came.
    unsafe {
        go_on();
        IS_ABORTING.store(true, Ordering::Release);
        let real = ASSERT_FAIL.get();
        if real.is_null() {
            abort();
        }
        std::mem::transmute::<*const c_void, AssertFailFn>(real)(assertion, file, line, function)
    }
}

unsafe extern "C" {
    fn __cxa_atexit(
        function: extern "C" fn(*mut c_void),
        argument: *mut c_void,
        dso: *mut c_void,
    ) -> c_int;
}

extern "C" fn at_exit(_: *mut c_void) {
    make_last_dump();
}

/// Registers a handler of quick_exit with musl. [`DESTRUCTOR`] handles other exits.
fn register_with_musl() {
    type AtQuickExitFn = unsafe extern "C" fn(extern "C" fn()) -> c_int;
    extern "C" fn at_quick_exit() {
        make_last_dump();
    }
    let real = AT_QUICK_EXIT.get();
    if !real.is_null() {
        // SAFETY: C's function of this name has this type.
        unsafe { std::mem::transmute::<*const c_void, AtQuickExitFn>(real)(at_quick_exit) };
    }
}

/// Number of times that the exit handler is registered with libc. This is also the maximum number
/// of threads that may call exit at the same time: each thread takes one handler off libc's list,
/// and a thread that finds none ends the process.
const MAX_EXITING_THREADS: usize = 4;

/// Looks up the real functions behind this module's hooks.
pub fn prepare() {
    let others = [
        &ABORT,
        &ASSERT_FAIL,
        &DAEMON,
        &DLCLOSE,
        &EXIT,
        &ALIGNED_ALLOC,
    ];
    let exec = EXECVE.iter().chain(&EXECV).chain(&LISTED_EXEC);
    let named = EXECVPE.iter().chain(&EXECVP).chain(&LISTED_NAMED_EXEC);
    for function in exec.chain(named).chain(&OPENED_EXEC).chain(others) {
        function.find();
    }
}

/// Makes the last dump when musl runs the destructors of libraries. They run in the reverse order
/// of the constructors, so this library's run last. In musl, they run after all exit handlers. In
/// glibc, the exit handler is the last function: the destructors run in the exit handler of the
/// loader.
#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = at_end_of_musl;

extern "C" fn at_end_of_musl() {
    if !weak::is_glibc() && IS_REGISTERED.load(Ordering::Relaxed) {
        make_last_dump();
    }
}

/// Whether [`register`] was called.
static IS_REGISTERED: AtomicBool = AtomicBool::new(false);

/// Registers exit handlers and fork handlers with libc. Later calls do nothing.
///
/// This is called as early as possible. The program's own handlers and the destructors of all
/// libraries are then registered later, and so run before these handlers. It must not be called
/// while libc allocates, because libc may then be extending its list of handlers, with the list
/// locked.
pub fn register() {
    if IS_REGISTERED.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: functions of this library, which is never unloaded.
    unsafe {
        let none = std::ptr::null_mut();
        match real_functions::at_quick_exit() {
            Some(at_quick_exit) => {
                for _ in 0..MAX_EXITING_THREADS {
                    at_quick_exit(at_exit, none);
                    __cxa_atexit(at_exit, none, none);
                }
            }
            None => register_with_musl(),
        }
    }
    atfork::register(before_fork, after_fork_in_parent, after_fork_in_child);
}

unsafe extern "C" fn before_fork() {
    // The thread that searches a library has the loader's lock and needs ours, so this comes first.
    entry_hooks::before_fork();
    // Once the program is shut in, there are no more profiles to keep right, and the system calls
    // that this needs may be forbidden.
    if !ENGINE.lifecycle().is_sandboxed() {
        ENGINE.forks().before();
    }
}

unsafe extern "C" fn after_fork_in_parent() {
    ENGINE.forks().in_parent();
    entry_hooks::after_fork();
}

unsafe extern "C" fn after_fork_in_child() {
    forget_end();
    ENGINE.forks().in_child();
    entry_hooks::after_fork();
    wiretap::restart_in_child();
}

/// Resets the state of this module that a forked child has inherited from its parent.
pub fn forget_end() {
    LAST_DUMP_STATE.store(NOT_BEGUN, Ordering::Relaxed);
    WAS_STOPPED.store(false, Ordering::Relaxed);
    IS_ABORTING.store(false, Ordering::Relaxed);
}

/// Sets the real dlclose to the result of `find`, for a program that was not started with the
/// library.
pub fn set_real_functions(find: impl Fn(&CStr) -> *const c_void) {
    DLCLOSE.set_function(find(DLCLOSE.name()));
}

/// Writes the profile of this program image before an exec. If the exec fails, the next dump
/// removes the file. Returns whether to inspect the new program for `record`.
fn end_image() -> bool {
    wiretap::end();
    if is_due() {
        dump(DumpReason::Exec);
    }
    ENGINE.lifecycle().is_running() && !ENGINE.lifecycle().is_sandboxed()
}

/// Runs before execve.
unsafe extern "C" fn before_execve(path: usize, words: usize, variables: usize) {
    if end_image() {
        exec_check::before_path(path, Some([words, variables]));
    }
}

/// Runs before execv.
unsafe extern "C" fn before_execv(path: usize, words: usize) {
    if end_image() {
        exec_check::before_path(path, Some([words, environment::address()]));
    }
}

/// Runs before an exec with a path, and with words that only the real function can find.
unsafe extern "C" fn before_listed_exec(path: usize) {
    if end_image() {
        exec_check::before_path(path, None);
    }
}

/// Runs before execvpe, whose name is looked up in the search path.
unsafe extern "C" fn before_execvpe(name: usize, words: usize, variables: usize) {
    if end_image() {
        exec_check::before_name(name, Some([words, variables]));
    }
}

/// Runs before execvp, whose name is looked up in the search path.
unsafe extern "C" fn before_execvp(name: usize, words: usize) {
    if end_image() {
        exec_check::before_name(name, Some([words, environment::address()]));
    }
}

/// Runs before an exec with a name, and with words that only the real function can find.
unsafe extern "C" fn before_listed_named_exec(name: usize) {
    if end_image() {
        exec_check::before_name(name, None);
    }
}

/// Runs before an exec of an open file.
unsafe extern "C" fn before_opened_exec() {
    end_image();
}

announced! { before_execve, EXECVE, PlaceOfExecve: execve }
announced! { before_execv, EXECV, PlaceOfExecv: execv }
announced! { before_listed_exec, LISTED_EXEC, ListedExec: execl, execle }
announced! { before_execvpe, EXECVPE, PlaceOfExecvpe: execvpe }
announced! { before_execvp, EXECVP, PlaceOfExecvp: execvp }
announced! { before_listed_named_exec, LISTED_NAMED_EXEC, ListedNamedExec: execlp }
announced! { before_opened_exec, OPENED_EXEC, OpenedExec: fexecve, execveat }
static AT_QUICK_EXIT: HookedFunction = HookedFunction::new(c"at_quick_exit");
static ABORT: HookedFunction = HookedFunction::new(c"abort");
static DAEMON: HookedFunction = HookedFunction::new(c"daemon");
static EXIT: HookedFunction = HookedFunction::new(c"_exit");
static ASSERT_FAIL: HookedFunction = HookedFunction::new(c"__assert_fail");
static DLCLOSE: HookedFunction = HookedFunction::new(c"dlclose");

/// Hook for daemon, which makes the last dump first. libc's daemon ends this process by libc's own
/// exit, without calling the hook of exit. The child process continues.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn daemon(no_chdir: c_int, no_close: c_int) -> c_int {
    type DaemonFn = unsafe extern "C" fn(c_int, c_int) -> c_int;
    make_last_dump();
    // SAFETY: daemon's contract, passed on.
    let result = unsafe {
        std::mem::transmute::<*const c_void, DaemonFn>(DAEMON.or_missing())(no_chdir, no_close)
    };
    if result != 0 {
        go_on();
    }
    result
}

/// Hook for dlclose, which remembers the unloaded code, so that stacks through it can still be
/// symbolized.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    std::arch::naked_asm!(label!(dlclose), "jmp {closed}", closed = sym close_library)
}

unsafe extern "C" fn close_library(handle: *mut c_void) -> c_int {
    type DlcloseFn = unsafe extern "C" fn(*mut c_void) -> c_int;
    let real = DLCLOSE.get();
    if real.is_null() {
        return -1;
    }
    // SAFETY: dlclose's contract, passed on.
    let close = || unsafe { std::mem::transmute::<*const c_void, DlcloseFn>(real)(handle) };
    if ENGINE.lifecycle().is_sandboxed() {
        return close();
    }
    // Interpreters are known before anything is recorded.
    interpreters::around_unload(|| match ENGINE.lifecycle().was_started() {
        true => ENGINE.lifecycle().around_unload(close),
        false => close(),
    })
}
