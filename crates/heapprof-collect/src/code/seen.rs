//! Which objects unwinding has met, so that somebody looks what is mapped when there is a new one.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// More objects are not told apart. A program that has more of them has its code looked at when it
/// dumps, or unloads some.
const MOST: usize = 1024;
/// So long after a new one nobody looks for others, in microseconds: they come in groups.
const PAUSE: i64 = 5000;
/// And so many times as long as the look took: the kernel writes a line for each mapping, and a
/// program that loads many objects has many.
const SHARE: i64 = 50;

/// Where objects begin, as a hash table without a lock.
pub(crate) struct Seen {
    start: [AtomicUsize; MOST],
    has_new: AtomicBool,
    /// When somebody may look again.
    next: AtomicI64,
}

impl Seen {
    /// None was met.
    pub(crate) const fn new() -> Self {
        Self {
            start: [const { AtomicUsize::new(0) }; MOST],
            has_new: AtomicBool::new(false),
            next: AtomicI64::new(0),
        }
    }

    /// Notes the object that begins at `start`.
    pub(crate) fn note(&self, start: usize) {
        let first = (start as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        for i in 0..MOST {
            let place = &self.start[(first as usize).wrapping_add(i) % MOST];
            match place.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return self.has_new.store(true, Ordering::Release),
                Err(found) if found == start => return,
                Err(_) => {}
            }
        }
    }

    /// Forgets them, because some were unloaded. What comes to their place is new.
    pub(crate) fn clear(&self) {
        let all = self.start.iter();
        all.for_each(|place| place.store(0, Ordering::Relaxed));
    }

    /// Whether one was met since somebody last looked, and it is time to look again: so many
    /// microseconds have passed since the recording began.
    pub(crate) fn take_new(&self, micros: i64) -> bool {
        let is_time = self.has_new.load(Ordering::Relaxed)
            && micros >= self.next.load(Ordering::Relaxed)
            && self.has_new.swap(false, Ordering::AcqRel);
        if is_time {
            self.next.store(micros + PAUSE, Ordering::Relaxed);
        }
        is_time
    }

    /// Says that nothing came of a look, so that there is another one.
    pub(crate) fn look_again(&self) {
        self.has_new.store(true, Ordering::Release);
    }

    /// Notes that a look took so many microseconds, and ended so many after the recording began.
    pub(crate) fn looked(&self, micros: i64, took: i64) {
        let next = micros.saturating_add(took.saturating_mul(SHARE));
        self.next.fetch_max(next, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_new_once() {
        let seen = Seen::new();
        let now = std::cell::Cell::new(0);
        let is_new = |start| {
            seen.note(start);
            now.set(now.get() + PAUSE);
            seen.take_new(now.get())
        };
        assert!(!seen.take_new(0));
        let starts = (1..=MOST).map(|i| i * 4096);
        for start in starts.clone() {
            assert!(is_new(start) && !is_new(start));
        }
        assert!(!is_new(4096 * 7777));
        seen.clear();
        assert!(starts.clone().all(is_new));
        seen.note(7);
        seen.clear();
        seen.note(9);
        assert!(!seen.take_new(now.get() + PAUSE - 1) && seen.take_new(now.get() + PAUSE));
    }

    #[test]
    fn looks_take_a_small_part_of_the_time() {
        let seen = Seen::new();
        seen.note(4096);
        assert!(seen.take_new(0));
        seen.looked(1000, 1000);
        seen.note(8192);
        assert!(!seen.take_new(50_999));
        assert!(seen.take_new(51_000));
        seen.look_again();
        assert!(!seen.take_new(51_001) && seen.take_new(60_000) && !seen.take_new(90_000));
    }
}
