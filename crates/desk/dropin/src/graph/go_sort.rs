//! Go's `sort.Sort`, step for step. The order of equal elements in pprof's output depends on this
//! algorithm.
//!
//! It is a pattern-defeating quicksort (Peters, arxiv.org/abs/2106.05123) without block
//! partitioning. The choice of pivots, the length limits of each method and the constants of the
//! shuffle are those of Go's package sort (1.19 and later). The code is heapprof's own. It ends and
//! loses no element even if `less` is not a consistent order. For values of opposite signs, pprof's
//! `less` is inconsistent.

/// Sorts by `less` exactly as Go does. The order of equal elements depends on the algorithm alone.
pub fn sort_as_go<T>(list: &mut [T], less: impl Fn(&T, &T) -> bool) {
    let end = list.len();
    let mut sorter = GoSorter { list, less };
    if end > 1 {
        sorter.sort(0, end, bits(end));
    }
}

/// Maximum length of a range that is sorted by insertion.
const MAX_INSERTION_LENGTH: usize = 12;
/// Minimum length of a range whose pivot is a median of medians.
const MIN_NINTHER_LENGTH: usize = 50;

fn bits(n: usize) -> u32 {
    usize::BITS - n.leading_zeros()
}

#[derive(Clone, Copy, PartialEq)]
enum SortHint {
    Unknown,
    Rising,
    Falling,
}

struct GoSorter<'a, T, F> {
    list: &'a mut [T],
    less: F,
}

