//! Which objects unwinding has met, so that somebody looks what is mapped when there is a new one.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// More objects are not told apart. A program that has more of them has its code looked at when it
/// dumps, or unloads some.
const MOST: usize = 1024;
/// A look takes at most one part in so many of the time: the kernel writes a line for each mapping,
/// and a program that loads many objects has many.
const SHARE: i64 = 50;
/// What is left over of so much time, in microseconds, is there for looks one after the other.
/// Objects come in groups, and nobody looks any more once a program waits.
const BURST: i64 = 100_000;
/// So long no look takes at least.
const LEAST: i64 = 20;

/// Where objects begin, as a hash table without a lock.
pub(crate) struct Seen {
    start: [AtomicUsize; MOST],
    has_new: AtomicBool,
    /// By when looks up to now have had their share of the time.
    paid: AtomicI64,
}

impl Seen {
    /// None was met.
    pub(crate) const fn new() -> Self {
        Self {
            start: [const { AtomicUsize::new(0) }; MOST],
            has_new: AtomicBool::new(false),
            paid: AtomicI64::new(-BURST),
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

    /// Where the objects begin that were met.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> {
        let all = self.start.iter().map(|place| place.load(Ordering::Relaxed));
        all.filter(|&start| start != 0)
    }

    /// Forgets them, because some were unloaded. What comes to their place is new.
    pub(crate) fn clear(&self) {
        let all = self.start.iter();
        all.for_each(|place| place.store(0, Ordering::Relaxed));
    }

    /// Says that time is counted from now on. What looks have cost before is forgotten.
    pub(crate) fn begin(&self) {
        self.paid.store(-BURST, Ordering::Relaxed);
    }

    /// Whether one was met since somebody last looked, and it is time to look again: so many
    /// microseconds have passed since the recording began.
    pub(crate) fn take_new(&self, micros: i64) -> bool {
        self.has_new.load(Ordering::Relaxed)
            && micros >= self.paid.load(Ordering::Relaxed)
            && self.has_new.swap(false, Ordering::AcqRel)
    }

    /// Says that nothing came of a look, so that there is another one.
    pub(crate) fn look_again(&self) {
        self.has_new.store(true, Ordering::Release);
    }

    /// Notes that a look took so many microseconds, and ended so many after the recording began.
    pub(crate) fn looked(&self, micros: i64, took: i64) {
        let price = took.max(LEAST).saturating_mul(SHARE);
        let paid = self.paid.load(Ordering::Relaxed);
        let paid = paid.max(micros.saturating_sub(BURST)).saturating_add(price);
        self.paid.store(paid, Ordering::Relaxed);
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
            seen.take_new(0)
        };
        assert!(!seen.take_new(0));
        let starts = (1..=MOST).map(|i| i * 4096);
        for start in starts.clone() {
            assert!(is_new(start) && !is_new(start));
        }
        assert!(!is_new(4096 * 7777));
        seen.clear();
        assert!(starts.clone().all(is_new));
        seen.look_again();
        assert!(seen.take_new(0) && !seen.take_new(0));
    }

    /// Some looks may follow each other at once, and all together take their share of the time.
    #[test]
    fn looks_take_a_small_part_of_the_time() {
        for (took, at_once) in [(0, 101), (100, 21), (1500, 2), (10_000, 1)] {
            let seen = Seen::new();
            let is_time = |micros| {
                seen.look_again();
                let is_time = seen.take_new(micros);
                if is_time {
                    seen.looked(micros, took);
                }
                is_time
            };
            let soon = (0..1000).filter(|_| is_time(0)).count();
            assert_eq!(soon, at_once, "{took}");
            let later = (0..10_000_000)
                .step_by(100)
                .filter(|&at| is_time(at))
                .count();
            let share = 10_000_000 / (took.max(LEAST) * SHARE);
            assert!(
                (share - 1..=share + 1).contains(&(later as i64)),
                "{took}: {later}"
            );
            // What is left over does not pile up.
            let after_an_hour = (0..1000).filter(|_| is_time(3_600_000_000)).count();
            assert!(
                (at_once..=at_once + 1).contains(&after_an_hour),
                "{took}: {after_an_hour}"
            );
            // Another recording begins, or a forked child.
            assert!(!is_time(0));
            seen.begin();
            assert!(is_time(0));
        }
    }
}
