//! Where a thread's own stack lies, as the kernel says.

use crate::sys::{self, File};
use crate::walk::Bounds;

/// This thread's own stack, empty when it can't be found. Allocates nothing.
///
/// What else it may be running on (a coroutine's stack, a signal's) can be unmapped at any time, and must not be read
/// as if it were there. `slot` is where it is now; `local` is in its static thread-local storage, which libc puts above the
/// stack of every thread but the main one.
pub(crate) fn find(slot: usize, local: usize) -> Bounds {
    let Ok(file) = File::open(c"/proc/thread-self/maps", libc::O_RDONLY, 0) else {
        return Bounds::default();
    };
    let (mut main, mut below_local) = (Bounds::default(), Bounds::default());
    // A line is read as start-end, then skipped to its end, keeping its last bytes for "[stack]".
    let (mut buf, mut value, mut start, mut end) = ([0u8; 512], 0usize, 0, 0);
    let (mut field, mut tail) = (0, [0u8; 7]);
    loop {
        let n = file.read(&mut buf);
        if n == 0 {
            break;
        }
        for &byte in &buf[..n] {
            match (byte, field) {
                (b'\n', _) => {
                    if &tail == b"[stack]" {
                        // It may grow at any time.
                        main = Bounds {
                            start: grown(end),
                            end,
                        };
                    } else if start <= local && local < end {
                        below_local = Bounds { start, end: local };
                    }
                    (field, value) = (0, 0);
                }
                (b'-', 0) => (field, start, value) = (1, value, 0),
                (b' ', 1) => (field, end) = (2, value),
                (_, 0 | 1) => {
                    value = value << 4 | (byte as char).to_digit(16).unwrap_or(0) as usize
                }
                _ => {
                    tail.copy_within(1.., 0);
                    tail[6] = byte;
                }
            }
        }
    }
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
