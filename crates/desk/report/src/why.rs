//! The report `why`: where all of the memory of a program is, on one screen.

mod memory_answer;
#[cfg(test)]
mod tests;

use heapprof_text::{cut, fold_words, shorten};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::measure::{UnitFormatter, percent, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

pub use self::memory_answer::{
    AnswerPart, AnswerRecording, AnswerTotal, MemoryAnswer, PartHolder, PartKind,
};

/// A command that answers the next question, and what it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextCommand {
    /// The command.
    pub command: String,
    /// What the command shows.
    pub shows: String,
}

/// Number of lines of the screen on which an answer fits.
const SCREEN_LINES: usize = 24;
/// Least number of columns of an answer.
const MIN_COLUMNS: usize = 80;
/// Least number of columns for the name of the program.
const MIN_NAME_COLUMNS: usize = 12;
/// Number of columns for a part's name.
const NAME_COLUMNS: usize = 21;
/// Number of columns for the bytes of a part.
const BYTES_COLUMNS: usize = 10;
/// Number of columns for the name of a holder, if that is not longer.
const HOLDER_NAME_COLUMNS: usize = 24;
/// Number of columns before the holders of a part.
const HOLDER_INDENT: usize = 5;
/// Parts below this share of the total have one line together.
const MIN_SHARE: f64 = 0.02;
/// The name of a row for the bytes of a part that none of its holders has.
const OTHERS_NAME: &str = "(others)";

/// Writes the answer to "where is the memory of this program?". `all` asks for each part and each
/// holder.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn why(
    answer: &MemoryAnswer,
    next: &[NextCommand],
    all: bool,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    match style.format {
        ReportFormat::Json => crate::json::text(document(answer, next)),
        ReportFormat::Text => Ok(screen(
            answer,
            next,
            all,
            style,
            &UnitFormatter::bytes(style)?,
        )),
        ReportFormat::Csv | ReportFormat::Markdown => table(answer, style),
    }
}

/// Returns one row for each part and each holder, and one for what no holder has.
fn table(answer: &MemoryAnswer, style: &ReportStyle) -> Result<String, ReportError> {
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("bytes", ColumnAlign::Right),
        ("share", ColumnAlign::Right),
        ("growth_per_minute", ColumnAlign::Right),
        ("part", ColumnAlign::Left),
        ("holder", ColumnAlign::Left),
        ("place", ColumnAlign::Left),
        ("detail", ColumnAlign::Left),
    ]);
    for part in &answer.parts {
        let mut row = |bytes: u64, growth: Option<i64>, [holder, place, detail]: [&str; 3]| {
            table.row(vec![
                measure.show(bytes),
                percent(bytes, answer.total),
                growth.map_or_else(String::new, |growth| measure.show(growth)),
                part.kind.name().to_string(),
                holder.to_string(),
                place.to_string(),
                detail.to_string(),
            ]);
        };
        row(part.bytes, part.growth, ["", "", &part.detail]);
        for holder in &part.holders {
            let words = [&*holder.name, &*holder.place, &*holder.extent];
            row(holder.bytes, holder.growth, words);
        }
        let rest = part.rest(part.holders.len());
        if rest > 0 && !part.holders.is_empty() {
            row(rest, None, [OTHERS_NAME, "", ""]);
        }
    }
    table.render(style)
}

