//! The report `leaks`: one row for each stack with memory in use, and below them what was
//! suppressed and left out, so that the rows add up to the total.

use std::io::Write;
use std::rc::Rc;

use heapprof_analysis::{
    EMPTY_STACK, ValueEstimate,
    comment::DumpTime,
    coverage::PythonSmallObjects,
    gate::RuleViolation,
    leaks::{InUseAmount, LeaksReport},
};
use heapprof_text::cut;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::{UnitFormatter, percent, plural};
use crate::names::{
    MIN_NAME_COLUMNS, NameCache, PlaceLabelFn, printable_label, root_first, short_labels_of,
};
use crate::range;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, MIN_CUT_COLUMNS, ReportTable, markdown_cell, printable};

/// The width of the number columns beside the names, if no number has more than ten digits.
const NUMBER_COLUMNS_WIDTH: usize = 46;
/// The width of a column of ranges.
const RANGE_COLUMN_WIDTH: usize = 14;
/// The usual words for the state of the blocks in a report.
const IN_USE_TEXT: &str = "in use";

/// Writes the report `leaks` and the rules of `--fail-if` that were broken. The report is written
/// stack by stack, because it may be much longer than the profile.
pub fn leaks(
    leaks: &LeaksReport,
    broken: &[RuleViolation],
    style: &ReportStyle,
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let shown = LeaksView::new(leaks, style)?;
    if style.format == ReportFormat::Json {
        return document(leaks, broken, out);
    }
    out.write_all(with_head(&shown.lines(), "", style).as_bytes())?;
    let table = shown.table();
    let mut rows = shown.rows().peekable();
    if rows.peek().is_some() || style.format == ReportFormat::Csv {
        match style.format {
            ReportFormat::Text => shown.write(table, rows, out)?,
            format => table.write_rows(format, rows, out)?,
        }
    }
    if style.format == ReportFormat::Csv {
        return Ok(());
    }
    if !leaks.rules.is_empty() {
        writeln!(out)?;
        out.write_all(shown.rules().render(style)?.as_bytes())?;
    }
    for broken in broken {
        let line = printable(&value_line(broken)).into_owned();
        match style.format {
            ReportFormat::Markdown => writeln!(out, "\n**Failed:** {}", markdown_cell(&line))?,
            _ => writeln!(out, "Failed: {line}")?,
        }
    }
    Ok(())
}

/// Returns a note with the reason if no row has Python's small objects; `None` if they were
/// recorded.
fn small_objects(objects: &PythonSmallObjects, style: &ReportStyle) -> Option<String> {
    const MESSAGE_START: &str = "Python's small objects are not included";
    match objects {
        PythonSmallObjects::Recorded => None,
        PythonSmallObjects::NotRequested => Some(format!(
            "{MESSAGE_START}: malloc does not see them. {} records them.",
            style.advise(ReportAdvice::RecordPythonObjects)
        )),
        PythonSmallObjects::Missing(why) => Some(format!("{MESSAGE_START}: {why}.")),
    }
}

/// Returns a line about the violation of a rule on the values of one profile.
pub fn value_line(broken: &RuleViolation) -> String {
    let measure = UnitFormatter::new(&broken.unit, None).unwrap_or_else(|_| UnitFormatter::raw());
    let value = broken.change.after;
    let range = broken.estimate.as_ref().map(|estimate| {
        let range = range::after(value, estimate, &measure);
        format!("{range}, from {}", range::samples(estimate))
    });
    let (shown, range) = (measure.show(value), range.unwrap_or_default());
    format!("{} on {}: {shown}{range}", broken.rule, broken.subject)
}

/// The report `leaks` with the units in which its values are shown.
struct LeaksView<'a> {
    leaks: &'a LeaksReport,
    style: &'a ReportStyle,
    objects: UnitFormatter,
    space: UnitFormatter,
    /// The function that returns the text of a frame.
    label: Rc<PlaceLabelFn>,
    has_ages: bool,
}

