//! Writes the facts about one Perl value: its size, its type, the values that refer to it.

use heapprof_perl_values::{
    ValueDescription, ValueIdentification, ValueReferrer, ValueSize, WayStep,
};
use serde_json::{Value, json};

use crate::error::ReportError;
use crate::measure::{UnitFormatter, plural};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

/// Returns a value in words: `HASH TraceOrder at 0x55d0c2a3f2a0`.
fn words(value: &ValueDescription) -> String {
    let mut text = value.kind.to_string();
    for part in [&value.class, &value.name] {
        if !part.is_empty() {
            text += &format!(" {part}");
        }
    }
    format!("{text} at {:#x}", value.address)
}

fn document(value: &ValueDescription) -> Value {
    json!({
        "address": format!("{:#x}", value.address), "type": value.kind, "class": value.class, "name": value.name,
        "references": value.references, "size": value.size, "retained": value.retained,
        "path": value.path,
    })
}

/// Writes the size of a value. `variable` is the name by which the user named the value. `contents`
/// is the text of the value, if the user asked for it.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn perl_size(
    variable: &str,
    size: &ValueSize,
    contents: Option<&str>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let rows = [
        ("alone", size.own, 1),
        ("with everything it refers to", size.total, size.objects),
    ];
    if style.format == ReportFormat::Json {
        let bytes =
            |one: heapprof_perl_values::ByteCounts| json!({"asked": one.asked, "given": one.given});
        return crate::json::text(json!({
            "variable": variable, "value": document(&size.value), "contents": contents,
            "size": bytes(size.own), "total_size": bytes(size.total), "objects": size.objects,
            "retained": bytes(size.retained),
        }));
    }
    let measure = UnitFormatter::bytes(style)?;
    let mut table = ReportTable::new(&[
        ("", ColumnAlign::Left),
        ("requested", ColumnAlign::Right),
        ("with malloc overhead", ColumnAlign::Right),
        ("values", ColumnAlign::Right),
    ]);
    for (name, bytes, objects) in rows {
        table.row(vec![
            name.to_string(),
            measure.show(bytes.asked),
            measure.show(bytes.given),
            objects.to_string(),
        ]);
    }
    table.row(vec![
        "held only by it".to_string(),
        measure.show(size.retained.asked),
        measure.show(size.retained.given),
        String::new(),
    ]);
    if style.format == ReportFormat::Csv {
        return table.render(style);
    }
    let mut text = format!(
        "{}: {}\n",
        printable(variable),
        printable(&words(&size.value))
    );
    text += &shown_contents(contents);
    Ok(text + "\n" + &table.render(style)?)
}

fn shown_contents(contents: Option<&str>) -> String {
    contents.map_or_else(String::new, |text| {
        format!("contents: {}\n", printable(text))
    })
}

/// Writes the type of a value, and the path by which the value is reached. `contents` is the text
/// of the value, if the user asked for it.
///
/// # Errors
/// The report can't be written in this format, or the unit is no unit of bytes.
pub fn perl_identify(
    found: &ValueIdentification,
    contents: Option<&str>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    if style.format == ReportFormat::Json {
        return crate::json::text(json!({
            "value": document(&found.value), "contents": contents, "is_leaked": found.is_leaked,
            "way": found.way.iter()
                .map(|one| json!({"step": one.step, "value": document(&one.value)}))
                .collect::<Vec<_>>(),
            "way_left_out": found.way_left_out,
        }));
    }
    let measure = UnitFormatter::bytes(style)?;
    if style.format != ReportFormat::Text {
        let mut table = ReportTable::new(&[
            ("step", ColumnAlign::Left),
            ("type", ColumnAlign::Left),
            ("class", ColumnAlign::Left),
            ("name", ColumnAlign::Left),
            ("address", ColumnAlign::Left),
        ]);
        for WayStep { step, value, .. } in &found.way {
            table.row(vec![
                step.clone(),
                value.kind.to_string(),
                value.class.clone(),
                value.name.clone(),
                format!("{:#x}", value.address),
            ]);
        }
        return table.render(style);
    }
    let value = &found.value;
    let mut text = format!(
        "{}: {}, {} with what it alone holds, {}\n{}\n",
        printable(&words(value)),
        measure.show(value.size),
        measure.show(value.retained),
        plural(&value.references.to_string(), "reference"),
        printable(&value.path)
    );
    text += &shown_contents(contents);
    text += match found.is_leaked {
        true => "\nPath to it from a leaked value\n",
        false => "\nPath to it from a root\n",
    };
    let mut next = 0;
    for WayStep { step, value, depth } in &found.way {
        let indent = "  ".repeat((*depth).min(40));
        if *depth != next {
            let left_out = plural(&found.way_left_out.to_string(), "step");
            text += &format!("{indent}({left_out} more)\n");
        }
        next = depth + 1;
        let step = match step.as_str() {
            "" => String::new(),
            step => format!("{step}  "),
        };
        text += &format!("{indent}{}{}\n", printable(&step), printable(&words(value)));
    }
    Ok(text)
}

/// Writes the values that refer to a value, with at most `limit` rows.
///
/// # Errors
/// The report can't be written in this format.
pub fn perl_who(
    found: &ValueIdentification,
    contents: Option<&str>,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let limit = limit.unwrap_or(usize::MAX);
    let left_out = found.referrers.len().saturating_sub(limit) + found.left_out;
    let shown = found.referrers.iter().take(limit);
    if style.format == ReportFormat::Json {
        let row = |one: &ValueReferrer| {
            json!({
                "from": one.from.as_ref().map(document), "step": one.step,
                "is_strong": one.is_strong,
            })
        };
        return crate::json::text(json!({
            "value": document(&found.value), "contents": contents,
            "referrers": shown.map(row).collect::<Vec<_>>(), "other": left_out,
        }));
    }
    let mut table = ReportTable::new(&[
        ("how", ColumnAlign::Left),
        ("", ColumnAlign::Left),
        ("from", ColumnAlign::Left),
        ("its path", ColumnAlign::Left),
    ]);
    for one in shown {
        let (from, path) = match &one.from {
            Some(from) => (words(from), from.path.clone()),
            None => ("a root".to_string(), String::new()),
        };
        let strength = if one.is_strong { "strong" } else { "weak" };
        table.row(vec![one.step.clone(), strength.to_string(), from, path]);
    }
    if left_out > 0 {
        let mut cells = vec![String::new(); 4];
        cells[2] = format!("(other: {left_out} more)");
        table.row(cells);
    }
    if style.format == ReportFormat::Csv {
        return table.render(style);
    }
    let head = words(&found.value);
    let head = printable(&head);
    let references = plural(&found.value.references.to_string(), "reference");
    let contents = shown_contents(contents);
    Ok(match table.is_empty() {
        true => format!("{head}: {references}; nothing refers to it\n{contents}"),
        false => format!("{head}: {references}\n{contents}\n{}", table.render(style)?),
    })
}
