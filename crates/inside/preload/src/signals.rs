//! Catches signals that make a dump and, under `record`, signals that end the program. A signal is
//! caught only if the program left it at its default. The program still sees the default.
//!
//! An interpreter checks that SIGINT is at its default before it installs a handler. So the hooks
//! of sigaction and signal hide the library's handlers, and a handler that the program sets
//! replaces them.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_engine::ENGINE;

use crate::end;
use crate::real_functions::{self, HookedFunction, SigactionFn};

/// Signals, one bit each, that the library catches as long as the program has them at their
/// default.
static WANTED_SIGNALS: AtomicU64 = AtomicU64::new(0);
/// Signals, one bit each, for which the library's handler is installed.
static OWN_SIGNALS: AtomicU64 = AtomicU64::new(0);
/// Signals, one bit each, that make a dump. The other caught signals end the program.
static DUMP_SIGNAL: AtomicU64 = AtomicU64::new(0);

/// Calls libc's own sigaction.
unsafe fn sigaction_of_libc(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: sigaction's contract, passed on.
    real_functions::sigaction(&SIGACTION).map_or(-1, |own| unsafe { own(signal, new, old) })
}

/// Makes the program's call of sigaction: through another library's function behind the hook (such
/// as libjsig's), or else through glibc's.
unsafe fn pass_on(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: sigaction's contract, passed on.
    unsafe {
        match SIGACTION.interposed() {
            Some(other) => {
                std::mem::transmute::<*const c_void, SigactionFn>(other)(signal, new, old)
            }
            None => sigaction_of_libc(signal, new, old),
        }
    }
}

fn bit(signal: c_int) -> u64 {
    if (1..=64).contains(&signal) {
        1 << (signal - 1)
    } else {
        0
    }
}

extern "C" fn dump_signal(_: c_int) {
    ENGINE.dumps().from_signal();
}

extern "C" fn end_signal(signal: c_int) {
    end::by_signal(signal);
}

extern "C" fn abort_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes what it knows of the signal.
    let code = unsafe { info.as_ref() }.map(|info| info.si_code);
    if code == Some(libc::SI_TKILL) {
        end::by_abort(signal);
    } else {
        end::by_signal(signal);
    }
}

/// Installs the library's handler for a signal. Returns false if that fails.
fn install(signal: c_int) -> bool {
    let dumps = DUMP_SIGNAL.load(Ordering::Relaxed) & bit(signal) != 0;
    let (handler, flags) = match signal {
        _ if dumps => (dump_signal as *const c_void, libc::SA_RESTART),
        libc::SIGABRT => (abort_signal as *const c_void, libc::SA_SIGINFO),
        _ => (end_signal as *const c_void, 0),
    };
    // SAFETY: a valid structure; the handlers are async-signal-safe.
    let done = unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as usize;
        new.sa_flags = flags;
        libc::sigfillset(&raw mut new.sa_mask);
        sigaction_of_libc(signal, &raw const new, std::ptr::null_mut()) == 0
    };
    if done {
        OWN_SIGNALS.fetch_or(bit(signal), Ordering::AcqRel);
    }
    done
}

/// Whether the library's handler is installed. This asks the kernel, because sigignore and other
/// libc functions change handlers without calling the hooks.
fn is_in_place(signal: c_int) -> bool {
    handler_of(signal).is_some_and(is_ours)
}

fn is_ours(handler: libc::sighandler_t) -> bool {
    [
        dump_signal as *const c_void,
        end_signal as *const c_void,
        abort_signal as *const c_void,
    ]
    .contains(&(handler as *const c_void))
}

fn is_default(signal: c_int) -> bool {
    handler_of(signal) == Some(libc::SIG_DFL)
}

/// Returns the handler that the kernel has for a signal.
fn handler_of(signal: c_int) -> Option<libc::sighandler_t> {
    // SAFETY: a valid structure to write to.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        (sigaction_of_libc(signal, std::ptr::null(), &raw mut now) == 0).then_some(now.sa_sigaction)
    }
}

/// Makes `signal` trigger dumps. Returns false if the program did not leave the signal at its
/// default, or if the handler can't be installed.
pub fn dump_on(signal: c_int) -> bool {
    DUMP_SIGNAL.fetch_or(bit(signal), Ordering::AcqRel);
    take(signal)
}

fn take(signal: c_int) -> bool {
    is_default(signal) && {
        WANTED_SIGNALS.fetch_or(bit(signal), Ordering::AcqRel);
        install(signal)
    }
}

/// Catches SIGTERM, SIGINT and SIGABRT, if the program left them at their default. These signals
/// end a program. They come from service managers, terminals and aborts.
pub fn catch_ends() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGABRT] {
        take(signal);
    }
}

/// Resets all signals that the library catches to their default, for good.
pub fn give_back() {
    WANTED_SIGNALS.store(0, Ordering::Release);
    let ours = OWN_SIGNALS.swap(0, Ordering::AcqRel);
    for signal in (1..=64).filter(|&signal| ours & bit(signal) != 0) {
        // SAFETY: a valid structure, of which all zero is the default.
        unsafe {
            let default: libc::sigaction = std::mem::zeroed();
            if is_in_place(signal) {
                sigaction_of_libc(signal, &raw const default, std::ptr::null_mut());
            }
        }
    }
}

/// Whether the library catches a signal while the program has it at its default. False in a vfork
/// child, which has its own handlers but shares this memory with its parent.
fn is_to_be_ours(signal: c_int) -> bool {
    WANTED_SIGNALS.load(Ordering::Acquire) & bit(signal) != 0 && ENGINE.lifecycle().is_own_process()
}