impl<T, F: Fn(&T, &T) -> bool> GoSorter<'_, T, F> {
    fn less(&self, a: usize, b: usize) -> bool {
        (self.less)(&self.list[a], &self.list[b])
    }

    /// Sorts a range. Switches to heap sort after `bad` bad pivots. Recursion goes into the shorter
    /// part.
    fn sort(&mut self, mut a: usize, mut b: usize, mut bad: u32) {
        let (mut balanced, mut parted) = (true, true);
        loop {
            let length = b - a;
            if length <= MAX_INSERTION_LENGTH {
                return self.insertion_sort(a, b);
            }
            if bad == 0 {
                return self.heap_sort(a, b);
            }
            if !balanced {
                self.shuffle(a, b);
                bad -= 1;
            }
            let (mut pivot, mut hint) = self.pivot(a, b);
            if hint == SortHint::Falling {
                self.list[a..b].reverse();
                pivot = b - 1 - (pivot - a);
                hint = SortHint::Rising;
            }
            if balanced && parted && hint == SortHint::Rising && self.partial_insertion_sort(a, b) {
                return;
            }
            if a > 0 && !self.less(a - 1, pivot) {
                a = self.partition_equals(a, b, pivot);
                continue;
            }
            let middle;
            (middle, parted) = self.partition(a, b, pivot);
            let (left, right) = (middle - a, b - middle);
            balanced = left.min(right) >= length / 8;
            match left < right {
                true => {
                    self.sort(a, middle, bad);
                    a = middle + 1;
                }
                false => {
                    self.sort(middle + 1, b, bad);
                    b = middle;
                }
            }
        }
    }

    fn insertion_sort(&mut self, a: usize, b: usize) {
        for end in a + 1..b {
            let mut at = end;
            while at > a && self.less(at, at - 1) {
                self.list.swap(at, at - 1);
                at -= 1;
            }
        }
    }

    fn heap_sort(&mut self, a: usize, b: usize) {
        let count = b - a;
        for root in (0..=(count - 1) / 2).rev() {
            self.sift(root, count, a);
        }
        for end in (0..count).rev() {
            self.list.swap(a, a + end);
            self.sift(0, end, a);
        }
    }

    fn sift(&mut self, mut root: usize, end: usize, a: usize) {
        loop {
            let mut child = 2 * root + 1;
            if child >= end {
                return;
            }
            if child + 1 < end && self.less(a + child, a + child + 1) {
                child += 1;
            }
            if !self.less(a + root, a + child) {
                return;
            }
            self.list.swap(a + root, a + child);
            root = child;
        }
    }

    /// Puts the elements that are less than the pivot before it and the rest behind it. Returns the
    /// pivot's new position, and whether the range was partitioned already.
    fn partition(&mut self, a: usize, b: usize, pivot: usize) -> (usize, bool) {
        self.list.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        let mut parted = true;
        loop {
            while i <= j && self.less(i, a) {
                i += 1;
            }
            while i <= j && !self.less(j, a) {
                j -= 1;
            }
            if i > j {
                break;
            }
            parted = false;
            self.list.swap(i, j);
            i += 1;
            j -= 1;
        }
        self.list.swap(j, a);
        (j, parted)
    }

    /// Moves the elements that equal the pivot to the front, in a range without lesser elements.
    /// Returns the position after them.
    fn partition_equals(&mut self, a: usize, b: usize, pivot: usize) -> usize {
        self.list.swap(a, pivot);
        let (mut i, mut j) = (a + 1, b - 1);
        loop {
            while i <= j && !self.less(a, i) {
                i += 1;
            }
            while i <= j && self.less(a, j) {
                j -= 1;
            }
            if i > j {
                return i;
            }
            self.list.swap(i, j);
            i += 1;
            j -= 1;
        }
    }

    /// Swaps a few pairs that are out of order. Returns whether the range is sorted afterwards.
    fn partial_insertion_sort(&mut self, a: usize, b: usize) -> bool {
        let mut i = a + 1;
        for _ in 0..5 {
            while i < b && !self.less(i, i - 1) {
                i += 1;
            }
            if i == b {
                return true;
            }
            if b - a < MIN_NINTHER_LENGTH {
                return false;
            }
            self.list.swap(i, i - 1);
            if i - a >= 2 {
                let mut at = i - 1;
                while at >= 1 && self.less(at, at - 1) {
                    self.list.swap(at, at - 1);
                    at -= 1;
                }
            }
            if b - i >= 2 {
                let mut at = i + 1;
                while at < b && self.less(at, at - 1) {
                    self.list.swap(at, at - 1);
                    at += 1;
                }
            }
        }
        false
    }

    /// Swaps three elements near the middle with others, which are chosen by the length alone.
    fn shuffle(&mut self, a: usize, b: usize) {
        let length = b - a;
        let mut random = length as u64;
        let mask = (1usize << bits(length)) - 1;
        let middle = a + length / 4 * 2;
        for at in middle - 1..=middle + 1 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let other = random as usize & mask;
            let other = if other >= length {
                other - length
            } else {
                other
            };
            self.list.swap(at, a + other);
        }
    }

    /// Returns a pivot for a range, and a guess at the order of the range from the comparisons.
    fn pivot(&self, a: usize, b: usize) -> (usize, SortHint) {
        let length = b - a;
        let mut swaps = 0;
        let mut at = [1, 2, 3].map(|quarter| a + length / 4 * quarter);
        if length >= MIN_NINTHER_LENGTH {
            at = at.map(|at| self.median([at - 1, at, at + 1], &mut swaps));
        }
        let pivot = self.median(at, &mut swaps);
        let hint = match swaps {
            0 => SortHint::Rising,
            12 => SortHint::Falling,
            _ => SortHint::Unknown,
        };
        (pivot, hint)
    }

    fn median(&self, [mut a, mut b, mut c]: [usize; 3], swaps: &mut u32) -> usize {
        let mut ordered = |a: &mut usize, b: &mut usize| {
            if self.less(*b, *a) {
                *swaps += 1;
                std::mem::swap(a, b);
            }
        };
        ordered(&mut a, &mut b);
        ordered(&mut b, &mut c);
        ordered(&mut a, &mut b);
        b
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns `count` pairs of a pseudo-random number below `of` and its position. The same seed
    /// always gives the same numbers.
    fn numbers(seed: u32, count: u32, of: u32) -> Vec<(u32, u32)> {
        let mut state = seed;
        (0..count)
            .map(|at| {
                state = state.wrapping_mul(1664525).wrapping_add(1013904223);
                ((state >> 8) % of, at)
            })
            .collect()
    }

    /// Checks the order of equal elements against checksums of lists that Go's sort.Sort sorted.
    #[test]
    fn equals_lie_as_in_go() {
        let table = [
            (1, 5, 3, 33700),
            (2, 12, 4, 59939564429785986),
            (3, 13, 4, 7247239466190180108),
            (4, 30, 5, 1806322962689958947),
            (5, 49, 6, 7983331832991442594),
            (6, 50, 6, 4277869589750976911),
            (7, 100, 10, 7209747713298849284),
            (8, 100, 100, 4871355474597988374),
            (9, 1000, 30, 11401644638806143004),
            (10, 1000, 1000, 11706566091315097744),
            (11, 20000, 50, 8193176098225656706),
            (12, 20000, 2, 17367514287508615434),
            (13, 20000, 20000, 5280395503710365090),
            (14, 300, 1, 17840791099072486550),
        ];
        for (seed, count, of, expected) in table {
            let mut list = numbers(seed, count, of);
            sort_as_go(&mut list, |a, b| a.0 < b.0);
            assert!(list.is_sorted_by_key(|e| e.0));
            let sum = list.iter().fold(0u64, |sum, &(_, at)| {
                sum.wrapping_mul(31).wrapping_add(u64::from(at))
            });
            assert_eq!(sum, expected, "{seed} {count} {of}");
        }
    }

    /// Checks sorted, reversed and sawtooth lists, which take branches of the sort that random
    /// lists do not take.
    #[test]
    fn patterns() {
        let patterns: [fn(u64) -> u64; 4] = [
            |i| i,
            |i| 1000 - i,
            |i| i % 7,
            |i| if i == 100 { 0 } else { i },
        ];
        let table = [
            (0, 20, 17217816742282703882),
            (0, 500, 15713154281389315322),
            (1, 20, 1716623219086601142),
            (1, 500, 14219498319878200518),
            (2, 20, 7716163170839297390),
            (2, 500, 439544084110352210),
            (3, 20, 17217816742282703882),
            (3, 500, 15371341122361662110),
        ];
        for (pattern, count, expected) in table {
            let value = patterns[pattern];
            let mut list: Vec<(u64, u64)> = (0..count).map(|i| (value(i), i)).collect();
            sort_as_go(&mut list, |a, b| a.0 < b.0);
            assert!(list.is_sorted_by_key(|e| e.0));
            let sum = list
                .iter()
                .fold(0u64, |sum, &(_, at)| sum.wrapping_mul(31).wrapping_add(at));
            assert_eq!(sum, expected, "{pattern} {count}");
        }
    }

    /// Checks that the sort ends and loses nothing with a `less` that is no order at all.
    #[test]
    fn less_that_is_no_order() {
        for seed in 0..50 {
            let mut list = numbers(seed, 300, 3);
            sort_as_go(&mut list, |a, b| (a.0 + 1) % 3 == b.0);
            list.sort_by_key(|e| e.1);
            assert!(list.iter().enumerate().all(|(i, e)| e.1 == i as u32));
        }
    }
}
