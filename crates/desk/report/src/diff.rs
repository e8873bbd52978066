//! The report `diff`: before, after, delta, growth and status of each entity that changed.

use heapprof_analysis::{
    CodePlace, Granularity, ValueEstimate,
    diff::{DiffReport, DiffRow, DiffStatus, ValueChange},
    gate::RuleViolation,
};
use heapprof_profile::{Unit, UnitFamily};
use heapprof_text::similar_names;
use serde_json::{Map, Value, json};

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::{UnitFormatter, plural};
use crate::names::{file_cell, file_column, name_cells, name_columns, name_rows};
use crate::range;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, RowTint, markdown_cell, printable};

/// Writes the report `diff`: the `limit` rows with the largest change, and the rules that were
/// broken.
pub fn diff(
    diff: &DiffReport,
    limit: Option<usize>,
    broken: &[RuleViolation],
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let measure = head::measure(&diff.after, style)?;
    let changed: Vec<&DiffRow> = diff
        .rows
        .iter()
        .filter(|row| row.change(diff.sort).delta() != 0)
        .collect();
    let shown = limit.unwrap_or(usize::MAX).min(changed.len());
    if style.format == ReportFormat::Json {
        return document(diff, &changed[..shown], &changed[shown..], broken);
    }
    let table = table(diff, &changed, shown, &measure, style);
    let lines = lines(diff, &changed, shown, &measure, style);
    let mut text = with_head(&lines, &table.render(style)?, style);
    if matches!(style.format, ReportFormat::Text | ReportFormat::Markdown) {
        for broken in broken {
            let line = printable(&violation_line(broken)).into_owned();
            match style.format {
                ReportFormat::Markdown => {
                    text.push_str(&format!("\n**Failed:** {}\n", markdown_cell(&line)))
                }
                _ => text.push_str(&format!("{}\n", style.fold(&format!("Failed: {line}")))),
            }
        }
    }
    Ok(text)
}

/// Returns a line about rules of which none failed. `open` is the number of those that did not pass
/// either, because they matched nothing, or because their estimates are too uncertain. `None` if
/// there are no rules.
pub fn passed_line(rules: usize, open: usize) -> Option<String> {
    let passed = rules.saturating_sub(open);
    match (rules, open) {
        (0, _) => None,
        (_, 0) => Some(format!("passed: {}", plural(&rules.to_string(), "rule"))),
        (1, _) => Some("neither failed nor passed: 1 rule".to_string()),
        _ => Some(format!("passed: {passed} of {rules} rules")),
    }
}

/// Returns a line about the violation of a rule in a comparison.
pub fn violation_line(broken: &RuleViolation) -> String {
    let measure = UnitFormatter::new(&broken.unit, None).unwrap_or_else(|_| UnitFormatter::raw());
    format!(
        "{} on {}: {} to {} ({}, {}{})",
        broken.rule,
        broken.subject,
        measure.show(broken.change.before),
        measure.show(broken.change.after),
        measure.show_signed(broken.change.delta()),
        growth(broken.change),
        violation_range(broken, &measure),
    )
}

/// Returns the text after the growth in the line about a violation. A rule about a value gives the
/// range of the value, and any other rule gives the range of the change.
fn violation_range(broken: &RuleViolation, measure: &UnitFormatter) -> String {
    match broken.estimate.as_ref().filter(|_| broken.is_about_value) {
        None => change_range(broken.estimate.as_ref(), measure),
        Some(estimate) => format!(
            "; the \"after\" value is {}, estimated from {}",
            range::between(estimate, measure),
            range::samples(estimate)
        ),
    }
}

/// Returns the text after a growth: the range of the change according to the estimate; empty for an
/// exact change.
fn change_range(estimate: Option<&ValueEstimate>, measure: &UnitFormatter) -> String {
    let Some(estimate) = estimate else {
        return String::new();
    };
    let (low, high) = (
        measure.show_signed(estimate.low),
        measure.show_signed(estimate.high),
    );
    format!("; {low} to {high} from {}", range::samples(estimate))
}

/// Returns the growth as `+10.0%`, or `-` if the value before is 0.
fn growth(change: ValueChange) -> String {
    match change.growth() {
        Some(growth) => format!("{:+.1}%", growth * 100.0),
        None => "-".to_string(),
    }
}

