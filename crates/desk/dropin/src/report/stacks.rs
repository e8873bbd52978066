//! The flame graph of pprof's page: the boxes, with the numbers that pprof's page shows for them.
//!
//! Source of the rules: google/pprof, internal/report/stacks.go and internal/driver/html/stacks.js.
//! As there, a location without a line has no box, values are never means, and boxes that are too
//! narrow to be seen are left out.

use foldhash::{HashMap, HashMapExt, HashSet, HashSetExt};
use heapprof_profile::Profile;
use regex::Regex;

use super::header::{ReportCounts, report_labels};
use super::measurement::UnitScale;
use super::options::PprofReportOptions;
use super::script_number::to_short;
use super::short_name::shorten;
use crate::graph::PathTrimmer;

/// The narrowest box that is drawn, as a share of the whole width. There are at most as many boxes
/// in a row as fit into the whole width.
const LEAST_WIDTH: f64 = 1.0 / 1200.0;

/// A frame of the flame graph: a function, with the file, line and column that the profile still
/// distinguishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlameFrame {
    /// The name, with the line if lines are distinguished.
    pub name: String,
    /// The name that distinguishes the frame from others of the same name.
    pub unique_name: String,
    /// A short form of the name.
    pub short_name: String,
    /// Whether the function was inlined into its caller.
    pub is_inlined: bool,
    file: String,
}

/// A box of the flame graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlameBox {
    /// The index of the frame.
    pub frame: usize,
    /// The row. Rows below 0 are callers of the frames that the user chose.
    pub row: i64,
    /// The left end, as a share of the whole width.
    pub start: f64,
    /// The width, as a share of the whole width.
    pub width: f64,
    /// The sum of the positive values.
    pub positive: i128,
    /// The sum of the sizes of the negative values.
    pub negative: i128,
    /// The box's own value, without the boxes below it.
    pub own: i128,
}

/// A flame graph.
#[derive(Clone, Debug)]
pub struct FlameGraph {
    /// The lines that describe the graph.
    pub labels: Vec<String>,
    /// The frames. The first one is the root of all stacks.
    pub frames: Vec<FlameFrame>,
    /// The boxes, each after the box that it stands on.
    pub boxes: Vec<FlameBox>,
    /// The sums of the positive values and of the sizes of the negative values that are shown.
    pub shown: (i128, i128),
    /// Whether there are negative values, as in a difference.
    pub is_diff: bool,
    /// The total for percentages.
    pub total: i64,
    /// The factor of all values that are shown.
    ratio: f64,
    scale: UnitScale,
}

/// A stack of frames, the root first, with the values of all samples of one sign.
struct MergedStack {
    frames: Vec<usize>,
    value: i128,
}

/// A place in a stack: the index of the stack, and the position in it.
type StackPlace = (usize, usize);

/// Places in stacks that have the same frame. They are drawn as one box.
struct PlaceGroup {
    frame: usize,
    positive: i128,
    negative: i128,
    own: i128,
    places: Vec<StackPlace>,
}

/// Boxes that are still to be made from the places of one row.
struct PendingRow {
    places: Vec<StackPlace>,
    depth: i64,
    start: f64,
}

impl FlameGraph {
    /// Makes the graph of a profile that is filtered and aggregated. With `pivot`, the graph shows
    /// the frames with a match and what they call, and above them their callers. If no frame
    /// matches, it shows everything.
    pub fn new(profile: &Profile, options: &PprofReportOptions, pivot: Option<&Regex>) -> Self {
        let (frames, stacks) = merge_stacks(profile, options);
        let values = options.values();
        let counts = ReportCounts {
            flat: options.total,
            nodes: frames.len(),
            total_nodes: frames.len(),
            ..ReportCounts::default()
        };
        let ratio = options.ratio;
        let mut graph = Self {
            labels: report_labels(profile, options, &values, &counts, false),
            boxes: Vec::new(),
            shown: (0, 0),
            is_diff: stacks.iter().any(|stack| stack.value < 0),
            total: options.total,
            ratio: if ratio > 0.0 { ratio } else { 1.0 },
            scale: UnitScale::new(&options.sample_unit, "auto"),
            frames,
        };
        graph.draw(&stacks, pivot);
        graph
    }

