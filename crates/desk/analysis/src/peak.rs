//! The time and the size of the largest heap. All commands use this definition.

use std::cmp::Reverse;

use crate::error::AnalysisError;
use crate::session::AnalysisSession;

/// The largest heap in the records of one profile, or of a series of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargestHeap {
    /// The position of the profile that records this heap.
    pub profile: usize,
    /// The bytes in use at the peak: all of the profile's `peak_space`, whatever the filters keep.
    pub bytes: i64,
    /// The time of the peak in nanoseconds since the profile's recording began, if the history has
    /// it.
    pub since_nanos: Option<i64>,
    /// The time of the peak in nanoseconds since 1970 UTC; `None` if the time of the profile is not
    /// known.
    pub time_nanos: Option<i64>,
}

impl LargestHeap {
    /// Returns the peak of a series: the largest heap that any of its profiles records. Several
    /// profiles of one process may record the same peak, because each has the largest heap since
    /// the recording began. Of equal peaks, the earliest one with a known time is taken.
    pub fn largest(peaks: impl IntoIterator<Item = Self>) -> Option<Self> {
        let order = |peak: &Self| {
            let times = [peak.time_nanos, peak.since_nanos].map(|time| time.map(Reverse));
            (peak.bytes, times, Reverse(peak.profile))
        };
        peaks.into_iter().max_by_key(order)
    }
}

/// Returns the peak of all profiles of the session's question; `None` if no profile has a peak. For
/// a profile without `peak_space`, the peak of its history is taken. The question must have been
/// made with `TypeSelection::All`.
pub fn peak(session: &AnalysisSession) -> Result<Option<LargestHeap>, AnalysisError> {
    let mut peaks = Vec::new();
    session.each(
        "SELECT p.id, coalesce((SELECT t.net FROM profile_total t JOIN sample_type s ON s.id = \
         t.type WHERE t.profile = p.id AND s.type = 'peak_space'), m.inuse_space), m.since_nanos, \
         m.time_nanos FROM profile p LEFT JOIN moment m ON m.profile = p.id AND m.is_peak ORDER \
         BY p.id",
        [],
        |row| {
            if let Some(bytes) = row.get(1)? {
                peaks.push(LargestHeap {
                    profile: row.get::<_, u32>(0)? as usize - 1,
                    bytes,
                    since_nanos: row.get(2)?,
                    time_nanos: row.get::<_, Option<i64>>(3)?.filter(|&time| time != 0),
                });
            }
            Ok::<_, AnalysisError>(())
        },
    )?;
    Ok(LargestHeap::largest(peaks))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_named_by_who_knows_its_time() {
        let peak = |bytes, since_nanos, time_nanos| LargestHeap {
            profile: 0,
            bytes,
            since_nanos,
            time_nanos,
        };
        let largest = |peaks: &[LargestHeap]| LargestHeap::largest(peaks.iter().copied());
        assert_eq!(largest(&[]), None);
        let (small, unknown) = (peak(7, Some(1), Some(101)), peak(9, None, None));
        let (early, late) = (peak(9, Some(3), Some(103)), peak(9, Some(5), Some(105)));
        let apart = peak(9, Some(2), None);
        assert_eq!(largest(&[small, unknown]), Some(unknown));
        assert_eq!(largest(&[late, unknown, early, small, apart]), Some(early));
        assert_eq!(largest(&[unknown, apart]), Some(apart));
    }
}
