//! Where a thread's own stack lies, as the kernel says.

use crate::walk::Bounds;
use crate::{maps, sys};

/// This thread's own stack, empty when it can't be found. Allocates nothing.
///
/// What else it may be running on (a coroutine's stack, a signal's) can be unmapped at any time, and must not be read
/// as if it were there. `slot` is where it is now; `local` is in its static thread-local storage, which libc puts above the
/// stack of every thread but the main one.
pub(crate) fn find(slot: usize, local: usize) -> Bounds {
    let (mut main, mut below_local) = (Bounds::default(), Bounds::default());
    // A small buffer: this is on the way of a thread's first allocation, on whatever stack that comes.
    maps::lines::<512>(|line| {
        let Some((start, end, _)) = maps::range(line) else {
            return;
        };
        if line.ends_with(b"[stack]") {
            // It may grow at any time.
            main = Bounds {
                start: grown(end),
                end,
            };
        } else if start <= local && local < end {
            below_local = Bounds { start, end: local };
        }
    });
    let holds = |bounds: &Bounds| bounds.start <= slot && slot < bounds.end;
    match (holds(&below_local), holds(&main)) {
        (true, _) => below_local,
        (_, true) => main,
        _ if sys::is_main_thread() => main,
        _ => below_local,
    }
}

/// How far down the main thread's stack may grow.
fn grown(end: usize) -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid to write.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &raw mut limit) } == 0;
    let limit = if known && limit.rlim_cur < 1 << 30 {
        limit.rlim_cur as usize
    } else {
        8 << 20
    };
    end.saturating_sub(limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_this_stack() {
        let local = 0u8;
        let address = &raw const local as usize;
        let holds = |bounds: Bounds| bounds.start <= address && address < bounds.end;
        let block = || crate::tls::current() as usize;
        assert!(holds(find(address, block())));
        // Wherever it is running, a thread's stack is its own.
        let elsewhere = std::thread::spawn(move || find(address, block()));
        let other = elsewhere.join().unwrap();
        assert!(!holds(other) && other.end != 0);
        let heap = Box::new(0u8);
        assert!(holds(find(&raw const *heap as usize, block())));
    }
}