impl<'a> LeaksView<'a> {
    fn new(leaks: &'a LeaksReport, style: &'a ReportStyle) -> Result<Self, ReportError> {
        let [objects, space] = &leaks.types;
        let (objects, space) = (
            UnitFormatter::new(&objects.unit, None)?,
            UnitFormatter::new(&space.unit, style.unit.as_deref())?,
        );
        let raw = matches!(style.format, ReportFormat::Csv | ReportFormat::Json);
        let stacks = leaks.rows.iter().map(|leak| &leak.stack[..]);
        let how_sure = RANGE_COLUMN_WIDTH * leaks.estimates.iter().flatten().count();
        let widest =
            |value: i64, measure: &UnitFormatter| measure.show(value).len().saturating_sub(10);
        let more = leaks.rows.iter().map(|leak| {
            let mean = mean(leak.in_use).map_or(0, |mean| widest(mean, &space));
            widest(leak.in_use.objects, &objects) + widest(leak.in_use.space, &space) + mean
        });
        let room = style
            .columns()
            .saturating_sub(NUMBER_COLUMNS_WIDTH + how_sure + more.max().unwrap_or(0))
            .max(MIN_NAME_COLUMNS);
        let label = short_labels_of(&leaks.places, stacks, room, style);
        // In text, the names also appear below the table's rows.
        let label = match style.format {
            ReportFormat::Text => printable_label(label),
            _ => label,
        };
        Ok(Self {
            leaks,
            style,
            label: Rc::new(label),
            has_ages: leaks.rows.iter().any(|leak| leak.age.is_some()),
            objects: if raw { UnitFormatter::raw() } else { objects },
            space: if raw { UnitFormatter::raw() } else { space },
        })
    }

    /// Returns an amount such as `4KiB in 2 objects`.
    fn amount(&self, in_use: InUseAmount) -> String {
        let objects = plural(&self.objects.show(in_use.objects), "object");
        format!("{} in {objects}", self.space.show(in_use.space))
    }

    /// Returns the total, such as `4KiB in 2 objects`, with the ranges of its values.
    fn total(&self) -> String {
        let LeaksReport {
            total, estimates, ..
        } = self.leaks;
        let [objects, space] = estimates;
        let known = |value, estimate: &Option<_>, measure: &UnitFormatter| {
            let range = estimate.as_ref().map(|e| range::after(value, e, measure));
            range.unwrap_or_default()
        };
        let (of_objects, of_space) = (
            known(total.objects, objects, &self.objects),
            known(total.space, space, &self.space),
        );
        let shown = self.objects.show(total.objects);
        let noun = if shown == "1" { "object" } else { "objects" };
        let space = self.space.show(total.space);
        format!("{space}{of_space} in {shown}{of_objects} {noun}")
    }

    fn lines(&self) -> Vec<String> {
        let LeaksReport {
            header,
            dump_time: dumped,
            ..
        } = self.leaks;
        if !matches!(
            self.style.format,
            ReportFormat::Text | ReportFormat::Markdown
        ) {
            return Vec::new();
        }
        let at_exit = match dumped {
            DumpTime::AtExit => " at exit",
            DumpTime::BeforeExit(_) | DumpTime::Unknown => "",
        };
        let estimated = head::estimate_note(header).unwrap_or_default();
        let total = self.total();
        let state = self.state();
        let mut lines = vec![format!(
            "{}: {total} {state}{at_exit}{estimated}",
            header.profile
        )];
        match dumped {
            // If the profile comes from a walked heap, it is known which blocks have leaked.
            _ if state != IN_USE_TEXT => {}
            DumpTime::AtExit if self.leaks.has_python => lines.push(format!(
                "Python empties its modules at exit, so most leaks are gone by then: {}.",
                self.style.advise(ReportAdvice::LookBeforeEnd)
            )),
            DumpTime::AtExit => {}
            DumpTime::BeforeExit(when) => lines.push(format!(
                "Not dumped at exit ({when}): these are blocks in use at that moment, not leaks."
            )),
            DumpTime::Unknown => lines.push(
                "The profile does not say when it was dumped: what is in use need not be a leak."
                    .to_string(),
            ),
        }
        lines.extend(small_objects(&self.leaks.small_objects, self.style));
        if !header.filters.is_empty() {
            lines.push(format!(
                "Filters: {}; left out {}",
                header.filters.join(" "),
                self.amount(self.leaks.filtered_out)
            ));
        }
        lines.extend(head::own_code(header, &self.space, self.style));
        if let Some(suppressed) = self.suppressed_line() {
            lines.push(suppressed);
        }
        lines.extend(self.empty(at_exit));
        let (_, rest) = self.leaks.other;
        if rest > 0 {
            let shown = self.leaks.rows.len();
            lines.push(format!(
                "{shown} of {} stacks, by {}; {}",
                shown + rest,
                header.sample_type.r#type,
                self.style.advise(ReportAdvice::AllRows)
            ));
        }
        lines
    }

