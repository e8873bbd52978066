//! jeprof's own reports: rows of functions, and collapsed stacks.
//!
//! The caller prepares the profile as jeprof does: without allocator frames, filtered, and for
//! [`text`] with one function for each row. Source: jemalloc's bin/jeprof.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::io::Write;

use crate::graph::{CallGraph, CallSelection, GraphOptions, PathTrimmer};
use heapprof_profile::{Location, LocationIndex, Profile};

use crate::error::DropinError;
use heapprof_totals::fetch::fetch;

/// The kind of a value, which determines its format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JeprofMeasure {
    /// Bytes, shown as megabytes of 1,048,576 bytes with one decimal.
    Megabytes,
    /// Bytes, shown as bytes.
    Bytes,
    /// A number of objects.
    Objects,
    /// Nanoseconds, shown as seconds with three decimals.
    Seconds,
    /// Any other number, printed with the unit `samples`.
    Samples,
}

impl JeprofMeasure {
    /// Returns a value as text.
    pub fn show(self, value: i128) -> String {
        match self {
            JeprofMeasure::Megabytes => format!("{:.1}", value as f64 / 1_048_576.0),
            JeprofMeasure::Seconds => format!("{:.3}", value as f64 / 1e9),
            JeprofMeasure::Bytes | JeprofMeasure::Objects | JeprofMeasure::Samples => {
                value.to_string()
            }
        }
    }

    /// Returns the unit that is printed after the total.
    pub fn unit(self) -> &'static str {
        match self {
            JeprofMeasure::Megabytes => "MB",
            JeprofMeasure::Bytes => "B",
            JeprofMeasure::Objects => "objects",
            JeprofMeasure::Seconds => "seconds",
            JeprofMeasure::Samples => "samples",
        }
    }
}

/// Prints `head` and a row for each function that has a value. Rows are in descending order of
/// value, so increases come before decreases. Rows with equal values are in the order of their
/// linker names. At most `limit` rows are counted, but at least one. Nothing is printed if the sums
/// can't be computed.
pub fn text(
    profile: &Profile,
    column: usize,
    measure: JeprofMeasure,
    by_cum: bool,
    limit: Option<usize>,
    head: &str,
    out: &mut dyn Write,
) -> Result<(), DropinError> {
    let graph = row_graph(profile, column, by_cum, CallSelection::None)?;
    let functions = profile.function.iter();
    let order: HashMap<&str, &str> = functions
        .map(|f| (profile.text(f.name), profile.text(f.system_name)))
        .collect();
    let mut rows: Vec<(&str, i64, i64)> = graph
        .shown()
        .iter()
        .map(|&node| (graph.name(node), graph.flat(node), graph.cum(node)))
        .collect();
    rows.sort_by(|a, b| {
        let value = |row: &(&str, i64, i64)| if by_cum { row.2 } else { row.1 };
        let key = |row: &(&str, i64, i64)| order.get(row.0).copied().unwrap_or_default();
        let by_key = || key(a).cmp(key(b));
        value(b)
            .cmp(&value(a))
            .then_with(by_key)
            .then_with(|| a.0.cmp(b.0))
    });
    let total: i128 = rows.iter().map(|row| i128::from(row.1)).sum();
    let mut running = 0i128;
    out.write_all(head.as_bytes())?;
    rows.truncate(limit.map_or(usize::MAX, |limit| limit.max(1)));
    for (name, flat, cum) in rows {
        // Such a row counts for the limit.
        if flat == 0 && cum == 0 {
            continue;
        }
        let (flat, cum) = (i128::from(flat), i128::from(cum));
        running += flat;
        writeln!(
            out,
            "{:>8} {:>6} {:>6} {:>8} {:>6} {name}",
            measure.show(flat),
            percent(flat, total),
            percent(running, total),
            measure.show(cum),
            percent(cum, total),
        )?;
    }
    Ok(())
}

/// Makes the graph of all rows, without any limits.
pub(super) fn row_graph(
    profile: &Profile,
    column: usize,
    sort_by_cum: bool,
    calls: CallSelection,
) -> Result<CallGraph<'_>, DropinError> {
    Ok(CallGraph::new(
        profile,
        &GraphOptions {
            columns: vec![column],
            mean_divisor: None,
            call_tree: false,
            drop_negative: false,
            objects: false,
            trim: PathTrimmer::new("", ""),
            picture: None,
            sort_by_cum,
            node_count: 0,
            node_fraction: 0.0,
            edge_fraction: 0.0,
            calls,
            wrapping: false,
        },
    )?)
}

