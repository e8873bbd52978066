//! Histogram of the sizes of a process's allocations, by powers of two.

use std::fmt::Write as _;

use super::{one, replace};
use crate::model::Profile;

/// Number of size classes. Class 0 has the sizes 0 and 1. Any other class `k` has the sizes from
/// 2^k to just below 2^(k+1). The last class is for mappings, which have no fixed size because
/// parts of them may be unmapped.
pub const SIZE_CLASS_COUNT: usize = 65;

/// Returns the class of a size in bytes.
#[must_use]
pub const fn class_of(size: u64) -> usize {
    (63 - (size | 1).leading_zeros()) as usize
}

/// Counts of the objects in one size class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SizeClass {
    /// Number of objects that were allocated.
    pub allocated: i64,
    /// Number of objects that are in use.
    pub in_use: i64,
}

/// Histogram of the sizes of a process's allocations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeHistogram {
    /// Classes, from the smallest sizes to the largest. The last class is for mappings.
    pub classes: [SizeClass; SIZE_CLASS_COUNT],
}

/// Beginning of the comment of a size histogram.
pub(super) const SIZES_PREFIX: &str = "#heapprof.sizes.1";

impl Default for SizeHistogram {
    fn default() -> Self {
        Self {
            classes: [SizeClass::default(); SIZE_CLASS_COUNT],
        }
    }
}

impl SizeHistogram {
    /// Returns the comment that holds these sizes. Classes without allocations are left out.
    #[must_use]
    pub fn comment(&self) -> String {
        let mut text = String::from(SIZES_PREFIX);
        for (class, of) in self.classes.iter().enumerate() {
            if *of != SizeClass::default() {
                // Writing to a string does not fail.
                let _ = write!(text, " {class}:{}/{}", of.allocated, of.in_use);
            }
        }
        text
    }

    /// Reads the sizes that a comment holds. Returns `None` if the comment holds no valid sizes.
    #[must_use]
    pub fn from_comment(comment: &str) -> Option<Self> {
        let mut sizes = Self::default();
        let classes = comment.strip_prefix(SIZES_PREFIX)?;
        if !(classes.is_empty() || classes.starts_with(' ')) {
            return None;
        }
        for class in classes.split_whitespace() {
            let (class, counts) = class.split_once(':')?;
            let to = sizes.classes.get_mut(class.parse::<usize>().ok()?)?;
            let (allocated, in_use) = counts.split_once('/')?;
            *to = SizeClass {
                allocated: allocated.parse().ok()?,
                in_use: in_use.parse().ok()?,
            };
        }
        Some(sizes)
    }

    /// Reads the sizes of a profile. Returns `None` if the profile has no sizes, invalid ones, or
    /// the sizes of several processes.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Option<Self> {
        Self::from_comment(one(profile, SIZES_PREFIX)?)
    }

    /// Stores this histogram in a profile and removes earlier histograms.
    pub fn put(&self, profile: &mut Profile) {
        replace(profile, SIZES_PREFIX, &self.comment());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_powers_of_two() {
        let table = [
            (0, 0),
            (1, 0),
            (2, 1),
            (3, 1),
            (4, 2),
            (4095, 11),
            (4096, 12),
            (u64::MAX, 63),
        ];
        for (size, class) in table {
            assert_eq!(class_of(size), class, "{size}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut sizes = SizeHistogram::default();
        sizes.classes[4] = SizeClass {
            allocated: 100,
            in_use: -3,
        };
        sizes.classes[64].allocated = 2;
        let text = sizes.comment();
        assert_eq!(text, "#heapprof.sizes.1 4:100/-3 64:2/0");
        assert_eq!(SizeHistogram::from_comment(&text), Some(sizes));
        for wrong in [
            "#heapprof.sizes.2 4:1/2",
            "#heapprof.sizes.10 4:1/2",
            "#heapprof.sizes.1 65:1/2",
            "#heapprof.sizes.1 4",
            "#heapprof.sizes.1 4:1",
            "#heapprof.sizes.1 4:1/2/3",
            "#heapprof.sizes.1 4:1/x",
            "#heapprof.sizes.1 -1:1/2",
        ] {
            assert_eq!(SizeHistogram::from_comment(wrong), None, "{wrong}");
        }
    }
}
