//! The report `why`: where all of the memory of a program is, on one screen.

mod memory_answer;
#[cfg(test)]
mod tests;

use heapprof_text::{cut, shorten_one};
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
/// Number of columns of the screen.
const SCREEN_COLUMNS: usize = 80;
/// Number of columns for a part's name.
const NAME_COLUMNS: usize = 21;
/// Number of columns for the bytes of a part.
const BYTES_COLUMNS: usize = 10;
/// Number of columns before the holders of a part.
const HOLDER_INDENT: usize = 5;
/// Parts below this share of the total have one line together.
const MIN_SHARE: f64 = 0.02;

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

/// Returns one row for each part and each holder.
fn table(answer: &MemoryAnswer, style: &ReportStyle) -> Result<String, ReportError> {
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("bytes", ColumnAlign::Right),
        ("share", ColumnAlign::Right),
        ("part", ColumnAlign::Left),
        ("holder", ColumnAlign::Left),
        ("detail", ColumnAlign::Left),
    ]);
    let mut row = |bytes: u64, part: &AnswerPart, holder: &str, detail: &str| {
        table.row(vec![
            measure.show(bytes),
            percent(bytes, answer.total),
            part.kind.name().to_string(),
            holder.to_string(),
            detail.to_string(),
        ]);
    };
    for part in &answer.parts {
        row(part.bytes, part, "", &part.detail);
        for holder in &part.holders {
            row(holder.bytes, part, &holder.name, &holder.detail);
        }
    }
    table.render(style)
}

/// Returns the head of an answer: the program, its total, and how it is recorded.
fn head(answer: &MemoryAnswer, measure: &UnitFormatter) -> String {
    let mut text = answer.name.clone();
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
            text += ", its peak";
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
    text
}

/// Returns the answer on one screen.
fn screen(
    answer: &MemoryAnswer,
    next: &[NextCommand],
    all: bool,
    style: &ReportStyle,
    measure: &UnitFormatter,
) -> String {
    let width = style.width.unwrap_or(SCREEN_COLUMNS).max(SCREEN_COLUMNS);
    let mut lines = vec![head(answer, measure), String::new()];
    let is_large = |part: &&AnswerPart| all || part.bytes as f64 >= MIN_SHARE * answer.total as f64;
    let large: Vec<&AnswerPart> = answer.parts.iter().filter(is_large).collect();
    let small = &answer.parts[large.len().min(answer.parts.len())..];
    let end = end_lines(answer, width, measure);
    let after = end.len() + next_lines(next, width).len();
    let fixed = lines.len() + large.len() + usize::from(!small.is_empty()) + 1 + after;
    let counts = match all {
        true => large.iter().map(|part| part.holders.len()).collect(),
        false => holder_counts(&large, SCREEN_LINES.saturating_sub(fixed)),
    };
    for (part, count) in large.iter().zip(counts) {
        lines.push(part_line(
            measure,
            (part.bytes, answer.total),
            part.kind.name(),
            &with_growth(&part.detail, part.growth, measure),
        ));
        lines.extend(holder_lines(part, count, width, measure));
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
            .map(|hold| format!("held for {:.1} ms", hold.as_secs_f64() * 1e3)),
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
    let line = |holder: &PartHolder| {
        let bytes = measure.show(holder.bytes);
        let indent = BYTES_COLUMNS + HOLDER_INDENT;
        let start = format!("{:indent$}{bytes:>BYTES_COLUMNS$}  ", "");
        let room = width - start.len();
        let detail = with_growth(&holder.detail, holder.growth, measure);
        let of_detail = detail.chars().count().min(room / 2);
        let of_name = room.saturating_sub(of_detail + 2);
        let name = shorten_one(&printable(&holder.name), of_name);
        format!(
            "{start}{name:<24}  {}",
            cut(
                &detail,
                room.saturating_sub(name.chars().count().max(24) + 2)
            )
        )
    };
    shown.iter().map(line).collect()
}

/// Returns the lines below the parts: what is beside them, and the notes.
fn end_lines(answer: &MemoryAnswer, width: usize, measure: &UnitFormatter) -> Vec<String> {
    let mut beside = Vec::new();
    let mut add = |bytes: u64, what: &str| {
        if bytes > 0 {
            beside.push(format!("{} {what}", measure.show(bytes)));
        }
    };
    if answer.shared * 10 > answer.total {
        add(answer.shared, "of it is shared with other processes");
    }
    add(answer.swapped, "is swapped out besides");
    if answer.page_tables * 100 > answer.total {
        add(answer.page_tables, "of page tables besides");
    }
    let mut lines = Vec::new();
    if !beside.is_empty() {
        lines.push(beside.join("; "));
    }
    if let Some(cgroup) = &answer.cgroup
        && let (Some(usage), Some(limit)) = (cgroup.usage, cgroup.limit)
    {
        lines.push(format!(
            "its control group has {} of {} at most{}",
            measure.show(usage),
            measure.show(limit),
            match cgroup.oom_kills.unwrap_or(0) {
                0 => String::new(),
                kills => format!("; {} killed for it", plural(&kills.to_string(), "process")),
            }
        ));
    }
    for note in &answer.notes {
        lines.extend(fold(&printable(note), width));
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

/// Folds a text into lines of at most `width` columns.
fn fold(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().map_or(0, |line| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width {
            lines.push(String::new());
        }
        if let Some(line) = lines.last_mut() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
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
            "bytes": holder.bytes, "name": holder.name, "detail": holder.detail,
            "growth_per_minute": holder.growth,
        })
    };
    let part = |part: &AnswerPart| {
        json!({
            "part": part.kind.name(), "bytes": part.bytes, "detail": part.detail,
            "growth_per_minute": part.growth,
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
        "swapped": answer.swapped, "page_tables": answer.page_tables, "shared": answer.shared,
        "cgroup": answer.cgroup.as_ref().map(crate::process::group_document),
        "held_seconds": answer.hold.map(|hold| hold.as_secs_f64()),
        "span_seconds": answer.span.map(|span| span.as_secs_f64()),
        "leaked": answer.leaked, "is_perl": answer.is_perl, "notes": answer.notes,
        "next": next.iter().map(|one| json!({"command": one.command, "shows": one.shows}))
            .collect::<Vec<_>>(),
    })
}