    /// Returns a value as text with its unit, as pprof's page shows it.
    pub fn value_text(&self, value: i128) -> String {
        let sign = if value < 0 { "-" } else { "" };
        let size = value.unsigned_abs() as f64;
        let (number, unit) = self.scale.apply_as_script(size, self.ratio);
        format!("{sign}{}{unit}", to_short(number, 2))
    }

    /// Returns a value as text with its share of the total, as pprof's page shows it.
    pub fn percent_text(&self, value: i128) -> String {
        let percent = 100.0 * value as f64 / self.total as f64;
        let percent = to_short(percent, 1);
        format!("{} ({percent}%)", self.value_text(value))
    }

    /// Returns the numbers of a box as text, as pprof's page shows them.
    pub fn details(&self, one: &FlameBox) -> String {
        let mut text = self.percent_text(one.positive - one.negative);
        if one.own != 0 {
            text += &format!(" │ self {}", self.value_text(one.own));
        }
        if self.is_diff && one.positive > 0 && one.negative > 0 {
            let [from, to] = [one.negative, one.positive].map(|value| self.percent_text(value));
            text += &format!(" │ {from} → {to}");
        }
        text
    }

    fn draw(&mut self, stacks: &[MergedStack], pivot: Option<&Regex>) {
        let is_pivot = |frame: &FlameFrame| {
            pivot.is_some_and(|regex| {
                regex.is_match(&frame.unique_name) || regex.is_match(&frame.file)
            })
        };
        let pivots: Vec<bool> = self.frames.iter().map(is_pivot).collect();
        let has_pivot = pivots.contains(&true);
        // The outermost place of a chosen frame in each stack.
        let place = |(stack, one): (usize, &MergedStack)| match has_pivot {
            false => Some((stack, 0)),
            true => {
                let at = one.frames.iter().position(|&frame| pivots[frame]);
                at.map(|at| (stack, at))
            }
        };
        let places: Vec<StackPlace> = stacks.iter().enumerate().filter_map(place).collect();
        for &(stack, _) in &places {
            let value = stacks[stack].value;
            match value < 0 {
                true => self.shown.1 -= value,
                false => self.shown.0 += value,
            }
        }
        let total = (self.shown.0 + self.shown.1) as f64;
        if total > 0.0 {
            self.draw_rows(stacks, places.clone(), 1, total);
            self.draw_rows(stacks, places, -1, total);
        }
    }

    /// Adds the boxes for `places` and, row by row, for what they call (`direction` 1), or for
    /// their callers (-1).
    fn draw_rows(
        &mut self,
        stacks: &[MergedStack],
        places: Vec<StackPlace>,
        direction: i64,
        total: f64,
    ) {
        let first = PendingRow {
            places,
            depth: 0,
            start: 0.0,
        };
        let mut pending = vec![first];
        while let Some(row) = pending.pop() {
            let mut start = row.start;
            let mut next_rows = Vec::new();
            for group in groups(stacks, &row.places) {
                let width = (group.positive + group.negative) as f64 / total;
                if width < LEAST_WIDTH {
                    continue;
                }
                let left = start;
                start += width;
                // The callers' first row is the row of the chosen frames, which is drawn already.
                if row.depth != 0 || direction > 0 {
                    self.boxes.push(FlameBox {
                        frame: group.frame,
                        row: direction * row.depth,
                        start: left,
                        width,
                        positive: group.positive,
                        negative: group.negative,
                        own: group.own,
                    });
                }
                let next = |&(stack, at): &StackPlace| {
                    let at = match direction > 0 {
                        true => at + 1,
                        false => at.checked_sub(1)?,
                    };
                    (at < stacks[stack].frames.len()).then_some((stack, at))
                };
                let places: Vec<StackPlace> = group.places.iter().filter_map(next).collect();
                // The gap at the left of the callees is the box's own value.
                let gap = match direction > 0 {
                    true => group.own.unsigned_abs() as f64 / total,
                    false => 0.0,
                };
                if !places.is_empty() {
                    next_rows.push(PendingRow {
                        places,
                        depth: row.depth + 1,
                        start: left + gap,
                    });
                }
            }
            pending.extend(next_rows.into_iter().rev());
        }
    }
}