/// Returns the head of an answer: the program, its total, and how it is recorded.
fn head(answer: &MemoryAnswer, width: usize, measure: &UnitFormatter) -> String {
    let mut text = String::new();
    if let Some(pid) = answer.pid {
        text += &format!(", pid {pid}");
    }
    let total = measure.show(answer.total);
    text += &match answer.basis {
        AnswerTotal::Resident => format!(": {total} resident"),
        AnswerTotal::InCoreFile => format!(": {total} in its core file"),
        AnswerTotal::PeakResident => format!(": {total} resident at its peak"),
        AnswerTotal::InProfile => format!(": {total} in its profile"),
    };
    match answer.peak {
        Some(peak) if peak <= answer.total && answer.basis == AnswerTotal::Resident => {
            text += ", which is its peak";
        }
        Some(peak) if answer.basis == AnswerTotal::Resident => {
            text += &format!(", peak {}", measure.show(peak));
        }
        _ => {}
    }
    match (answer.basis, &answer.recording) {
        (AnswerTotal::Resident, None) => text += "; not recorded",
        (_, Some(AnswerRecording { period: 0 | 1, .. })) => text += "; every allocation recorded",
        (_, Some(recording)) => {
            text += &format!("; sampled, 1 in {}", measure.show(recording.period));
        }
        _ => {}
    }
    let left = width
        .saturating_sub(text.chars().count())
        .max(MIN_NAME_COLUMNS);
    cut(&printable(&answer.name), left) + &text
}

/// Returns the answer on one screen.
fn screen(
    answer: &MemoryAnswer,
    next: &[NextCommand],
    all: bool,
    style: &ReportStyle,
    measure: &UnitFormatter,
) -> String {
    let width = style.columns().max(MIN_COLUMNS);
    let mut lines = vec![head(answer, width, measure), String::new()];
    let is_large = |part: &&AnswerPart| all || part.bytes as f64 >= MIN_SHARE * answer.total as f64;
    let large: Vec<&AnswerPart> = answer.parts.iter().filter(is_large).collect();
    let small = &answer.parts[large.len().min(answer.parts.len())..];
    let end = end_lines(answer, width, measure);
    let after = end.len() + next_lines(next, width).len();
    let fixed = lines.len() + large.len() + usize::from(!small.is_empty()) + 1 + after;
    let mut room = SCREEN_LINES.saturating_sub(fixed);
    let counts: Vec<usize> = match all {
        true => large.iter().map(|part| part.holders.len()).collect(),
        false => holder_counts(&large, room),
    };
    room = room.saturating_sub(counts.iter().sum());
    for (part, count) in large.iter().zip(counts) {
        lines.push(part_line(
            measure,
            (part.bytes, answer.total),
            part.kind.name(),
            &with_growth(&part.detail, part.growth, measure),
        ));
        lines.extend(holder_lines(part, count, width, measure));
        let rest = part.rest(count);
        let is_worth = rest.saturating_mul(100) >= part.bytes && count > 0;
        if all && rest > 0 && count > 0 || is_worth && room > 0 {
            room = room.saturating_sub(1);
            let indent = BYTES_COLUMNS + HOLDER_INDENT;
            let rest = measure.show(rest);
            lines.push(format!(
                "{:indent$}{rest:>BYTES_COLUMNS$}  {OTHERS_NAME}",
                ""
            ));
        }
    }
    if !small.is_empty() {
        let bytes: u64 = small.iter().map(|part| part.bytes).sum();
        let names: Vec<&str> = small.iter().map(|part| part.kind.short_name()).collect();
        lines.push(part_line(
            measure,
            (bytes, answer.total),
            &names.join(", "),
            "",
        ));
    }
    let mut sum = vec![match answer.basis {
        AnswerTotal::Resident => "as the kernel counts it".to_string(),
        AnswerTotal::InCoreFile => "in the core file".to_string(),
        AnswerTotal::PeakResident => "as the kernel counted it".to_string(),
        AnswerTotal::InProfile => "in all".to_string(),
    }];
    sum.extend(
        answer
            .hold
            .map(|hold| format!("suspended for {:.1} ms", hold.as_secs_f64() * 1e3)),
    );
    let sum = sum.join("; ");
    let total = measure.show(answer.total);
    lines.push(format!("{total:>BYTES_COLUMNS$}       {sum}"));
    lines.extend(end);
    lines
        .iter_mut()
        .for_each(|line| *line = cut_line(line, width));
    lines.extend(next_lines(next, width));
    lines
        .iter()
        .map(|line| line.trim_end().to_string() + "\n")
        .collect()
}

