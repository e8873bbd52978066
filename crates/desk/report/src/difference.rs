//! Differences in a flame graph: inferno draws the frames, and this module gives them their colours
//! and titles.
//!
//! inferno paints a frame in red or blue by the difference of its own value, but users want the
//! difference of all that a frame contains. So this module finds each frame in the picture by its
//! position and depth, and paints it by the difference of its total. Orange means grown and blue
//! means shrunk, so that people who can't distinguish red from green can read the picture, too.

use std::collections::HashMap;

use heapprof_analysis::tree::{TreeReport, TreeRow};
use regex::{Captures, Regex};

use crate::measure::UnitFormatter;

/// The way to divide the values of a row into before and after.
pub(crate) enum DifferenceSides {
    /// One profile without negative values: all values count as after.
    One,
    /// One profile with negative values, which is a difference already. Negative values count as
    /// before, and other values as after.
    Signed,
    /// Two profiles: values of the first profile count as before, and values of the second profile
    /// count as after.
    Two,
}

impl DifferenceSides {
    pub(crate) fn new(tree: &TreeReport<'_>, rows: &[TreeRow]) -> Self {
        match tree.others.is_empty() {
            false => DifferenceSides::Two,
            true if rows.iter().any(|row| row.own[0] < 0) => DifferenceSides::Signed,
            true => DifferenceSides::One,
        }
    }

    pub(crate) fn two_sided(&self) -> bool {
        !matches!(self, DifferenceSides::One)
    }

    /// Splits a row's own values into a value before and a value after. Neither is negative.
    pub(crate) fn split(&self, own: &[i64]) -> (i64, i64) {
        let at = |i: usize| own.get(i).copied().unwrap_or(0);
        match self {
            DifferenceSides::One => (0, at(0).max(0)),
            DifferenceSides::Signed => (at(0).min(0).saturating_neg(), at(0).max(0)),
            DifferenceSides::Two => (at(0).max(0), at(1).max(0)),
        }
    }
}

/// The position of a frame in the picture: its depth below the root, and the value at which it
/// begins.
type FramePosition = (usize, i64);

/// Returns the sums of each frame before and after. The sums include all frames that the frame
/// contains. The key is the position at which inferno draws the frame.
fn sums_by_position(
    rows: &[TreeRow],
    sides: &DifferenceSides,
    divisor: i64,
) -> HashMap<FramePosition, (i128, i128)> {
    // The root of the picture comes first, then the rows. Each has its position, its parent and its
    // sums.
    let mut frames: Vec<(FramePosition, usize, (i128, i128))> = vec![((0, 0), 0, (0, 0))];
    let mut path: Vec<usize> = Vec::new();
    let mut cursor = 0;
    for TreeRow { depth, own, .. } in rows {
        path.truncate(*depth);
        let parent = path.last().copied().unwrap_or(0);
        path.push(frames.len());
        let (before, after) = sides.split(own);
        let sums = (i128::from(before), i128::from(after));
        frames.push(((depth + 1, cursor), parent, sums));
        cursor += before.max(after) / divisor;
    }
    // Parents come before their children, so each frame adds itself to its parent, from the end on.
    for at in (1..frames.len()).rev() {
        let (_, parent, sums) = frames[at];
        frames[parent].2.0 += sums.0;
        frames[parent].2.1 += sums.1;
    }
    // If several frames have one position, all except the last are too thin to be drawn.
    frames
        .into_iter()
        .map(|(spot, _, sums)| (spot, sums))
        .collect()
}