/// Hook for sigaction, which reports the library's handlers as the default action.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let bit = bit(signal);
    if !is_to_be_ours(signal) {
        // SAFETY: sigaction's contract: null, or valid structures.
        return unsafe { pass_on(signal, new, old) };
    }
    // SAFETY: as above.
    let new_action = unsafe { new.as_ref() };
    let to_default = new_action.map(|new| new.sa_sigaction == libc::SIG_DFL);
    let ours = OWN_SIGNALS.load(Ordering::Acquire) & bit != 0 && is_in_place(signal);
    // SAFETY: all zeros are an action: the default one.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    let mut before = default;
    if !ours || to_default == Some(false) {
        // `new` and `old` may be the same structure.
        // SAFETY: as above.
        let status = unsafe { pass_on(signal, new, &raw mut before) };
        if status != 0 {
            return status;
        }
    }
    match to_default {
        Some(false) => drop(OWN_SIGNALS.fetch_and(!bit, Ordering::AcqRel)),
        Some(true) if !ours => drop(install(signal)),
        _ => {}
    }
    if !old.is_null() {
        // SAFETY: as above.
        unsafe { *old = if ours { default } else { before } };
    }
    0
}

static SIGACTION: HookedFunction = HookedFunction::new(c"sigaction");
static SIGNAL: HookedFunction = HookedFunction::new(c"signal");
static SYSV_SIGNAL: HookedFunction = HookedFunction::new(c"__sysv_signal");
static SIGINTERRUPT: HookedFunction = HookedFunction::new(c"siginterrupt");
static SIGSET: HookedFunction = HookedFunction::new(c"sigset");

/// Looks up the real functions behind this module's hooks. It is called at the library's start.
pub fn prepare() {
    SIGACTION.find();
    SIGNAL.find();
    SYSV_SIGNAL.find();
    SIGINTERRUPT.find();
    SIGSET.find();
}

/// Implements signal and similar functions. For signals that the library catches, it calls the hook
/// of sigaction.
unsafe fn set(real: &HookedFunction, signal: c_int, handler: usize, flags: c_int) -> usize {
    type SignalFn = unsafe extern "C" fn(c_int, usize) -> usize;
    // SAFETY: signal's contract, passed on.
    unsafe {
        if WANTED_SIGNALS.load(Ordering::Acquire) & bit(signal) == 0 {
            let real = real.get();
            return if real.is_null() {
                libc::SIG_ERR
            } else {
                std::mem::transmute::<*const c_void, SignalFn>(real)(signal, handler)
            };
        }
        let (mut new, mut old): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        new.sa_sigaction = handler;
        new.sa_flags = flags;
        match sigaction(signal, &raw const new, &raw mut old) {
            0 => old.sa_sigaction,
            _ => libc::SIG_ERR,
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: signal's contract.
    let interrupts = INTERRUPTING_SIGNALS.load(Ordering::Relaxed) & bit(signal) != 0;
    let flags = if interrupts { 0 } else { libc::SA_RESTART };
    // SAFETY: signal's contract.
    unsafe { set(&SIGNAL, signal, handler, flags) }
}

/// Signals, one bit each, whose handlers interrupt system calls if `signal` installs them.
static INTERRUPTING_SIGNALS: AtomicU64 = AtomicU64::new(0);

/// Hook for siginterrupt. It also calls libc's function, because libc's own signal uses the
/// setting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siginterrupt(signal: c_int, interrupt: c_int) -> c_int {
    type SiginterruptFn = unsafe extern "C" fn(c_int, c_int) -> c_int;
    match interrupt {
        0 => INTERRUPTING_SIGNALS.fetch_and(!bit(signal), Ordering::Relaxed),
        _ => INTERRUPTING_SIGNALS.fetch_or(bit(signal), Ordering::Relaxed),
    };
    // SAFETY: libc's own.
    unsafe {
        let real = SIGINTERRUPT.or_missing();
        std::mem::transmute::<*const c_void, SiginterruptFn>(real)(signal, interrupt)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn __sysv_signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: signal's contract.
    unsafe {
        set(
            &SYSV_SIGNAL,
            signal,
            handler,
            libc::SA_RESETHAND | libc::SA_NODEFER,
        )
    }
}

/// glibc's other names for [`signal`] and for `__sysv_signal`.
mod aliases {
    use std::ffi::c_int;

    #[unsafe(no_mangle)]
    unsafe extern "C" fn bsd_signal(signal: c_int, handler: usize) -> usize {
        // SAFETY: signal's contract.
        unsafe { super::signal(signal, handler) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn ssignal(signal: c_int, handler: usize) -> usize {
        // SAFETY: signal's contract.
        unsafe { super::signal(signal, handler) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn sysv_signal(signal: c_int, handler: usize) -> usize {
        // SAFETY: signal's contract.
        unsafe { super::__sysv_signal(signal, handler) }
    }
}

/// Hook for sigset. It calls libc's function, which changes the thread's signal mask, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigset(signal: c_int, handler: usize) -> usize {
    type SigsetFn = unsafe extern "C" fn(c_int, usize) -> usize;
    // SAFETY: libc's own.
    let before = unsafe {
        let real = SIGSET.or_missing();
        std::mem::transmute::<*const c_void, SigsetFn>(real)(signal, handler)
    };
    if handler == libc::SIG_DFL && is_to_be_ours(signal) {
        install(signal);
    }
    if is_ours(before) {
        libc::SIG_DFL
    } else {
        before
    }
}
