//! The report `top`: one row for each entity. `(other)` holds the rest, so that the rows add up to
//! the total.

use heapprof_analysis::{
    CodePlace, Granularity, SampleType, SortKey, ValueEstimate,
    top::{TopReport, TopRow},
};
use serde_json::{Map, Value, json};

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::{self, with_head};
use crate::json;
use crate::measure::{UnitFormatter, percent};
use crate::names::{
    MIN_NAME_COLUMNS, file_cell, file_column, name_cells, name_columns, name_rows,
    name_rows_within, name_wide_rows,
};
use crate::next::after_top;
use crate::range;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, markdown_cell, printable};

/// A function that returns the text of a source line by the file's name and the line's number;
/// `None` if there is no such file or line.
pub type SourceLine<'a> = &'a dyn Fn(&str, i64) -> Option<String>;

/// Writes the report `top`. If the rows are lines, they have the source text beside them, as far as
/// `source` has it. CSV has no column for the source text.
pub fn top(
    top: &TopReport,
    style: &ReportStyle,
    source: SourceLine<'_>,
) -> Result<String, ReportError> {
    let measure = head::measure(&top.header, style)?;
    let holders = match style.format {
        ReportFormat::Csv | ReportFormat::Json => None,
        ReportFormat::Text | ReportFormat::Markdown => only_holders(top),
    };
    let (top, caller_count) = match &holders {
        Some((holders, caller_count)) => (holders, *caller_count),
        None => (top, 0),
    };
    let sources: Vec<Option<String>> = match top.header.granularity {
        Granularity::Lines => top.rows.iter().map(|row| line_of(row, source)).collect(),
        _ => vec![None; top.rows.len()],
    };
    if style.format == ReportFormat::Json {
        return json::text(document(top, &sources));
    }
    let mut lines = head::lines(&top.header, &measure, style);
    let table = match top.types.is_empty() {
        true => narrow(top, &measure, style, &sources),
        false => {
            let mut table = wide(top, style)?;
            if let (Some(width), ReportFormat::Text) = (style.width, style.format) {
                lines.extend(fit(top, &mut table, width, style));
            }
            table
        }
    };
    if top.other.rows > 0 && !lines.is_empty() {
        let shown = top.rows.len() as i64;
        lines.push(format!(
            "{shown} of {} rows, by {}; {}",
            shown + top.other.rows,
            sort_word(top),
            style.advise(ReportAdvice::AllRows)
        ));
    }
    let mut text = with_head(&lines, &table.render(style)?, style);
    if matches!(style.format, ReportFormat::Text | ReportFormat::Markdown) {
        for line in callers_line(top, caller_count, style)
            .into_iter()
            .chain(after_top(top, style))
        {
            let line = printable(&line).into_owned();
            match style.format {
                ReportFormat::Markdown => text.push_str(&format!("\n{}\n", markdown_cell(&line))),
                _ => text.push_str(&format!("{}\n", style.fold(&line))),
            }
        }
    }
    Ok(text)
}

/// Returns the report without its last rows, if these have no flat value, and the number of all
/// rows without one. Returns `None` if there are none, or if the limit left out rows with a flat
/// value.
fn only_holders(top: &TopReport) -> Option<(TopReport, i64)> {
    let last = top.rows.iter().rposition(|row| row.flat != 0)?;
    let is_ordered = top.sort == SortKey::Flat && top.types.is_empty();
    let caller_count = (top.rows.len() - last - 1) as i64 + top.other.rows;
    if !is_ordered || top.other.holders != 0 || caller_count == 0 {
        return None;
    }
    let mut holders = top.clone();
    holders.rows.truncate(last + 1);
    holders.other.rows = 0;
    Some((holders, caller_count))
}

/// Returns the line about rows that have no flat value and were left out.
fn callers_line(top: &TopReport, count: i64, style: &ReportStyle) -> Option<String> {
    let (one, many) = match top.header.granularity {
        Granularity::Functions | Granularity::FileFunctions => ("function", "functions"),
        Granularity::Files => ("file", "files"),
        Granularity::Lines => ("line", "lines"),
        Granularity::Addresses => ("address", "addresses"),
    };
    let holds = match count {
        0 => return None,
        1 => format!("1 more {one} holds nothing itself"),
        _ => format!("{count} more {many} hold nothing themselves"),
    };
    Some(format!(
        "{holds}; {}.",
        style.advise(ReportAdvice::SortByCum)
    ))
}

