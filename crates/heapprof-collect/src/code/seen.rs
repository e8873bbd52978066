//! Which objects unwinding has met, so that somebody looks what is mapped when there is a new one.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// More objects are not told apart. A program that has more of them has its code looked at when it
/// dumps, or unloads some.
const MOST: usize = 1024;

/// Where objects begin, as a hash table without a lock.
pub(crate) struct Seen {
    start: [AtomicUsize; MOST],
    has_new: AtomicBool,
}

impl Seen {
    /// None was met.
    pub(crate) const fn new() -> Self {
        Self {
            start: [const { AtomicUsize::new(0) }; MOST],
            has_new: AtomicBool::new(false),
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

    /// Whether one was met since somebody last asked.
    pub(crate) fn take_new(&self) -> bool {
        self.has_new.load(Ordering::Relaxed) && self.has_new.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_new_once() {
        let seen = Seen::new();
        let is_new = |start| {
            seen.note(start);
            seen.take_new()
        };
        assert!(!seen.take_new());
        let starts = (1..=MOST).map(|i| i * 4096);
        for start in starts.clone() {
            assert!(is_new(start) && !is_new(start));
        }
        assert!(!is_new(4096 * 7777));
        seen.clear();
        assert!(starts.clone().all(is_new));
    }
}
