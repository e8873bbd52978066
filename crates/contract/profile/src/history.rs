//! A collector's data other than samples: the size of the heap over the recording, and the sizes of
//! allocations. Both are stored as comments of a profile, which other tools ignore.
//!
//! Format: `#heapprof.history.1 BASE64` and `#heapprof.sizes.1 CLASS:ALLOCATED/INUSE …`. The page
//! docs/formats/history.md of the project describes both. pprof hides comments that begin with `#`
//! from its reports.

mod sizes;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::model::Profile;
use crate::varint::varint;
use crate::wire;

pub use self::sizes::{SIZE_CLASS_COUNT, SizeClass, SizeHistogram, class_of};

/// Heap size and resident memory of a process over the time of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeapHistory {
    /// Sizes of the heap, in order of time.
    pub moments: Vec<HeapMoment>,
    /// Sizes of the resident set, in order of time. They may be measured at other times than the
    /// heap.
    pub resident: Vec<ResidentMoment>,
    /// Time of the largest heap, and its size.
    pub peak: Option<HeapPeak>,
}

/// Size of the heap at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct HeapMoment {
    /// Microseconds since the recording began.
    pub micros: i64,
    /// Number of bytes in use.
    pub bytes: i64,
    /// Number of objects in use.
    pub objects: i64,
}

/// Size of the resident set at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResidentMoment {
    /// Microseconds since the recording began.
    pub micros: i64,
    /// Number of bytes of the process that were in memory.
    pub bytes: i64,
}

/// Time and size of the heap when it was largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapPeak {
    /// Microseconds from the beginning of the recording to the first measurement after the peak.
    pub micros: i64,
    /// Number of bytes in use at the peak.
    pub bytes: i64,
}

/// Beginning of the comment of a history.
pub(crate) const HISTORY_PREFIX: &str = "#heapprof.history.1 ";

/// Maximum number of moments that are read from a history.
const MAX_MOMENTS: u64 = 1 << 16;

/// Whether a comment holds data for heapprof's commands: a history, allocation sizes, an audit of a
/// forked child, or a part of the resident memory at its peak.
#[must_use]
pub fn is_for_machines(comment: &str) -> bool {
    comment.starts_with(HISTORY_PREFIX)
        || comment.starts_with(sizes::SIZES_PREFIX)
        || crate::fork::is_ours(comment)
        || crate::peak_parts::PeakPart::from_comment(comment).is_some()
}

/// Longest span over which a growth is measured, in microseconds.
const MAX_GROWTH_SPAN: i64 = 60_000_000;
/// Shortest span over which a growth says something, in microseconds.
const MIN_GROWTH_SPAN: i64 = 2_000_000;

impl HeapHistory {
    /// Returns by how many bytes the heap grew in a minute, measured over the last minute of the
    /// history; `None` if the history is too short.
    #[must_use]
    pub fn growth_per_minute(&self) -> Option<i64> {
        let last = self.moments.last()?;
        let since = last.micros.saturating_sub(MAX_GROWTH_SPAN);
        let first = self.moments.iter().find(|moment| moment.micros >= since)?;
        let span = last.micros.saturating_sub(first.micros);
        let bytes = i128::from(last.bytes) - i128::from(first.bytes);
        let growth = bytes * 60_000_000 / i128::from(span.max(1));
        i64::try_from(growth)
            .ok()
            .filter(|_| span >= MIN_GROWTH_SPAN)
    }

    /// Returns the comment that holds this history.
    #[must_use]
    pub fn comment(&self) -> String {
        let mut out = Vec::with_capacity(16 + 8 * self.moments.len() + 6 * self.resident.len());
        let moments = self.moments.iter();
        column(&mut out, moments.clone().map(|moment| moment.micros));
        column(&mut out, moments.clone().map(|moment| moment.bytes));
        column(&mut out, moments.map(|moment| moment.objects));
        let resident = self.resident.iter();
        column(&mut out, resident.clone().map(|moment| moment.micros));
        column(&mut out, resident.map(|moment| moment.bytes));
        let peak = self.peak.map(|peak| [peak.micros, peak.bytes]);
        column(&mut out, peak.into_iter().flatten());
        let mut text = String::from(HISTORY_PREFIX);
        STANDARD.encode_string(&out, &mut text);
        text
    }

    /// Reads the history that a comment holds. Returns `None` if the comment holds no valid
    /// history.
    #[must_use]
    pub fn from_comment(comment: &str) -> Option<Self> {
        let bytes = STANDARD
            .decode(comment.strip_prefix(HISTORY_PREFIX)?)
            .ok()?;
        let mut at = 0;
        let mut next = || read_column(&bytes, &mut at);
        let (times, sizes, objects) = (next()?, next()?, next()?);
        let (resident_times, resident, peak) = (next()?, next()?, next()?);
        let same = times.len() == sizes.len() && times.len() == objects.len();
        if !same || resident_times.len() != resident.len() || at != bytes.len() {
            return None;
        }
        let ordered = |times: &[i64]| times.is_sorted() && times.first().is_none_or(|t| *t >= 0);
        if !ordered(&times) || !ordered(&resident_times) {
            return None;
        }
        let moments = times.iter().zip(sizes).zip(objects);
        let moments = moments.map(|((&micros, bytes), objects)| HeapMoment {
            micros,
            bytes,
            objects,
        });
        let resident = resident_times.iter().zip(resident);
        let resident = resident.map(|(&micros, bytes)| ResidentMoment { micros, bytes });
        let peak = match peak[..] {
            [] => None,
            [micros, bytes] => Some(HeapPeak { micros, bytes }),
            _ => return None,
        };
        Some(Self {
            moments: moments.collect(),
            resident: resident.collect(),
            peak,
        })
    }