    /// Returns the words for the state of the blocks.
    fn state(&self) -> &'static str {
        match self.leaks.types[1].r#type.as_str() {
            "leaked_space" => "leaked",
            "maybe_space" => "maybe leaked",
            "reached_space" => "reached",
            _ => IN_USE_TEXT,
        }
    }

    fn suppressed_line(&self) -> Option<String> {
        let rules = &self.leaks.rules;
        let used = rules.iter().filter(|(_, in_use)| !in_use.is_none()).count();
        let amount = self.amount(self.leaks.suppressed);
        match (used, rules.len()) {
            (_, 0) => None,
            (0, all) => Some(format!(
                "Nothing was suppressed: {} matched nothing",
                plural(&all.to_string(), "rule")
            )),
            (used, all) if used == all => Some(format!(
                "{amount} suppressed by {}",
                plural(&used.to_string(), "rule")
            )),
            (used, all) => Some(format!("{amount} suppressed by {used} of {all} rules")),
        }
    }

    /// Returns the reason why there are no rows; `None` if there are rows.
    fn empty(&self, at_exit: &str) -> Option<String> {
        let leaks = self.leaks;
        if !leaks.rows.is_empty() || leaks.other.1 > 0 {
            return None;
        }
        let nothing = leaks.total.is_none() && leaks.header.total == 0;
        Some(if nothing {
            format!("Nothing {}{at_exit}.", self.state())
        } else if !leaks.suppressed.is_none() {
            format!(
                "Nothing else {}{at_exit}: the rest is suppressed.",
                self.state()
            )
        } else if !leaks.header.filters.is_empty() {
            "No sample passes the filters.".to_string()
        } else {
            "The values in use cancel each other out.".to_string()
        })
    }

    /// Makes the table without its rows.
    fn table(&self) -> ReportTable {
        let mut table = ReportTable::new(&[]);
        for (name, says_how_sure) in ["objects", "space"]
            .into_iter()
            .zip(self.has_range_columns())
        {
            table.column(name, ColumnAlign::Right);
            if says_how_sure {
                table.column("±", ColumnAlign::Right);
            }
        }
        table.column("mean size", ColumnAlign::Right);
        if self.style.format != ReportFormat::Csv {
            table.column("share", ColumnAlign::Right);
        }
        if self.has_ages() && self.style.format != ReportFormat::Csv {
            table.column("age", ColumnAlign::Right);
        }
        table.column("stack", ColumnAlign::Left);
        if self.style.format == ReportFormat::Csv {
            for value in ["", "objects_"] {
                let columns = range::RANGE_COLUMNS.map(|column| format!("{value}{column}"));
                columns
                    .into_iter()
                    .for_each(|name| table.column(name, ColumnAlign::Right));
            }
            if self.has_ages() {
                for name in ["oldest_nanoseconds", "youngest_nanoseconds"] {
                    table.column(name, ColumnAlign::Right);
                }
            }
        }
        table
    }

    /// Whether the table has a column for the ages of blocks.
    fn has_ages(&self) -> bool {
        self.has_ages
    }

    /// Whether the table has a column for the range of objects, and one for the range of space. In
    /// CSV, ranges are in the last columns.
    fn has_range_columns(&self) -> [bool; 2] {
        let is_csv = self.style.format == ReportFormat::Csv;
        self.leaks.estimates.map(|of| of.is_some() && !is_csv)
    }

    fn names(&self) -> NameCache {
        let label = Rc::clone(&self.label);
        NameCache::new(move |place| label(place))
    }

    fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        let leaks = self.leaks;
        let is_text = self.style.format == ReportFormat::Text;
        let mut names = self.names();
        let stacks = leaks.rows.iter().map(move |leak| {
            let stack = match leak.stack.first() {
                None => EMPTY_STACK.to_string(),
                // The other frames are below the row.
                Some(&leaf) if is_text => names.name_of(&leaks.places, leaf).to_string(),
                // Each stack takes one line.
                Some(_) => root_first(&leaks.places, &leak.stack, &mut names),
            };
            let mean = mean(leak.in_use);
            self.cells(leak.in_use, mean, leak.age, stack, &leak.estimates)
        });
        // These rows stand for many stacks.
        let (other, rest) = leaks.other;
        let other = (rest > 0).then(|| {
            let stacks = plural(&rest.to_string(), "more stack");
            let name = format!("{}: {stacks}", heapprof_analysis::OTHER_NAME);
            self.cells(other, None, None, name, &[None; 2])
        });
        let left_out = [
            (leaks.suppressed, "(suppressed)"),
            (leaks.filtered_out, "(filtered out)"),
        ]
        .into_iter()
        .filter(|(in_use, _)| !in_use.is_none())
        .map(|(in_use, name)| self.cells(in_use, None, None, name.to_string(), &[None; 2]));
        stacks.chain(other).chain(left_out)
    }

    /// Writes the table as text, with the frames of each stack.
    fn write(
        &self,
        mut table: ReportTable,
        rows: impl Iterator<Item = Vec<String>>,
        out: &mut dyn Write,
    ) -> Result<(), ReportError> {
        rows.for_each(|row| table.row(row));
        let mut names = self.names();
        // Without a screen, nothing is cut, and no widths are measured.
        let left = self.style.width.filter(|_| !self.style.full_names);
        let left = left.map(|width| {
            let left = width.saturating_sub(table.width_of_others());
            left.max(MIN_CUT_COLUMNS)
        });
        if let Some(left) = left {
            table.cut_last(left);
        }
        Ok(table.write_text(self.style.color, out, |row, line| {
            let Some(leak) = self.leaks.rows.get(row) else {
                return Ok(());
            };
            names.fetch(leak.stack.iter().copied());
            for &place in leak.stack.iter().skip(1) {
                let name = names.name_of(&self.leaks.places, place);
                match left {
                    Some(left) => line(&cut(name, left))?,
                    None => line(name)?,
                }
            }
            line("")
        })?)
    }

    fn cells(
        &self,
        in_use: InUseAmount,
        mean: Option<i64>,
        age: Option<[i64; 2]>,
        stack: String,
        [objects, space]: &[Option<ValueEstimate>; 2],
    ) -> Vec<String> {
        let [of_objects, of_space] = self.has_range_columns();
        let mut cells = vec![self.objects.show(in_use.objects)];
        if of_objects {
            cells.push(range::share(in_use.objects, objects.as_ref()));
        }
        cells.push(self.space.show(in_use.space));
        if of_space {
            cells.push(range::share(in_use.space, space.as_ref()));
        }
        cells.push(mean.map(|m| self.space.show(m)).unwrap_or_default());
        if self.style.format != ReportFormat::Csv {
            cells.push(self.share(in_use));
        }
        let has_ages = self.has_ages();
        if has_ages && self.style.format != ReportFormat::Csv {
            cells.push(age.map(span).unwrap_or_default());
        }
        cells.push(stack);
        if self.style.format == ReportFormat::Csv {
            cells.extend(range::cells(space.as_ref()));
            cells.extend(range::cells(objects.as_ref()));
            if has_ages {
                let age = age.map(|age| age.map(|age| age.to_string()));
                cells.extend(age.unwrap_or_default());
            }
        }
        cells
    }

    fn share(&self, in_use: InUseAmount) -> String {
        let header = &self.leaks.header;
        let by_objects = header.sample_type == self.leaks.types[0];
        let value = if by_objects {
            in_use.objects
        } else {
            in_use.space
        };
        percent(value, header.total)
    }

    /// Makes the table of every rule with the sum that it suppressed, so that users see which rules
    /// are no longer needed.
    fn rules(&self) -> ReportTable {
        let mut table = ReportTable::new(&[
            ("objects", ColumnAlign::Right),
            ("space", ColumnAlign::Right),
            ("suppressed by", ColumnAlign::Left),
        ]);
        for (rule, in_use) in &self.leaks.rules {
            table.row(vec![
                self.objects.show(in_use.objects),
                self.space.show(in_use.space),
                format!("leak:{} ({}:{})", rule.pattern, rule.file, rule.line),
            ]);
        }
        table
    }
}