/// Least number of columns for source text.
const MIN_SOURCE_COLUMNS: usize = 42;

/// Returns the text of a row's line, without the space around it.
fn line_of(row: &TopRow, source: SourceLine<'_>) -> Option<String> {
    let text = source(row.place.file.as_ref()?, row.place.line?)?;
    Some(text.trim().to_string()).filter(|text| !text.is_empty())
}

fn sort_word(top: &TopReport) -> &'static str {
    match top.sort {
        SortKey::Flat => "flat",
        SortKey::Cum => "cum",
    }
}

fn named_place(name: &str) -> CodePlace {
    CodePlace {
        function: name.to_string(),
        ..CodePlace::default()
    }
}

/// Returns the rows for the sum that the limit left out, and for the sum that the filters left out.
fn remainders(top: &TopReport) -> Vec<(CodePlace, i64)> {
    let mut rows = Vec::new();
    if top.other.rows > 0 {
        rows.push((named_place(heapprof_analysis::OTHER_NAME), top.other.flat));
    }
    if top.header.left_out != 0 && top.header.total != top.header.net {
        rows.push((named_place("(filtered out)"), top.header.left_out));
    }
    rows
}

fn narrow(
    top: &TopReport,
    measure: &UnitFormatter,
    style: &ReportStyle,
    sources: &[Option<String>],
) -> ReportTable {
    let (granularity, split) = (top.header.granularity, style.format == ReportFormat::Csv);
    // The value that the rows are ordered by, if the table has a column for its range.
    let known =
        (!split && top.rows.iter().any(|row| row.estimates != [None; 2])).then_some(top.sort);
    let mut table = ReportTable::new(&[("flat", ColumnAlign::Right)]);
    if known == Some(SortKey::Flat) {
        table.column("±", ColumnAlign::Right);
    }
    if !split {
        table.column("flat%", ColumnAlign::Right);
        table.column("sum%", ColumnAlign::Right);
    }
    table.column("cum", ColumnAlign::Right);
    if known == Some(SortKey::Cum) {
        table.column("±", ColumnAlign::Right);
    }
    if !split {
        table.column("cum%", ColumnAlign::Right);
    }
    name_columns(&mut table, granularity, split);
    if split {
        for value in ["", "cum_"] {
            let columns = range::RANGE_COLUMNS.map(|column| format!("{value}{column}"));
            columns
                .into_iter()
                .for_each(|name| table.column(name, ColumnAlign::Right));
        }
    }
    file_column(&mut table, granularity, split);
    let total = top.header.total;
    let (mut sum, mut places) = (0i128, Vec::new());
    let mut add =
        |place: &CodePlace, flat: i64, cum: Option<i64>, of: &[Option<ValueEstimate>; 2]| {
            sum += i128::from(flat);
            let mut cells = vec![measure.show(flat)];
            if known == Some(SortKey::Flat) {
                cells.push(range::share(flat, of[0].as_ref()));
            }
            if !split {
                cells.extend([percent(flat, total), percent(sum, total)]);
            }
            cells.push(cum.map(|c| measure.show(c)).unwrap_or_default());
            if known == Some(SortKey::Cum) {
                cells.push(range::share(cum.unwrap_or(0), of[1].as_ref()));
            }
            if !split {
                cells.push(cum.map(|c| percent(c, total)).unwrap_or_default());
            }
            cells.extend(name_cells(place, granularity, split));
            if split {
                cells.extend(
                    of.iter()
                        .flat_map(|estimate| range::cells(estimate.as_ref())),
                );
            }
            cells.extend(file_cell(place, granularity, split));
            table.row(cells);
            places.push(place.clone());
        };
    for row in &top.rows {
        add(&row.place, row.flat, Some(row.cum), &row.estimates);
    }
    for (place, flat) in remainders(top) {
        add(&place, flat, None, &[None; 2]);
    }
    if split {
        return table;
    }
    if sources.iter().all(Option::is_none) {
        name_rows(&mut table, &places, &top.similar_names, style);
        return table;
    }
    let left = style.columns().saturating_sub(table.width_of_others());
    name_rows_within(
        &mut table,
        &places,
        &top.similar_names,
        left.saturating_sub(MIN_SOURCE_COLUMNS)
            .max(MIN_NAME_COLUMNS),
        style,
    );
    let texts = sources.iter().cloned().map(Option::unwrap_or_default);
    let texts = texts.chain(std::iter::repeat(String::new()));
    let left = style.columns().saturating_sub(table.width() + 2);
    table.append(
        "source",
        texts.take(places.len()).collect(),
        left.max(MIN_NAME_COLUMNS),
    );
    table
}