/// Returns the picture with colours and titles of differences, and a legend. `on_top` says whether
/// the root of the picture is at its top.
pub(crate) fn paint(
    rows: &[TreeRow],
    on_top: bool,
    sides: &DifferenceSides,
    measure: &UnitFormatter,
    divisor: i64,
    drawn: &[u8],
) -> String {
    let svg = String::from_utf8_lossy(drawn);
    // The expression is fixed, and a test checks that it compiles.
    let frame = Regex::new(
        r#"<title>([^<]*) \([^<(]*\)</title>(<rect x="[^"]*" y=")(\d+)("[^>]*?)fill="[^"]*" fg:x="(\d+)""#,
    );
    let Ok(frame) = frame else {
        return svg.into_owned();
    };
    let mut heights: Vec<i64> = frame
        .captures_iter(&svg)
        .filter_map(|found| found[3].parse().ok())
        .collect();
    heights.sort_unstable();
    heights.dedup();
    if !on_top {
        heights.reverse();
    }
    let spots = sums_by_position(rows, sides, divisor);
    let painted = frame.replace_all(&svg, |found: &Captures<'_>| {
        let depth = heights.iter().position(|h| found[3].parse() == Ok(*h));
        let spot = depth
            .zip(found[5].parse().ok())
            .and_then(|spot| spots.get(&spot));
        let Some(&(before, after)) = spot else {
            return found[0].to_string();
        };
        format!(
            r#"<title>{} ({} before, {} after, {})</title>{}{}{}fill="{}" fg:x="{}""#,
            &found[1],
            measure.show(before),
            measure.show(after),
            measure.show_signed(after - before),
            &found[2],
            &found[3],
            &found[4],
            colour(before, after),
            &found[5]
        )
    });
    let legend = concat!(
        r##"<g id="legend" font-size="12" font-family="monospace">"##,
        r##"<rect x="10" y="6" width="14" height="14" fill="#d55e00"/><text x="28" y="17">grew</text>"##,
        r##"<rect x="70" y="6" width="14" height="14" fill="#0072b2"/><text x="88" y="17">shrank</text>"##,
        "</g></svg>"
    );
    match painted.rfind("</svg>") {
        Some(end) => format!("{}{legend}\n", &painted[..end]),
        None => painted.into_owned(),
    }
}

/// Returns the colour of a change as the page's boxes have it: orange for more, blue for less, grey
/// for no change. The larger the change is beside the larger value, the stronger the colour.
fn colour(before: i128, after: i128) -> String {
    const NEUTRAL: [f64; 3] = [232.0, 235.0, 239.0];
    const MORE: [f64; 3] = [213.0, 94.0, 0.0];
    const LESS: [f64; 3] = [0.0, 114.0, 178.0];
    /// The share of a change below which it has no colour.
    const LEAST_CHANGE: f64 = 0.01;
    let larger = before.unsigned_abs().max(after.unsigned_abs()).max(1) as f64;
    let share = ((after - before).unsigned_abs() as f64 / larger).min(1.0);
    let amount = match share < LEAST_CHANGE {
        true => 0.0,
        false => 0.12 + 0.78 * share,
    };
    let target = if after > before { MORE } else { LESS };
    let mix = |at: usize| (NEUTRAL[at] + (target[at] - NEUTRAL[at]) * amount).round() as u8;
    format!("rgb({},{},{})", mix(0), mix(1), mix(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go_from_faint_to_strong() {
        assert_eq!(colour(0, 7), "rgb(215,108,24)");
        assert_eq!(colour(7, 0), "rgb(23,126,184)");
        assert_eq!(colour(100, 110), "rgb(228,208,193)");
        assert_eq!(colour(1000, 1001), "rgb(232,235,239)");
        assert_eq!(colour(0, 0), "rgb(232,235,239)");
    }

    #[test]
    fn frames_are_painted_by_all_they_hold() {
        let row = |depth, own: [i64; 2]| TreeRow {
            place: heapprof_analysis::PlaceId::OTHER,
            depth,
            own: own.to_vec(),
            total: own.to_vec(),
        };
        let rows = [row(0, [0, 0]), row(1, [1, 5]), row(1, [4, 0])];
        let spots = sums_by_position(&rows, &DifferenceSides::Two, 1);
        assert_eq!(spots[&(0, 0)], (5, 5));
        assert_eq!(spots[&(1, 0)], (5, 5));
        assert_eq!(spots[&(2, 0)], (1, 5));
        assert_eq!(spots[&(2, 5)], (4, 0));
        let svg = br#"<title>gone (4 bytes; -4%)</title><rect x="5" y="10" width="4" fill="red" fg:x="5" fg:w="4"/><title>main (9)</title><rect x="0" y="20" width="9" fill="red" fg:x="0"/><title>all (9)</title><rect x="0" y="30" width="9" fill="red" fg:x="0"/></svg>"#;
        let measure = UnitFormatter::new("bytes", None).unwrap();
        let painted = paint(&rows, false, &DifferenceSides::Two, &measure, 1, svg);
        assert!(
            painted.contains("gone (4B before, 0B after, -4B)"),
            "{painted}"
        );
        assert!(
            painted.contains(r#"y="10" width="4" fill="rgb(23,126,184)""#),
            "{painted}"
        );
        assert!(
            painted.contains(r#"y="20" width="9" fill="rgb(232,235,239)""#),
            "{painted}"
        );
    }
}