fn lines(
    diff: &DiffReport,
    changed: &[&DiffRow],
    shown: usize,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> Vec<String> {
    if style.format == ReportFormat::Csv {
        return Vec::new();
    }
    let mut lines = vec![format!(
        "{}: {} to {}, {} to {} ({}, {}{}{})",
        diff.after.sample_type.r#type,
        printable(&diff.before.profile),
        printable(&diff.after.profile),
        measure.show(diff.total.before),
        measure.show(diff.total.after),
        measure.show_signed(diff.total.delta()),
        growth(diff.total),
        change_range(diff.total_estimate().as_ref(), measure),
        match diff.total_status() {
            DiffStatus::WithinNoise => ", within noise",
            _ => "",
        },
    )];
    if let (Some(before), Some(after)) = (diff.before.in_use_at_end, diff.after.in_use_at_end) {
        lines.push(format!(
            "Peak values are compared. At the end, {} and {} were in use: {}.",
            measure.show(before),
            measure.show(after),
            style.advise(ReportAdvice::EndOfProgram)
        ));
    }
    if let Some(ratio) = diff.normalized {
        let aside = match diff.after.filters.is_empty() {
            true => "",
            false => ", not counting the filters,",
        };
        lines.push(format!(
            "The \"after\" values are multiplied by {ratio:.6} so that both totals{aside} are \
             equal."
        ));
    }
    if let Some(sampling) = head::sampling(&diff.before, Some(&diff.after)) {
        lines.push(format!("Values are {sampling}."));
        let (before, after) = (diff.before.sampled, diff.after.sampled);
        if diff.after.is_sampled_peak() || diff.before.is_sampled_peak() {
            lines.push(head::SAMPLED_PEAK_NOTE.to_string());
        }
        if before.is_some() != after.is_some() && diff.total_estimate().is_none() {
            let side = if before.is_some() { "before" } else { "after" };
            lines.push(format!(
                "Only the \"{side}\" values are estimates: small rows that are new or gone mean \
                 little."
            ));
        }
    }
    if !diff.after.filters.is_empty() {
        let [before, after] = left_out(diff);
        lines.push(format!(
            "Filters: {}; left out {} before, {} after",
            diff.after.filters.join(" "),
            measure.show(before),
            measure.show(after),
        ));
    }
    if let (Some([before, _]), Some([after, _])) = (diff.before.folded, diff.after.folded) {
        let show = |sum: i128| measure.show(i64::try_from(sum).unwrap_or(i64::MAX));
        if (before, after) != (0, 0) {
            let what = match diff.after.is_about_memory() {
                true => "were allocated by libraries",
                false => "belong to library functions",
            };
            lines.push(format!(
                "{} before and {} after {what} and are attributed to their callers; {}.",
                show(before),
                show(after),
                style.advise(ReportAdvice::AllCode)
            ));
        }
    }
    lines.extend(nothing_changed(diff, changed, measure));
    if shown < changed.len() {
        lines.push(format!(
            "{shown} of {} rows that changed; {}",
            changed.len(),
            style.advise(ReportAdvice::AllRows)
        ));
    }
    lines
}

/// Returns the line about a comparison in which nothing changed, or no more than sampling can tell
/// apart. It says how large a growth would have shown. Returns `None` if something changed.
fn nothing_changed(
    diff: &DiffReport,
    changed: &[&DiffRow],
    measure: &UnitFormatter,
) -> Option<String> {
    let growth = diff.smallest_growth();
    let is_nothing = changed.is_empty() || growth.is_some() && diff.is_within_noise();
    if !is_nothing {
        return None;
    }
    let is_sampled = diff.before.sampled.or(diff.after.sampled).is_some();
    let start = match (diff.rows.is_empty(), is_sampled) {
        (true, false) => return Some("Both sides hold no values.".to_string()),
        (false, false) => return Some("Nothing changed.".to_string()),
        (true, true) => "No allocation was sampled on either side",
        (false, true) => "No change is larger than the sampling error",
    };
    let show = |growth: i64| measure.show(rounded_up(growth, &diff.after.sample_type.unit));
    let row = match diff.after.granularity {
        Granularity::Functions | Granularity::FileFunctions => "a function",
        Granularity::Files => "a file",
        Granularity::Lines => "a line",
        Granularity::Addresses => "an address",
    };
    let growth = growth.unwrap_or_default();
    let size = match (growth.row, growth.total) {
        (Some(of_row), Some(total)) if total > of_row => format!(
            "a growth of less than about {} in {row}, or {} in all,",
            show(of_row),
            show(total)
        ),
        (Some(growth), _) | (None, Some(growth)) => {
            format!("a growth of less than about {}", show(growth))
        }
        (None, None) => "a small growth".to_string(),
    };
    Some(format!("{start}: {size} would not show."))
}

/// Rounds an amount up to one that is easy to read: to at most two digits, in bytes to halves of
/// the unit that is shown.
fn rounded_up(amount: i64, unit: &str) -> i64 {
    let is_bytes = Unit::parse(unit).is_some_and(|unit| unit.family == UnitFamily::Bytes);
    let mut step = 1;
    match is_bytes {
        true => {
            while amount / step >= 1024 {
                step *= 1024;
            }
            step = if amount / step < 10 && step > 1 {
                step / 2
            } else {
                step
            };
        }
        false => {
            while amount / step >= 100 {
                step *= 10;
            }
        }
    }
    amount
        .div_euclid(step)
        .saturating_add(i64::from(amount % step != 0))
        .saturating_mul(step)
}

fn table(
    diff: &DiffReport,
    changed: &[&DiffRow],
    shown: usize,
    measure: &UnitFormatter,
    style: &ReportStyle,
) -> ReportTable {
    let split = style.format == ReportFormat::Csv;
    let granularity = diff.after.granularity;
    // Whether the table has a column for the ranges of the deltas.
    let is_known = !split && diff.total_estimate().is_some();
    let mut table = ReportTable::new(&[
        ("before", ColumnAlign::Right),
        ("after", ColumnAlign::Right),
        ("delta", ColumnAlign::Right),
    ]);
    if is_known {
        table.column("range (95%)", ColumnAlign::Right);
    }
    table.column("growth", ColumnAlign::Right);
    table.column("status", ColumnAlign::Left);
    name_columns(&mut table, granularity, split);
    if split {
        let columns = range::RANGE_COLUMNS.into_iter();
        columns.for_each(|name| table.column(name, ColumnAlign::Right));
    }
    file_column(&mut table, granularity, split);
    let mut places = Vec::new();
    let mut add = |place: &CodePlace,
                   sums: [i128; 3],
                   estimate: Option<ValueEstimate>,
                   growth: String,
                   status: &str| {
        let [before, after, delta] = sums;
        let mut cells = vec![
            measure.show(before),
            measure.show(after),
            measure.show_signed(delta),
        ];
        if is_known {
            let range = estimate.as_ref().map(|e| {
                let (low, high) = (measure.show_signed(e.low), measure.show_signed(e.high));
                format!("{low} to {high}")
            });
            cells.push(range.unwrap_or_default());
        }
        cells.extend([growth, status.to_string()]);
        cells.extend(name_cells(place, granularity, split));
        if split {
            cells.extend(range::cells(estimate.as_ref()));
        }
        cells.extend(file_cell(place, granularity, split));
        let tint = match delta {
            0 => None,
            _ if status == DiffStatus::WithinNoise.word() => None,
            1.. => Some(RowTint::Grown),
            _ => Some(RowTint::Shrunk),
        };
        table.tinted_row(cells, tint);
        places.push(place.clone());
    };
    let sums = |change: ValueChange| {
        [
            i128::from(change.before),
            i128::from(change.after),
            change.delta(),
        ]
    };
    let grown = |change: ValueChange| match split {
        true => change.growth().map(|g| g.to_string()).unwrap_or_default(),
        false => growth(change),
    };
    for row in &changed[..shown] {
        let change = row.change(diff.sort);
        let status = row.status(diff.sort).word();
        let estimate = row.estimate(diff.sort);
        add(&row.place, sums(change), estimate, grown(change), status);
    }
    let named = |name: &str| CodePlace {
        function: name.to_string(),
        ..CodePlace::default()
    };
    // Flat values add up to the total, but cum values count a sample once for every frame.
    if diff.sort == heapprof_analysis::SortKey::Flat {
        let rest = |rows: &[&DiffRow]| {
            rows.iter().fold([0i128; 3], |mut sum, row| {
                for (sum, value) in sum.iter_mut().zip(sums(row.flat)) {
                    *sum += value;
                }
                sum
            })
        };
        let all: Vec<&DiffRow> = diff.rows.iter().collect();
        let same: Vec<&DiffRow> = all
            .into_iter()
            .filter(|row| row.flat.delta() == 0)
            .collect();
        if shown < changed.len() {
            add(
                &named(heapprof_analysis::OTHER_NAME),
                rest(&changed[shown..]),
                None,
                String::new(),
                "",
            );
        }
        if rest(&same)[0] != 0 {
            let name = named("(unchanged)");
            add(&name, rest(&same), None, String::new(), "same");
        }
    }
    let status = diff.total_status();
    add(
        &named("(total)"),
        sums(diff.total),
        diff.total_estimate(),
        grown(diff.total),
        status.word(),
    );
    if !split {
        let shown = places.iter().map(|place| &*place.function);
        let others = similar_names(shown, diff.rows.iter().map(|row| &*row.place.function));
        name_rows(&mut table, &places, &others, style);
    }
    table
}

fn document(
    diff: &DiffReport,
    shown: &[&DiffRow],
    rest: &[&DiffRow],
    broken: &[RuleViolation],
) -> Result<String, ReportError> {
    let row = |row: &&DiffRow| {
        let change = row.change(diff.sort);
        let mut object = json::place(&row.place);
        object.insert("before".into(), json!(change.before));
        object.insert("after".into(), json!(change.after));
        object.insert("delta".into(), whole(change.delta()));
        range::insert(&mut object, "estimate", row.estimate(diff.sort).as_ref());
        object.insert("growth".into(), json!(change.growth()));
        object.insert("status".into(), json!(row.status(diff.sort).word()));
        Value::Object(object)
    };
    let mut document = json!({
        "sample_type": json::sample_type(&diff.after.sample_type),
        "total": {
            "before": diff.total.before,
            "after": diff.total.after,
            "delta": whole(diff.total.delta()),
        },
        "rows": shown.iter().map(row).collect::<Vec<_>>(),
    });
    let (before, after) = (diff.before.sampled, diff.after.sampled);
    if before.is_some() || after.is_some() {
        document["sampled"] = json!({"before": before, "after": after});
    }
    if let Some(estimate) = diff.total_estimate() {
        document["total"]["estimate"] = range::document(&estimate);
    }
    if !rest.is_empty() {
        let delta: i128 = rest.iter().map(|row| row.change(diff.sort).delta()).sum();
        document["other"] = json!({"delta": whole(delta), "rows": rest.len()});
    }
    if let Some(growth) = diff.smallest_growth() {
        document["smallest_growth"] = json!({"row": growth.row, "total": growth.total});
    }
    if let Some(ratio) = diff.normalized {
        document["normalized"] = json!(ratio);
    }
    if !diff.after.filters.is_empty() {
        let [before, after] = left_out(diff);
        document["left_out"] = json!({"before": before, "after": after});
    }
    if !broken.is_empty() {
        let broken = broken.iter().map(|b| {
            let mut object = Map::new();
            object.insert("rule".into(), json!(b.rule));
            object.insert("subject".into(), json!(b.subject));
            object.insert("before".into(), json!(b.change.before));
            object.insert("after".into(), json!(b.change.after));
            range::insert(&mut object, "estimate", b.estimate.as_ref());
            Value::Object(object)
        });
        document["failed"] = broken.collect();
    }
    json::text(document)
}

/// Returns a whole number as JSON. A number that does not fit in 64 bits becomes a float, because
/// JSON readers do not accept it as a whole number.
fn whole(value: i128) -> Value {
    match i64::try_from(value) {
        Ok(value) => json!(value),
        Err(_) => json!(value as f64),
    }
}

/// Returns the sums that the filters left out in both profiles. The sum of the later profile is
/// scaled in the same way as the values of that profile.
fn left_out(diff: &DiffReport) -> [i64; 2] {
    let after = diff.after.left_out;
    let scaled = |ratio: f64| (after as f64 * ratio).round() as i64;
    [diff.before.left_out, diff.normalized.map_or(after, scaled)]
}