/// Least number of terminal columns of a name that was cut.
const MIN_CUT_NAME_COLUMNS: usize = 30;

/// Removes sample types from a wide table until the table fits, and then cuts names. The requested
/// sample type always stays. Returns a line about the types that were removed; `None` if there are
/// none.
fn fit(
    top: &TopReport,
    table: &mut ReportTable,
    width: usize,
    style: &ReportStyle,
) -> Option<String> {
    let widths = table.widths();
    let columns = |(_, count): &(SampleType, Option<usize>)| 2 + usize::from(count.is_some());
    let mut at = 0;
    let mut groups = Vec::new();
    for kind in &top.types {
        let group = at..at + columns(kind);
        at = group.end;
        groups.push(group);
    }
    let taken = |group: &std::ops::Range<usize>| -> usize {
        widths[group.clone()].iter().map(|width| width + 2).sum()
    };
    let names = table.last_width();
    let mut left = width.saturating_sub(names.min(MIN_CUT_NAME_COLUMNS));
    let asked = |i: &usize| top.types[*i].0 == top.header.sample_type;
    let mut order: Vec<usize> = (0..groups.len()).collect();
    // The type that was asked for comes first. The count or the bytes of the same kind come next,
    // and then the others in their order.
    let family = |name: &str| name.split('_').next().map(str::to_string);
    let like =
        |i: &usize| family(&top.types[*i].0.r#type) == family(&top.header.sample_type.r#type);
    order.sort_by_key(|i| (!asked(i), !like(i)));
    let mut kept = vec![true; widths.len()];
    let mut out = Vec::new();
    for i in order {
        match left.checked_sub(taken(&groups[i])) {
            Some(rest) => left = rest,
            None if asked(&i) => left = 0,
            None => {
                kept[groups[i].clone()].fill(false);
                out.push(i);
            }
        }
    }
    table.keep_columns(&kept);
    match style.full_names {
        true => table.cut_last(left + names.min(MIN_CUT_NAME_COLUMNS)),
        false => name_rows_within(
            table,
            &wide_places(top),
            &top.similar_names,
            left + names.min(MIN_CUT_NAME_COLUMNS),
            style,
        ),
    }
    out.sort_unstable();
    let out: Vec<&str> = out
        .iter()
        .map(|&i| top.types[i].0.r#type.as_str())
        .collect();
    (!out.is_empty()).then(|| {
        format!(
            "Left out at a width of {width}: {}; {}",
            out.join(", "),
            style.advise(ReportAdvice::AllColumns)
        )
    })
}

/// Returns the places of the rows of a wide table.
fn wide_places(top: &TopReport) -> Vec<CodePlace> {
    let mut places: Vec<CodePlace> = top.rows.iter().map(|row| row.place.clone()).collect();
    if top.other.rows > 0 {
        places.push(named_place(heapprof_analysis::OTHER_NAME));
    }
    if top.other.left_out.iter().any(|&v| v != 0) {
        places.push(named_place("(filtered out)"));
    }
    places
}

/// Returns the mean size of an object: the bytes divided by the number of objects that they belong
/// to.
fn mean(bytes: i64, objects: i64) -> Option<i64> {
    (objects != 0).then(|| (bytes as f64 / objects as f64).round() as i64)
}

fn wide(top: &TopReport, style: &ReportStyle) -> Result<ReportTable, ReportError> {
    let (granularity, split) = (top.header.granularity, style.format == ReportFormat::Csv);
    let mut table = ReportTable::default();
    let mut measures = Vec::new();
    let cells_of = |sample_type: &SampleType| {
        // If the unit is of another family than the sample type, it is meant for other types.
        let wanted = style
            .unit
            .as_deref()
            .filter(|u| UnitFormatter::new(&sample_type.unit, Some(u)).is_ok());
        match split {
            true => Ok(UnitFormatter::raw()),
            false => UnitFormatter::new(&sample_type.unit, wanted),
        }
    };
    for (sample_type, count) in &top.types {
        table.column(format!("{} flat", sample_type.r#type), ColumnAlign::Right);
        table.column(format!("{} cum", sample_type.r#type), ColumnAlign::Right);
        if count.is_some() {
            let name = sample_type
                .r#type
                .trim_end_matches("space")
                .trim_end_matches('_');
            let name = if name.is_empty() {
                "mean size".into()
            } else {
                format!("{name} mean size")
            };
            table.column(name, ColumnAlign::Right);
        }
        measures.push(cells_of(sample_type)?);
    }
    name_columns(&mut table, granularity, split);
    if split {
        for (sample_type, _) in &top.types {
            for value in ["", "cum_"] {
                for column in range::RANGE_COLUMNS {
                    let name = format!("{} {value}{column}", sample_type.r#type);
                    table.column(name, ColumnAlign::Right);
                }
            }
        }
    }
    file_column(&mut table, granularity, split);
    let mut add = |place: &CodePlace,
                   values: &[(i64, Option<i64>)],
                   estimates: &[[Option<ValueEstimate>; 2]]| {
        let mut cells = Vec::new();
        for (at, ((_, count), measure)) in top.types.iter().zip(&measures).enumerate() {
            let (flat, cum) = values[at];
            cells.push(measure.show(flat));
            cells.push(cum.map(|c| measure.show(c)).unwrap_or_default());
            if let Some(count) = count {
                // This is the mean of the flat values. A row that only calls others shows the mean
                // of its cum values.
                let objects = values[*count];
                let mean = mean(flat, objects.0).or_else(|| mean(cum?, objects.1?));
                cells.push(mean.map(|m| measure.show(m)).unwrap_or_default());
            }
        }
        cells.extend(name_cells(place, granularity, split));
        if split {
            for at in 0..top.types.len() {
                let of = estimates.get(at).unwrap_or(&[None; 2]);
                cells.extend(
                    of.iter()
                        .flat_map(|estimate| range::cells(estimate.as_ref())),
                );
            }
        }
        cells.extend(file_cell(place, granularity, split));
        table.row(cells);
    };
    for row in &top.rows {
        let values: Vec<_> = row.values.iter().map(|&(f, c)| (f, Some(c))).collect();
        add(&row.place, &values, &row.values_estimates);
    }
    if top.other.rows > 0 {
        let values: Vec<_> = top.other.values.iter().map(|&f| (f, None)).collect();
        add(&named_place(heapprof_analysis::OTHER_NAME), &values, &[]);
    }
    if top.other.left_out.iter().any(|&v| v != 0) {
        let values: Vec<_> = top.other.left_out.iter().map(|&f| (f, None)).collect();
        add(&named_place("(filtered out)"), &values, &[]);
    }
    if !split {
        name_wide_rows(&mut table, &wide_places(top), &top.similar_names, style);
    }
    Ok(table)
}

fn document(top: &TopReport, sources: &[Option<String>]) -> Map<String, Value> {
    let row = |(row, source): (&TopRow, &Option<String>)| {
        let mut object = json::place(&row.place);
        if let Some(source) = source {
            object.insert("source".into(), json!(source));
        }
        object.insert("flat".into(), json!(row.flat));
        object.insert("cum".into(), json!(row.cum));
        let [flat, cum] = &row.estimates;
        range::insert(&mut object, "estimate", flat.as_ref());
        range::insert(&mut object, "cum_estimate", cum.as_ref());
        if !top.types.is_empty() {
            let mut values = Map::new();
            let own = row.values.iter().zip(&row.values_estimates);
            for ((sample_type, _), ((flat, cum), [of_flat, of_cum])) in top.types.iter().zip(own) {
                let mut value = Map::new();
                value.insert("flat".into(), json!(flat));
                value.insert("cum".into(), json!(cum));
                range::insert(&mut value, "estimate", of_flat.as_ref());
                range::insert(&mut value, "cum_estimate", of_cum.as_ref());
                // The unit distinguishes types with the same name. If the unit is the same, too, a
                // number distinguishes them.
                let mut key = sample_type.r#type.clone();
                if values.contains_key(&key) {
                    key = format!("{key}/{}", sample_type.unit);
                }
                if values.contains_key(&key) {
                    key = format!("{key}#{}", values.len());
                }
                values.insert(key, value.into());
            }
            object.insert("values".into(), values.into());
        }
        Value::Object(object)
    };
    let mut document = json::head(&top.header);
    document.insert(
        "rows".into(),
        top.rows.iter().zip(sources).map(row).collect(),
    );
    document.insert(
        "other".into(),
        json!({"flat": top.other.flat, "rows": top.other.rows}),
    );
    document
}