/// Returns a value's share of a total, in percent.
pub(super) fn percent(value: i128, total: i128) -> String {
    match (value, total) {
        (0, 0) => "nan".to_string(),
        (1.., 0) => "+inf".to_string(),
        (_, 0) => "-inf".to_string(),
        _ => format!("{:.1}%", value as f64 * 100.0 / total as f64),
    }
}

/// Prints a line for each stack, root first, with its sum. The lines are sorted by the text of the
/// stack.
pub fn collapsed(profile: &Profile, column: usize, out: &mut dyn Write) -> Result<(), DropinError> {
    let mut used = vec![false; profile.location.len()];
    for i in 0..profile.samples.len() {
        profile
            .samples
            .stack(i)
            .iter()
            .for_each(|l| used[l.index()] = true);
    }
    let mut frames = FrameTexts::default();
    for (location, used) in profile.location.iter().zip(used) {
        let start = frames.text.len();
        if used {
            frames.push(profile, location);
        }
        frames.at.push((start, frames.text.len()));
    }
    let samples = &profile.samples;
    let stack = |i: u32| samples.stack(i as usize);
    let ranks = frames.ranks();
    let begin = |i: u32| {
        ranks
            .as_ref()
            .and_then(|ranks| rank_prefix(ranks, stack(i)))
    };
    let mut order: Vec<(Option<u128>, u32)> =
        (0..samples.len() as u32).map(|i| (begin(i), i)).collect();
    let by_text = |a: &(Option<u128>, u32), b: &(Option<u128>, u32)| match (a.0, b.0) {
        (Some(x), Some(y)) if x != y => x.cmp(&y),
        _ => compare_texts(&frames, stack(a.1), stack(b.1)),
    };
    order.sort_unstable_by(by_text);
    let mut line = String::new();
    for equal in order.chunk_by(|a, b| by_text(a, b).is_eq()) {
        let values = equal
            .iter()
            .map(|&(_, i)| samples.values(i as usize)[column]);
        let sum: i128 = values.map(i128::from).sum();
        line.clear();
        let stack = stack(equal[0].1);
        frames.fetch(stack);
        for (n, location) in stack.iter().rev().enumerate() {
            line.push_str(if n > 0 { ";" } else { "" });
            line.push_str(frames.text(location));
        }
        writeln!(out, "{line} {sum}")?;
    }
    Ok(())
}

/// The texts of all locations, one after the other.
#[derive(Default)]
struct FrameTexts {
    text: String,
    /// Range of each location's text.
    at: Vec<(usize, usize)>,
}

impl FrameTexts {
    /// Appends the text of a location.
    fn push(&mut self, profile: &Profile, location: &Location) {
        let lines = profile.lines(location);
        if lines.is_empty() {
            self.text.push_str(&format!("{:016x}", location.address));
        }
        // The outermost function comes first.
        for (i, line) in lines.iter().enumerate().rev() {
            let function = &profile.function[line.function.index()];
            let name = match profile.text(function.name) {
                "" => "??:0",
                name => name,
            };
            let inline = if i + 1 < lines.len() { ";" } else { "" };
            self.text.push_str(inline);
            self.text.push_str(name);
            self.text
                .push_str(if i + 1 < lines.len() { "[inline]" } else { "" });
        }
    }

    fn text(&self, location: &LocationIndex) -> &str {
        let (start, end) = self.at[location.index()];
        &self.text[start..end]
    }

    /// Returns the rank of each location's text, with a `;` after it, among all texts. Equal texts
    /// have equal ranks. Returns `None` if a text contains a `;`: another text and its `;` may then
    /// be a prefix of it.
    fn ranks(&self) -> Option<Vec<u32>> {
        if self.text.contains(';') {
            return None;
        }
        let text = |i: u32| {
            let (start, end) = self.at[i as usize];
            self.text.as_bytes()[start..end].iter().chain(b";")
        };
        let mut order: Vec<u32> = (0..self.at.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| text(a).cmp(text(b)));
        let mut ranks = vec![0; order.len()];
        let mut rank = 0;
        for (n, &i) in order.iter().enumerate() {
            if n > 0 && text(order[n - 1]).ne(text(i)) {
                rank += 1;
            }
            ranks[i as usize] = rank;
        }
        Some(ranks)
    }

