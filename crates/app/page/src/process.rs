//! Converts data about the whole process to the form of a page: the heap over time, and the sizes
//! of allocations.

use heapprof_analysis::{stats::StatsSize, timeline::TimelineRow};
use heapprof_web as web;

/// Number of size classes of a page: one for each power of two.
const SIZE_CLASS_COUNT: usize = 64;

/// Makes the curve of a history. An unknown value is replaced by the value of the moment before.
pub(crate) fn curve(history: &[TimelineRow]) -> Option<web::HistoryCurve> {
    let first = history.iter().position(|row| row.inuse_space.is_some())?;
    let mut curve = web::HistoryCurve::default();
    let (mut inuse, mut objects, mut rss) = (0, 0, None);
    let (mut all_objects, mut all_rss) = (Vec::new(), Vec::new());
    for row in &history[first..] {
        inuse = row.inuse_space.unwrap_or(inuse);
        objects = row.inuse_objects.unwrap_or(objects);
        rss = row.rss.or(rss);
        curve.time_ms.push(milliseconds(row.since_nanos));
        curve.inuse.push(inuse);
        all_objects.push(objects);
        all_rss.push(rss);
        if row.is_peak {
            curve.peak = Some(web::HistoryPeak {
                time_ms: milliseconds(row.since_nanos),
                bytes: inuse,
            });
        }
    }
    curve.rss = all_rss.iter().any(Option::is_some).then_some(all_rss);
    curve.objects = Some(all_objects);
    Some(curve)
}

fn milliseconds(nanos: i64) -> f64 {
    nanos as f64 / 1e6
}

/// Makes the histograms of sizes. Mappings have no size, and are left out.
pub(crate) fn sizes(found: &[StatsSize], is_exact: bool) -> Option<web::PageSizeHistograms> {
    if found.is_empty() {
        return None;
    }
    let mut counts = [vec![0i64; SIZE_CLASS_COUNT], vec![0i64; SIZE_CLASS_COUNT]];
    for of in found {
        if let Some([least, _]) = of.sizes {
            let class = least.max(1).ilog2() as usize;
            // The page draws bars, and a count below zero has none.
            counts[0][class] = of.inuse_objects.max(0);
            counts[1][class] = of.alloc_objects.max(0);
        }
    }
    let [inuse, alloc] = counts;
    Some(web::PageSizeHistograms {
        inuse: Some(inuse),
        alloc: Some(alloc),
        is_exact,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_as_before() {
        let row = |since_nanos, inuse_space, rss| TimelineRow {
            since_nanos,
            inuse_space,
            inuse_objects: inuse_space,
            rss,
            is_peak: inuse_space == Some(7),
            ..TimelineRow::default()
        };
        let rows = [
            row(0, None, Some(1)),
            row(1_000_000, Some(7), None),
            row(2_000_000, None, Some(50)),
            row(3_000_000, Some(5), None),
        ];
        let curve = curve(&rows).unwrap();
        assert_eq!(curve.time_ms, [1.0, 2.0, 3.0]);
        assert_eq!(curve.inuse, [7, 7, 5]);
        assert_eq!(curve.objects, Some(vec![7, 7, 5]));
        assert_eq!(curve.rss, Some(vec![None, Some(50), Some(50)]));
        let peak = curve.peak.unwrap();
        assert_eq!((peak.time_ms, peak.bytes), (1.0, 7));
    }

    #[test]
    fn without_moments_there_is_no_curve() {
        assert_eq!(curve(&[]), None);
        assert_eq!(sizes(&[], true), None);
    }
}
