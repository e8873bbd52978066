//! The history of a profile as rows: memory in use and resident memory, moment by moment.

use heapprof_profile::{HeapHistory, Profile, SIZE_CLASS_COUNT, SizeHistogram};

/// A row of the history of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MomentRow {
    /// The position of the row's profile among the profiles of the question.
    pub(crate) part: usize,
    /// The time since the recording began, in nanoseconds.
    pub(crate) since_nanos: i64,
    pub(crate) inuse_space: Option<i64>,
    pub(crate) inuse_objects: Option<i64>,
    /// The resident bytes, including the collector's own tables.
    pub(crate) rss: Option<i64>,
    /// Whether the heap was largest at this moment.
    pub(crate) is_peak: bool,
}

/// Returns the rows of a profile's history, in the order of time. There are none if the profile has
/// no history.
pub(crate) fn moments(part: usize, profile: &Profile) -> Vec<MomentRow> {
    let Some(history) = HeapHistory::from_profile(profile) else {
        return Vec::new();
    };
    let row = |micros: i64| MomentRow {
        part,
        since_nanos: micros.saturating_mul(1000),
        ..MomentRow::default()
    };
    let mut rows: Vec<MomentRow> = Vec::new();
    rows.extend(history.moments.iter().map(|moment| MomentRow {
        inuse_space: Some(moment.bytes),
        inuse_objects: Some(moment.objects),
        ..row(moment.micros)
    }));
    if let Some(peak) = history.peak {
        let same = |row: &&mut MomentRow| {
            row.since_nanos == peak.micros.saturating_mul(1000)
                && row.inuse_space == Some(peak.bytes)
        };
        match rows.iter_mut().find(same) {
            Some(found) => found.is_peak = true,
            None => rows.push(MomentRow {
                inuse_space: Some(peak.bytes),
                is_peak: true,
                ..row(peak.micros)
            }),
        }
    }
    for moment in &history.resident {
        rows.push(MomentRow {
            rss: Some(moment.bytes),
            ..row(moment.micros)
        });
    }
    rows.sort_by_key(|row| row.since_nanos);
    rows
}

/// A row of the size histogram of a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SizeRow {
    /// The position of the row's profile among the profiles of the question.
    pub(crate) part: usize,
    /// The least and the largest size of the objects, in bytes; `None` for mappings.
    pub(crate) sizes: Option<[i64; 2]>,
    pub(crate) alloc_objects: i64,
    pub(crate) inuse_objects: i64,
}

/// Returns the rows of a profile's size histogram, the smallest sizes first. Classes without
/// objects have no row.
pub(crate) fn sizes(part: usize, profile: &Profile) -> Vec<SizeRow> {
    let sizes = SizeHistogram::from_profile(profile).unwrap_or_default();
    let classes = sizes.classes.iter().enumerate();
    let filled = classes.filter(|(_, class)| class.allocated != 0 || class.in_use != 0);
    filled
        .map(|(k, class)| SizeRow {
            part,
            sizes: (k + 1 < SIZE_CLASS_COUNT).then(|| bounds(k)),
            alloc_objects: class.allocated,
            inuse_objects: class.in_use,
        })
        .collect()
}

/// Returns the least and the largest size of a size class.
fn bounds(class: usize) -> [i64; 2] {
    let least = if class == 0 { 0 } else { power(class) };
    [least, power(class + 1).saturating_sub(1)]
}

fn power(of: usize) -> i64 {
    if of < 63 { 1 << of } else { i64::MAX }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_profile::{HeapMoment, HeapPeak, ResidentMoment};

    #[test]
    fn rows_are_in_order_and_the_peak_is_one_of_them() {
        let mut profile = Profile::default();
        assert!(moments(0, &profile).is_empty());
        let moment = |micros, bytes| HeapMoment {
            micros,
            bytes,
            objects: 1,
        };
        let mut history = HeapHistory {
            moments: vec![moment(0, 0), moment(9, 50)],
            resident: vec![ResidentMoment {
                micros: 4,
                bytes: 99,
            }],
            peak: Some(HeapPeak {
                micros: 5,
                bytes: 70,
            }),
        };
        let reported = |profile: &Profile| {
            let rows = moments(0, profile);
            let reported = rows.iter().map(|row| {
                let value = row.inuse_space.or(row.rss);
                (row.since_nanos, value, row.is_peak)
            });
            reported.collect::<Vec<_>>()
        };
        history.put(&mut profile);
        let [first, last] = [(0, Some(0), false), (9000, Some(50), false)];
        let resident = (4000, Some(99), false);
        assert_eq!(
            reported(&profile),
            [first, resident, (5000, Some(70), true), last]
        );
        history.peak = Some(HeapPeak {
            micros: 9,
            bytes: 50,
        });
        history.put(&mut profile);
        assert_eq!(
            reported(&profile),
            [first, resident, (9000, Some(50), true)]
        );
    }

    #[test]
    fn classes_have_their_bounds() {
        assert_eq!(bounds(0), [0, 1]);
        assert_eq!(bounds(1), [2, 3]);
        assert_eq!(bounds(12), [4096, 8191]);
        assert_eq!(bounds(62)[0], 1 << 62);
    }
}
