//! Checks whether a thread may be in a signal handler.
//!
//! A signal handler may have interrupted the allocator. If the handler then waited for the
//! allocator's locks, it would wait forever. The kernel makes a handler return to a function of
//! libc, whose address can be read by `sigaction` (`sa_restorer`). So this address is on the stack
//! of a thread that is in a handler.

use heapprof_platform::sys;

use crate::arch::{SIGNAL_FRAME_LEN, is_signal_frame};
use crate::stack::walk::StackBounds;

/// Number of signals.
const SIGNAL_COUNT: usize = 64;
/// The kernel's data about a signal: the handler, the flags, the function to which the handler
/// returns, and the mask.
type KernelSigaction = [usize; 4];
const HANDLER_WORD: usize = 0;
const RESTORER_WORD: usize = 2;
/// Maximum number of functions to which handlers return. If there are more, the thread counts as
/// possibly in a handler.
const MAX_RESTORERS: usize = 4;

/// Whether this thread may be in a signal handler. `here` is an address in its current frame, and
/// `own` has the bounds of its own stack. Returns true, too, if this can't be determined.
pub(crate) fn may_be_in_handler(here: usize, own: StackBounds) -> bool {
    let (mut restorers, mut count) = ([0; MAX_RESTORERS], 0);
    for signal in 1..=SIGNAL_COUNT {
        let mut action: KernelSigaction = [0; 4];
        let args = [signal, 0, action.as_mut_ptr() as usize, 8, 0, 0];
        // SAFETY: the action is only read, into a place that is large enough.
        let asked = unsafe { sys::call(libc::SYS_rt_sigaction, args) };
        let is_handled =
            asked == 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action[HANDLER_WORD]);
        if !is_handled || restorers[..count].contains(&action[RESTORER_WORD]) {
            continue;
        }
        let Some(place) = restorers.get_mut(count) else {
            return true;
        };
        (*place, count) = (action[RESTORER_WORD], count + 1);
    }
    if count == 0 {
        return false;
    }
    if !(own.start..own.end).contains(&here) {
        return true;
    }
    // SAFETY: these words lie between here and the beginning of this thread's own stack.
    let word = |at: usize| unsafe { (at as *const usize).read_volatile() };
    let last = own.end.saturating_sub(SIGNAL_FRAME_LEN);
    let mut places = (here.next_multiple_of(8)..last).step_by(8);
    places.any(|at| restorers[..count].contains(&word(at)) && is_signal_frame(at, own.end, word))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU8, Ordering};

    use super::*;
    use crate::stack::own_stack;
    use heapprof_platform::tls;

    fn asked() -> bool {
        let local = tls::current() as usize;
        let here = 0u8;
        let here = (&raw const here).addr();
        may_be_in_handler(here, own_stack::find(here, local))
    }

    #[test]
    fn a_handler_is_told_from_the_program() {
        static REPORTED: AtomicU8 = AtomicU8::new(0);
        extern "C" fn handler(_: i32) {
            REPORTED.store(1 + u8::from(asked()), Ordering::Relaxed);
        }
        assert!(!asked());
        // SAFETY: the handler writes one static.
        unsafe { libc::signal(libc::SIGURG, handler as *const () as libc::sighandler_t) };
        assert!(!asked());
        // SAFETY: the signal comes to this thread.
        unsafe { libc::raise(libc::SIGURG) };
        assert_eq!(REPORTED.load(Ordering::Relaxed), 2);
    }
}