/// Groups places by their frame, in descending order of size.
fn groups(stacks: &[MergedStack], places: &[StackPlace]) -> Vec<PlaceGroup> {
    let mut groups: Vec<PlaceGroup> = Vec::new();
    let mut known: HashMap<usize, usize> = HashMap::new();
    for &(stack, at) in places {
        let MergedStack { frames, value } = &stacks[stack];
        let frame = frames[at];
        let index = *known.entry(frame).or_insert_with(|| {
            groups.push(PlaceGroup {
                frame,
                positive: 0,
                negative: 0,
                own: 0,
                places: Vec::new(),
            });
            groups.len() - 1
        });
        let group = &mut groups[index];
        match *value < 0 {
            true => group.negative -= value,
            false => group.positive += value,
        }
        if at + 1 == frames.len() {
            group.own += value;
        }
        group.places.push((stack, at));
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.positive + group.negative));
    groups
}

/// Returns the frames of all stacks, and the stacks. Equal stacks are one, unless their values have
/// different signs.
fn merge_stacks(
    profile: &Profile,
    options: &PprofReportOptions,
) -> (Vec<FlameFrame>, Vec<MergedStack>) {
    let trim = PathTrimmer::new(&options.trim_path, &options.source_path);
    let root = FlameFrame {
        name: "root".to_string(),
        short_name: "root".to_string(),
        ..FlameFrame::default()
    };
    let mut frames = vec![root];
    let mut frame_of: HashMap<_, usize> = HashMap::new();
    let mut seen: HashSet<String> = HashSet::new();
    let mut stacks: Vec<MergedStack> = Vec::new();
    let mut stack_of: HashMap<(Vec<usize>, bool), usize> = HashMap::new();
    for i in 0..profile.samples.len() {
        let value = profile.samples.values(i)[options.column];
        let mut stack = vec![0];
        for &location in profile.samples.stack(i).iter().rev() {
            let lines = profile.lines(&profile.location[location.index()]);
            for (at, line) in lines.iter().enumerate().rev() {
                let is_inlined = at + 1 != lines.len();
                let function = &profile.function[line.function.index()];
                let key = (
                    function.name,
                    function.filename,
                    line.line,
                    line.column,
                    is_inlined,
                );
                let frame = *frame_of.entry(key).or_insert_with(|| {
                    let file = trim.apply(profile.text(function.filename)).to_string();
                    let place = match (line.line, line.column) {
                        (0, 0) => String::new(),
                        (number, 0) => format!(":{number}"),
                        (number, column) => format!(":{number}:{column}"),
                    };
                    let name = match profile.text(function.name) {
                        "" => format!("{file}{place}"),
                        name => format!("{name}{place}"),
                    };
                    let is_first = seen.insert(name.clone());
                    frames.push(FlameFrame {
                        unique_name: match is_first {
                            true => name.clone(),
                            false => format!("{name}#{}", function.id),
                        },
                        short_name: shorten(&name),
                        is_inlined,
                        file,
                        name,
                    });
                    frames.len() - 1
                });
                stack.push(frame);
            }
        }
        if value == 0 {
            // Its frames may make other names unique, but no box shows them.
            continue;
        }
        let at = *stack_of
            .entry((stack, value < 0))
            .or_insert_with_key(|(frames, _)| {
                stacks.push(MergedStack {
                    frames: frames.clone(),
                    value: 0,
                });
                stacks.len() - 1
            });
        stacks[at].value += i128::from(value);
    }
    (frames, stacks)
}
