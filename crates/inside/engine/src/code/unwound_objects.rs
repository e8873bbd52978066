//! The loaded objects that stack walks have reached, and whether these objects require a scan of
//! the mapped code.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

/// Maximum number of objects in the table. Any further object counts as new each time a stack walk
/// reaches it.
const MAX_OBJECTS: usize = 1024;
/// Divisor for the time that scans may take: at most a fiftieth of all time. A scan is slow in a
/// program with many objects, because the kernel writes a line for each mapping.
const SCAN_TIME_DIVISOR: i64 = 50;
/// Longest time, in microseconds, that scans in a row may take. This time is saved up while no scan
/// runs. Scans in a row are needed because objects are loaded in groups, and because a program that
/// only waits afterwards runs no later scan.
const MAX_SCAN_BURST: i64 = 100_000;
/// Smallest time that is counted for a scan, in microseconds.
const MIN_SCAN_TIME: i64 = 20;

/// The addresses at which objects begin, in a hash table without a lock.
pub(crate) struct SeenObjects {
    start: [AtomicUsize; MAX_OBJECTS],
    /// Whether a scan is due.
    is_due: AtomicBool,
    /// Earliest time of the next scan, in microseconds after the recording began. Each scan moves
    /// it by [`SCAN_TIME_DIVISOR`] times the scan's duration.
    paid: AtomicI64,
}

impl SeenObjects {
    /// Makes a table without objects.
    pub(crate) const fn new() -> Self {
        Self {
            start: [const { AtomicUsize::new(0) }; MAX_OBJECTS],
            is_due: AtomicBool::new(false),
            paid: AtomicI64::new(-MAX_SCAN_BURST),
        }
    }

    /// Whether the object that begins at `start` is missing in the table, because it was not noted
    /// yet or the table is full.
    pub(crate) fn is_new(&self, start: usize) -> bool {
        for place in self.places(start) {
            match place.load(Ordering::Acquire) {
                0 => return true,
                found if found == start => return false,
                _ => {}
            }
        }
        true
    }

    /// Adds the object that begins at `start` to the table. A thread that later finds the object
    /// there also sees everything that this thread wrote before.
    pub(crate) fn note(&self, start: usize) {
        for place in self.places(start) {
            match place.compare_exchange(0, start, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(found) if found == start => return,
                Err(_) => {}
            }
        }
    }

    /// Returns the table's slots for the object that begins at `start`, the preferred slot first.
    fn places(&self, start: usize) -> impl Iterator<Item = &AtomicUsize> {
        let first = (start as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (0..MAX_OBJECTS).map(move |i| &self.start[(first as usize).wrapping_add(i) % MAX_OBJECTS])
    }

    /// Returns the start address of each object in the table.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> {
        let all = self.start.iter().map(|place| place.load(Ordering::Relaxed));
        all.filter(|&start| start != 0)
    }

    /// Removes all objects, because some were unloaded and other objects may take their addresses.
    pub(crate) fn clear(&self) {
        let all = self.start.iter();
        all.for_each(|place| place.store(0, Ordering::Relaxed));
    }

    /// Forgets the time that earlier scans have taken.
    pub(crate) fn begin(&self) {
        self.paid.store(-MAX_SCAN_BURST, Ordering::Relaxed);
    }

    /// Whether a scan is due and may run now, `micros` microseconds after the recording began.
    /// Clears the request if so.
    pub(crate) fn take_due(&self, micros: i64) -> bool {
        self.is_due.load(Ordering::Relaxed)
            && micros >= self.paid.load(Ordering::Relaxed)
            && self.is_due.swap(false, Ordering::AcqRel)
    }

    /// Requests a scan, because the engine needs more data about an object, or because a scan had
    /// no result.
    pub(crate) fn request_scan(&self) {
        self.is_due.store(true, Ordering::Release);
    }

    /// Notes that a scan took `took` microseconds, and ended `micros` microseconds after the
    /// recording began.
    pub(crate) fn note_scan(&self, micros: i64, took: i64) {
        let price = took.max(MIN_SCAN_TIME).saturating_mul(SCAN_TIME_DIVISOR);
        let paid = self.paid.load(Ordering::Relaxed);
        let paid = paid
            .max(micros.saturating_sub(MAX_SCAN_BURST))
            .saturating_add(price);
        self.paid.store(paid, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_object_is_new_once() {
        let seen = SeenObjects::new();
        let is_new = |start| {
            let is_new = seen.is_new(start);
            seen.note(start);
            is_new
        };
        let starts = (1..=MAX_OBJECTS).map(|i| i * 4096);
        for start in starts.clone() {
            assert!(is_new(start) && !is_new(start));
        }
        // There is no room for more objects.
        assert!(is_new(4096 * 7777) && is_new(4096 * 7777));
        assert!(seen.all().count() == MAX_OBJECTS && !is_new(4096));
        seen.clear();
        assert!(starts.clone().all(is_new));
        assert!(!seen.take_due(0));
        seen.request_scan();
        assert!(seen.take_due(0) && !seen.take_due(0));
    }

    /// Tests that a few scans may run in a row, but that all scans together take no more than their
    /// share of the time.
    #[test]
    fn looks_take_a_small_part_of_the_time() {
        for (took, at_once) in [(0, 101), (100, 21), (1500, 2), (10_000, 1)] {
            let seen = SeenObjects::new();
            let is_time = |micros| {
                seen.request_scan();
                let is_time = seen.take_due(micros);
                if is_time {
                    seen.note_scan(micros, took);
                }
                is_time
            };
            let soon = (0..1000).filter(|_| is_time(0)).count();
            assert_eq!(soon, at_once, "{took}");
            let later = (0..10_000_000)
                .step_by(100)
                .filter(|&at| is_time(at))
                .count();
            let share = 10_000_000 / (took.max(MIN_SCAN_TIME) * SCAN_TIME_DIVISOR);
            assert!(
                (share - 1..=share + 1).contains(&(later as i64)),
                "{took}: {later}"
            );
            // Unused time does not add up without limit.
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