/// Returns how many holders of each part are shown on `room` lines. The largest part has twice as
/// many as the others. A holder of less than a twentieth of its part is shown only if it is the
/// first.
fn holder_counts(parts: &[&AnswerPart], mut room: usize) -> Vec<usize> {
    let is_worth = |part: &AnswerPart, at: usize| {
        let holder = part.holders.get(at);
        holder.is_some_and(|holder| at == 0 || holder.bytes.saturating_mul(20) >= part.bytes)
    };
    let mut counts = vec![0; parts.len()];
    loop {
        let before = room;
        for (at, part) in parts.iter().enumerate() {
            let wanted = if at == 0 { 2 } else { 1 };
            for _ in 0..wanted {
                if room > 0 && is_worth(part, counts[at]) {
                    counts[at] += 1;
                    room -= 1;
                }
            }
        }
        if room == before {
            return counts;
        }
    }
}

fn with_growth(detail: &str, growth: Option<i64>, measure: &UnitFormatter) -> String {
    let Some(growth) = growth.filter(|growth| *growth != 0) else {
        return detail.to_string();
    };
    let sign = if growth > 0 { "+" } else { "" };
    let growth = format!("{sign}{}/min", measure.show(growth));
    match detail {
        "" => growth,
        detail => format!("{growth}  {detail}"),
    }
}

fn part_line(
    measure: &UnitFormatter,
    (bytes, total): (u64, u64),
    name: &str,
    detail: &str,
) -> String {
    let (shown, share) = (measure.show(bytes), whole_percent(bytes, total));
    format!("{shown:>BYTES_COLUMNS$} {share:>4}  {name:<NAME_COLUMNS$}  {detail}")
}

/// Returns a share in whole percent.
fn whole_percent(bytes: u64, total: u64) -> String {
    match 100.0 * bytes as f64 / total.max(1) as f64 {
        share if share > 0.0 && share < 0.5 => "<1%".to_string(),
        share => format!("{share:.0}%"),
    }
}

fn holder_lines(
    part: &AnswerPart,
    count: usize,
    width: usize,
    measure: &UnitFormatter,
) -> Vec<String> {
    let shown = &part.holders[..count];
    let indent = BYTES_COLUMNS + HOLDER_INDENT;
    let starts = shown.iter().map(|holder| {
        let bytes = measure.show(holder.bytes);
        format!("{:indent$}{bytes:>BYTES_COLUMNS$}  ", "")
    });
    let starts: Vec<String> = starts.collect();
    let room = |at: usize| width.saturating_sub(starts[at].len());
    let details = shown.iter().map(|holder| {
        let words = [&*holder.place, &*holder.extent].into_iter();
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        with_growth(&words.join("  "), holder.growth, measure)
    });
    let details: Vec<String> = details.collect();
    let names: Vec<_> = shown.iter().map(|holder| printable(&holder.name)).collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    let names = shorten(&names, |at| {
        let of_detail = details[at].chars().count().min(room(at) / 2);
        room(at).saturating_sub(of_detail + 2)
    });
    let line = |(at, name): (usize, &String)| {
        let taken = name.chars().count().max(HOLDER_NAME_COLUMNS) + 2;
        let detail = cut(&printable(&details[at]), room(at).saturating_sub(taken));
        format!("{}{name:<HOLDER_NAME_COLUMNS$}  {detail}", starts[at])
    };
    names.iter().enumerate().map(line).collect()
}

