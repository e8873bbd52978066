//! `-traces`: each sample with its labels, value and stack, in the profile's order.
//!
//! The lines of a location are built once and copied into every stack that contains it. Source:
//! google/pprof, internal/report.

use std::io::{self, Write};

use heapprof_profile::{Label, Location, LocationIndex, Profile};

use super::header::profile_labels;
use super::labels::{LabelTexts, by_key};
use super::measurement::label;
use super::names::printable;
use super::options::PprofReportOptions;
use super::text::{TextPieces, TextSpool, push_aligned};

const SEPARATOR: &str = "-----------+-------------------------------------------------------\n";
/// Empty column in place of a value, and the space between a value and a name.
const VALUE_MARGIN: &str = "             ";

/// Prints all samples that have a stack.
pub fn traces(
    profile: &Profile,
    options: &PprofReportOptions,
    out: &mut dyn Write,
) -> io::Result<()> {
    let values = options.values();
    let mut out = TextSpool::new(out);
    *out.text() += &profile_labels(profile, options, &values).join("\n");
    out.text().push('\n');
    let mut locations = TextPieces::default();
    for location in &profile.location {
        lines(profile, location, locations.text());
        locations.end();
    }
    let mut labels = LabelTexts::new(profile, |set, text| {
        label_lines(profile, options, profile.label_sets.get(set), text);
    });
    let samples = &profile.samples;
    for i in 0..samples.len() {
        let stack = samples.stack(i);
        let Some((leaf, callers)) = stack.split_first() else {
            continue;
        };
        let text = out.text();
        text.push_str(SEPARATOR);
        text.push_str(labels.get(samples.label_set(i)));
        let mut value = samples.values(i)[options.column];
        if let Some(divisor) = options.mean_divisor {
            value = match samples.values(i)[divisor] {
                0 => value,
                by => value.wrapping_div(by),
            };
        }
        push_aligned(text, &values.show(value), 10);
        text.push_str("   ");
        // The value replaces the margin of the leaf's first line.
        text.push_str(&locations.get(leaf.index())[VALUE_MARGIN.len()..]);
        for &LocationIndex(l) in callers {
            text.push_str(locations.get(l as usize));
        }
        out.spill()?;
    }
    out.text().push_str(SEPARATOR);
    out.finish()
}

/// Appends the stack lines of a location: one for each function, beginning with the innermost.
fn lines(profile: &Profile, location: &Location, out: &mut String) {
    let lines = profile.lines(location);
    if lines.is_empty() {
        out.push_str(VALUE_MARGIN);
        printable(profile, location, None, out);
        out.push('\n');
    }
    for (i, line) in lines.iter().enumerate() {
        out.push_str(VALUE_MARGIN);
        printable(profile, location, Some(line), out);
        out.push_str(match i + 1 < lines.len() {
            true => " (inline)\n",
            false => "\n",
        });
    }
}

/// Appends one line for each label key: first for texts, then for numbers, each group sorted by the
/// text of the line.
fn label_lines(
    profile: &Profile,
    options: &PprofReportOptions,
    labels: &[Label],
    out: &mut String,
) {
    let (texts, numbers): (Vec<Label>, Vec<Label>) =
        labels.iter().partition(|label| !label.str.is_empty());
    let mut show = |labels: &[Label], value: &dyn Fn(&str, &Label) -> String| {
        let mut lines: Vec<String> = by_key(labels)
            .map(|one| {
                let key = profile.text(one[0].key);
                let values: Vec<String> = one.iter().map(|label| value(key, label)).collect();
                let mut line = String::new();
                push_aligned(&mut line, key, 10);
                line + ":  " + &values.join(" ") + "\n"
            })
            .collect();
        lines.sort();
        out.extend(lines);
    };
    show(&texts, &|_, text| profile.text(text.str).to_string());
    show(&numbers, &|key, number| {
        let unit = options.num_label_units.get(key);
        label(number.num, unit.map_or("", String::as_str))
    });
}