    /// Reads the history of a profile. Returns `None` if the profile has no history, an invalid
    /// history, or the histories of several processes.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Option<Self> {
        let text = one(profile, HISTORY_PREFIX)?;
        Self::from_comment(text)
    }

    /// Stores this history in a profile and removes earlier histories.
    pub fn put(&self, profile: &mut Profile) {
        replace(profile, HISTORY_PREFIX, &self.comment());
    }
}

/// Returns the only comment of a profile with this beginning; `None` if there are none or several.
fn one<'p>(profile: &'p Profile, begins: &str) -> Option<&'p str> {
    let all = profile.comment.iter().map(|&id| profile.text(id));
    let mut found = all.filter(|text| text.starts_with(begins));
    let first = found.next()?;
    found.next().is_none().then_some(first)
}

/// Replaces all comments of a profile with this beginning by one comment.
fn replace(profile: &mut Profile, begins: &str, comment: &str) {
    let strings = &profile.strings;
    profile
        .comment
        .retain(|&id| !strings.get(id).starts_with(begins));
    let id = profile.strings.intern(comment);
    profile.comment.push(id);
}

/// Appends the count of the numbers, and then each number as its difference from the previous
/// number.
fn column(out: &mut Vec<u8>, numbers: impl Iterator<Item = i64>) {
    let numbers: Vec<i64> = numbers.collect();
    varint(out, numbers.len() as u64);
    let mut before = 0i64;
    for number in numbers {
        let step = number.wrapping_sub(before);
        varint(out, ((step << 1) ^ (step >> 63)) as u64);
        before = number;
    }
}

/// Reads a column of numbers as [`column()`] writes it.
fn read_column(bytes: &[u8], at: &mut usize) -> Option<Vec<i64>> {
    let count = wire::varint(bytes, at).ok()?;
    // Each number takes at least one byte.
    if count > MAX_MOMENTS || count > (bytes.len() - *at) as u64 {
        return None;
    }
    let mut before = 0i64;
    let mut numbers = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let step = wire::varint(bytes, at).ok()?;
        let step = (step >> 1) as i64 ^ -((step & 1) as i64);
        before = before.wrapping_add(step);
        numbers.push(before);
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn some() -> HeapHistory {
        let moment = |(micros, bytes, objects)| HeapMoment {
            micros,
            bytes,
            objects,
        };
        HeapHistory {
            moments: [(0, 0, 0), (15, 4096, 3), (900, -7, i64::MAX)]
                .map(moment)
                .into(),
            resident: vec![ResidentMoment {
                micros: 40,
                bytes: 1 << 40,
            }],
            peak: Some(HeapPeak {
                micros: 15,
                bytes: 5000,
            }),
        }
    }

    #[test]
    fn growth_is_that_of_the_last_minute() {
        let history = |moments: &[(i64, i64)]| HeapHistory {
            moments: moments
                .iter()
                .map(|&(seconds, bytes)| HeapMoment {
                    micros: seconds * 1_000_000,
                    bytes,
                    objects: 1,
                })
                .collect(),
            ..HeapHistory::default()
        };
        for (moments, expected) in [
            (&[(0, 0), (10, 100)][..], Some(600)),
            (&[(0, 0), (40, 900), (70, 400), (100, 500)], Some(-400)),
            (&[(0, 0), (1, 100)], None),
            (&[], None),
            (&[(0, i64::MIN), (2, i64::MAX)], None),
        ] {
            assert_eq!(
                history(moments).growth_per_minute(),
                expected,
                "{moments:?}"
            );
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for history in [some(), HeapHistory::default()] {
            assert_eq!(HeapHistory::from_comment(&history.comment()), Some(history));
        }
    }

    #[test]
    fn pprof_hides_the_comment() {
        assert!(some().comment().starts_with('#'));
        assert!(is_for_machines(&some().comment()));
        assert!(!is_for_machines("# a user's own"));
    }

    #[test]
    fn what_is_not_whole_is_not_read() {
        let whole = some().comment();
        let bytes = STANDARD
            .decode(whole.strip_prefix(HISTORY_PREFIX).unwrap())
            .unwrap();
        let read = |bytes: &[u8]| {
            HeapHistory::from_comment(&(HISTORY_PREFIX.to_string() + &STANDARD.encode(bytes)))
        };
        assert_eq!(read(&bytes), Some(some()));
        for length in 0..bytes.len() {
            assert_eq!(read(&bytes[..length]), None, "{length}");
        }
        assert_eq!(read(&[&bytes[..], &[0]].concat()), None);
        // Times that decrease, and a count without numbers after it.
        assert_eq!(read(&[2, 20, 3, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0]), None);
        assert_eq!(read(&[0xff, 0xff, 0xff, 0xff, 0x0f]), None);
        assert_eq!(
            HeapHistory::from_comment("#heapprof.history.1 not base64!"),
            None
        );
    }

    #[test]
    fn a_profile_has_one_or_none() {
        let mut profile = Profile::default();
        assert_eq!(HeapHistory::from_profile(&profile), None);
        some().put(&mut profile);
        some().put(&mut profile);
        assert_eq!(HeapHistory::from_profile(&profile), Some(some()));
        let other = profile.strings.intern(&HeapHistory::default().comment());
        profile.comment.push(other);
        assert_eq!(HeapHistory::from_profile(&profile), None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let text = HISTORY_PREFIX.to_string() + &STANDARD.encode(bytes);
            let _ = HeapHistory::from_comment(&text);
        }
    }
}