/// Returns the lines below the parts: what is beside them, and the notes.
fn end_lines(answer: &MemoryAnswer, width: usize, measure: &UnitFormatter) -> Vec<String> {
    let mut beside = Vec::new();
    let mut add = |bytes: u64, what: &str| {
        if bytes > 0 {
            beside.push(format!("{} {what}", measure.show(bytes)));
        }
    };
    if answer.shared.saturating_mul(10) > answer.total {
        add(answer.shared, "of it is shared with other processes");
    }
    add(answer.swapped, "more is swapped out");
    add(answer.hugetlb, "more is in hugetlbfs huge pages");
    if answer.page_tables.saturating_mul(50) > answer.total {
        add(answer.page_tables, "more is in the kernel's page tables");
    }
    let mut lines = Vec::new();
    if !beside.is_empty() {
        lines.extend(fold_words(&beside.join("; "), width));
    }
    if let Some(cgroup) = &answer.cgroup
        && let (Some(usage), Some(limit)) = (cgroup.usage, cgroup.limit)
    {
        lines.push(format!(
            "its control group uses {} of its limit of {}{}",
            measure.show(usage),
            measure.show(limit),
            match cgroup.oom_kills.unwrap_or(0) {
                0 => String::new(),
                kills => format!(
                    "; {} killed at the limit",
                    plural(&kills.to_string(), "process")
                ),
            }
        ));
    }
    for note in &answer.notes {
        lines.extend(fold_words(&printable(note), width));
    }
    lines
}

/// Returns the lines with the next commands.
fn next_lines(next: &[NextCommand], width: usize) -> Vec<String> {
    let longest = next.iter().map(|one| one.command.chars().count()).max();
    let longest = longest.unwrap_or(0);
    let line = |(at, one): (usize, &NextCommand)| {
        let label = if at == 0 { "next" } else { "" };
        let line = format!("{label:<6}{:<longest$}  {}", one.command, one.shows);
        // A command is shown whole.
        match line.chars().count() > width {
            true => format!("{label:<6}{}", one.command),
            false => line,
        }
    };
    let empty = (!next.is_empty()).then(String::new);
    empty
        .into_iter()
        .chain(next.iter().enumerate().map(line))
        .collect()
}

/// Cuts the end of a line that is too long.
fn cut_line(line: &str, width: usize) -> String {
    let line = printable(line.trim_end());
    match line.chars().count() > width {
        true => line.chars().take(width - 1).chain(['…']).collect(),
        false => line.into_owned(),
    }
}

fn document(answer: &MemoryAnswer, next: &[NextCommand]) -> Value {
    let holder = |holder: &PartHolder| {
        json!({
            "bytes": holder.bytes, "name": holder.name, "place": holder.place,
            "extent": holder.extent, "growth_per_minute": holder.growth,
        })
    };
    let part = |part: &AnswerPart| {
        json!({
            "part": part.kind.name(), "bytes": part.bytes, "detail": part.detail,
            "growth_per_minute": part.growth, "others": part.rest(part.holders.len()),
            "holders": part.holders.iter().map(holder).collect::<Vec<_>>(),
        })
    };
    let total = match answer.basis {
        AnswerTotal::Resident => "resident",
        AnswerTotal::InCoreFile => "in the core file",
        AnswerTotal::PeakResident => "resident at the peak",
        AnswerTotal::InProfile => "in the profile",
    };
    json!({
        "name": answer.name, "pid": answer.pid, "total": answer.total, "total_is": total,
        "peak": answer.peak,
        "recording": answer.recording.map(|of| json!({"period": of.period, "bytes": of.bytes})),
        "parts": answer.parts.iter().map(part).collect::<Vec<_>>(),
        "swapped": answer.swapped, "hugetlb": answer.hugetlb, "page_tables": answer.page_tables, "shared": answer.shared,
        "cgroup": answer.cgroup.as_ref().map(crate::process::group_document),
        "held_seconds": answer.hold.map(|hold| hold.as_secs_f64()),
        "span_seconds": answer.span.map(|span| span.as_secs_f64()),
        "leaked": answer.leaked, "is_perl": answer.is_perl, "notes": answer.notes,
        "next": next.iter().map(|one| json!({"command": one.command, "shows": one.shows}))
            .collect::<Vec<_>>(),
    })
}