/// Returns the ages of a stack's blocks: `2s` or `2s to 1m`.
fn span([oldest, youngest]: [i64; 2]) -> String {
    let measure = UnitFormatter::new("nanoseconds", None).unwrap_or_else(|_| UnitFormatter::raw());
    let (oldest, youngest) = (measure.show(oldest), measure.show(youngest));
    match oldest == youngest {
        true => oldest,
        false => format!("{youngest} to {oldest}"),
    }
}

fn mean(in_use: InUseAmount) -> Option<i64> {
    let InUseAmount { objects, space } = in_use;
    (objects != 0).then(|| (space as f64 / objects as f64).round() as i64)
}

fn in_use(in_use: InUseAmount) -> Map<String, Value> {
    let mut object = Map::new();
    object.insert("objects".into(), json!(in_use.objects));
    object.insert("space".into(), json!(in_use.space));
    object
}

fn document(
    leaks: &LeaksReport,
    broken: &[RuleViolation],
    out: &mut dyn Write,
) -> Result<(), ReportError> {
    let mut head = json::head(&leaks.header);
    let [objects, space] = &leaks.types;
    head.insert(
        "units".into(),
        json!({"objects": objects.unit, "space": space.unit}),
    );
    let dumped = match &leaks.dump_time {
        DumpTime::AtExit => Some("exit"),
        DumpTime::BeforeExit(when) => Some(when.as_str()),
        DumpTime::Unknown => None,
    };
    head.insert("dump".into(), json!(dumped));
    head.insert("sampled".into(), json!(leaks.header.sampled));
    let mut all = in_use(leaks.total);
    let [objects, space] = &leaks.estimates;
    range::insert(&mut all, "estimate", space.as_ref());
    range::insert(&mut all, "objects_estimate", objects.as_ref());
    head.insert("in_use".into(), all.into());
    let mut tail = Map::new();
    let (other, rest) = leaks.other;
    let mut other = in_use(other);
    other.insert("rows".into(), json!(rest));
    tail.insert("other".into(), other.into());
    let rule =
        |(rule, suppressed): &(heapprof_analysis::suppression::SuppressionRule, InUseAmount)| {
            let mut object = in_use(*suppressed);
            object.insert("pattern".into(), json!(rule.pattern));
            object.insert("file".into(), json!(rule.file));
            object.insert("line".into(), json!(rule.line));
            Value::Object(object)
        };
    let mut suppressed = in_use(leaks.suppressed);
    suppressed.insert("rules".into(), leaks.rules.iter().map(rule).collect());
    tail.insert("suppressed".into(), suppressed.into());
    tail.insert("filtered_out".into(), in_use(leaks.filtered_out).into());
    if !broken.is_empty() {
        let broken = broken.iter().map(|b| {
            let mut object = Map::new();
            object.insert("rule".into(), json!(b.rule));
            object.insert("subject".into(), json!(b.subject));
            object.insert("value".into(), json!(b.change.after));
            range::insert(&mut object, "estimate", b.estimate.as_ref());
            Value::Object(object)
        });
        tail.insert("failed".into(), broken.collect());
    }
    let mut made = NameCache::new(json::place_json);
    json::write_each(&head, &tail, out, |rows| {
        leaks.rows.iter().try_for_each(|leak| {
            let row = LeakJsonRow {
                objects: leak.in_use.objects,
                space: leak.in_use.space,
                mean_size: mean(leak.in_use),
                oldest_nanoseconds: leak.age.map(|[oldest, _]| oldest),
                youngest_nanoseconds: leak.age.map(|[_, youngest]| youngest),
                estimate: leak.estimates[1].as_ref().map(range::document),
                objects_estimate: leak.estimates[0].as_ref().map(range::document),
            };
            rows.row_with_stack(&row, &leaks.places, &leak.stack, &mut made)
        })
    })
}

#[derive(Serialize)]
struct LeakJsonRow {
    objects: i64,
    space: i64,
    mean_size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    oldest_nanoseconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    youngest_nanoseconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    objects_estimate: Option<Value>,
}