    /// [Prefetches](fetch) the texts of a stack into the processor's cache.
    fn fetch(&self, stack: &[LocationIndex]) {
        let text = self.text.as_bytes();
        fetch(
            stack
                .iter()
                .filter_map(|l| text.get(self.at[l.index()].0).copied()),
        );
    }
}

/// Returns the ranks of a stack's four outermost frames as one number. The number usually suffices
/// to compare two stacks. Returns `None` if the stack has no further frame, because the last frame
/// has no `;` after it.
fn rank_prefix(ranks: &[u32], stack: &[LocationIndex]) -> Option<u128> {
    let (oldest, newer) = stack
        .split_last_chunk::<4>()
        .map(|(newer, oldest)| (oldest, newer))?;
    let ranks = oldest.iter().rev().map(|l| ranks[l.index()]);
    (!newer.is_empty()).then(|| ranks.fold(0, |all, rank| all << 32 | u128::from(rank)))
}

/// Compares two stacks by their texts (root first, separated by `;`), without building the texts.
fn compare_texts(frames: &FrameTexts, a: &[LocationIndex], b: &[LocationIndex]) -> Ordering {
    let same = a
        .iter()
        .rev()
        .zip(b.iter().rev())
        .take_while(|(a, b)| a == b);
    let same = same.count();
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    let text = |l: &LocationIndex| frames.text(l).as_bytes();
    if let (Some(x), Some(y)) = (a.last().map(text), b.last().map(text))
        && !x.starts_with(y)
        && !y.starts_with(x)
    {
        return x.cmp(y);
    }
    // One text may be the beginning of the other. A `;` follows the equal frames only if more
    // frames follow.
    fn rest<'a>(
        stack: &'a [LocationIndex],
        text: impl Fn(&LocationIndex) -> &'a [u8] + 'a,
    ) -> impl Iterator<Item = &'a u8> {
        let frames = stack.iter().rev();
        frames.flat_map(move |l| b";".iter().chain(text(l)))
    }
    rest(a, text).cmp(rest(b, text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_profile::ProfileBuilder;

    #[test]
    fn rows_and_stacks() {
        let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
        builder.add_folded("main;parse;new", &[3 << 20]);
        builder.add_folded("main;parse;main", &[1 << 20]);
        builder.add_folded("main;free", &[-(1 << 19)]);
        builder.add_folded("main>>walk", &[0]);
        let mut profile = builder.finish();
        // Each row has its own function.
        profile.location.iter_mut().for_each(|l| l.address = 0);
        let mut out = Vec::new();
        text(
            &profile,
            0,
            JeprofMeasure::Megabytes,
            false,
            None,
            "Total: 3.5 MB\n",
            &mut out,
        )
        .unwrap();
        let expected = "Total: 3.5 MB
     3.0  85.7%  85.7%      3.0  85.7% new
     1.0  28.6% 114.3%      3.5 100.0% main
     0.0   0.0% 114.3%      4.0 114.3% parse
    -0.5 -14.3% 100.0%     -0.5 -14.3% free
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
        let mut out = Vec::new();
        collapsed(&profile, 0, &mut out).unwrap();
        let expected = "main;free -524288
main;parse;main 1048576
main;parse;new 3145728
main;walk[inline] 0
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn stacks_come_in_the_order_of_their_texts() {
        // Some characters that names have sort before `;`, others after it.
        let mut stacks = [
            "a",
            "a;b",
            "a(;b",
            "a;b(",
            "a<",
            "a;b;c",
            "a;b;c(",
            "a;bc",
            "a;b;c;d",
            "a;b;c;d;e",
            "a;b;c(;d;e",
            "a;b;c;d(;e",
            "a;b;c;d;e;f",
            "a;b;c;d<;e;f",
        ];
        let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
        stacks
            .iter()
            .for_each(|stack| builder.add_folded(stack, &[1]));
        stacks
            .iter()
            .for_each(|stack| builder.add_folded(stack, &[1]));
        let mut out = Vec::new();
        let mut profile = builder.finish();
        profile.location.iter_mut().for_each(|l| l.address = 0);
        collapsed(&profile, 0, &mut out).unwrap();
        stacks.sort_unstable();
        let expected: String = stacks.iter().map(|s| format!("{s} 2\n")).collect();
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn nothing_is_no_share_of_nothing() {
        assert_eq!(percent(0, 0), "nan");
        assert_eq!(percent(5, 0), "+inf");
        assert_eq!(percent(-5, 0), "-inf");
    }
}
