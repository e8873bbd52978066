//! The report `fork-audit`: how much forked children share, what they load too late, and whose
//! memory they copy.

use heapprof_analysis::{
    CodePlace,
    fork_audit::{ForkAudit, ForkChild, ForkLoad, ForkRuleViolation, ForkUnsharedPlace},
};
use serde_json::{Map, Value, json};

use crate::advice::ReportAdvice;
use crate::error::ReportError;
use crate::head::with_head;
use crate::json;
use crate::measure::{UnitFormatter, percent, plural};
use crate::names::name_rows;
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// Maximum number of characters of a child's title in a text for people.
const MAX_TITLE_CHARS: usize = 40;
/// Maximum number of characters of the site of a load in a text for people.
const MAX_SITE_CHARS: usize = 60;
/// Maximum number of parts of a path in a text for people.
const MAX_FILE_NAME_PARTS: usize = 2;
/// An empty list of further functions, for tables whose short names only need to differ from each
/// other.
const NO_FUNCTIONS: &[&str] = &[];

/// Writes the report `fork-audit`. `name` is a name for the audit, such as the file or the program.
/// A table for people has at most `limit` rows.
///
/// # Errors
/// The unit is no unit of bytes.
pub fn fork_audit(
    audit: &ForkAudit,
    name: &str,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    let bytes = UnitFormatter::new("bytes", style.unit.as_deref())?;
    match style.format {
        ReportFormat::Json => json::text(fork_document(audit, name, &str::to_string)),
        ReportFormat::Csv => facts(audit).render(style),
        ReportFormat::Text | ReportFormat::Markdown => {
            let mut text = with_head(&head(audit, name, &bytes), "", style);
            for (title, table) in tables(audit, &bytes, limit, style)? {
                text += "\n";
                let body = match table.is_empty() {
                    true => String::new(),
                    false => table.render(style)?,
                };
                text += &with_head(&[title], &body, style);
            }
            for line in hints(audit, style) {
                text += "\n";
                text += &with_head(&[line], "", style);
            }
            Ok(text)
        }
    }
}

/// Returns a line about the violation of a rule.
pub fn fork_violation_line(broken: &ForkRuleViolation) -> Result<String, ReportError> {
    let value = match broken.is_bytes {
        true => UnitFormatter::new("bytes", None)?.show(broken.value),
        false => broken.value.to_string(),
    };
    let whose = broken
        .pid
        .map_or_else(String::new, |pid| format!(" in process {pid}"));
    Ok(format!("{}: it is {value}{whose}", broken.rule))
}

fn head(audit: &ForkAudit, name: &str, bytes: &UnitFormatter) -> Vec<String> {
    let children = plural_of(audit.children.len(), "forked child", "forked children");
    let mut line = format!("{name}: {children}");
    let sum = |name: &str| {
        let all = audit
            .children
            .iter()
            .map(|child| i128::from(child.bytes_of(name)));
        all.sum::<i128>()
    };
    if !audit.children.is_empty() {
        let share = |name: &str| bytes.show(sum(name));
        line += &format!(
            "; private and dirty memory of all: {}; new {}, copied {}, heapprof's own {}",
            share("private_dirty"),
            share("new_space"),
            share("unshared_space"),
            share("own_private_space"),
        );
    }
    let unknown = audit
        .children
        .iter()
        .filter(|child| child.audited_micros == 0);
    let unknown = unknown.count();
    if unknown > 0 {
        line += &format!(
            "; nothing is known about {}",
            plural_of(unknown, "child", "children")
        );
    }
    let mut lines = vec![line];
    let period = audit.children.iter().map(|child| child.period).max();
    if let Some(period @ 2..) = period {
        lines.push(format!(
            "Figures for allocations are estimated from samples, one every {} on average; figures \
             for pages are exact",
            bytes.show(period)
        ));
    }
    lines
}

fn plural_of(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn tables(
    audit: &ForkAudit,
    bytes: &UnitFormatter,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<Vec<(String, ReportTable)>, ReportError> {
    let mut tables = Vec::new();
    if !audit.children.is_empty() {
        tables.push((
            "Children, at the last reading".to_string(),
            children(audit, bytes)?,
        ));
    }
    let (loaded, failed): (Vec<&ForkLoad>, Vec<&ForkLoad>) = audit
        .loads
        .iter()
        .partition(|load| load.outcome == "loaded");
    if !loaded.is_empty() {
        let sum: i128 = loaded.iter().map(|load| i128::from(load.flat)).sum();
        let title = format!(
            "Loaded after the fork: {}, {} together",
            plural(&loaded.len().to_string(), "file"),
            bytes.show(sum)
        );
        tables.push((title, loads(&loaded, bytes, limit, style)?));
    }
    if !failed.is_empty() {
        let title = "Found after the fork, but could not be loaded".to_string();
        tables.push((title, loads(&failed, bytes, limit, style)?));
    }
    if !audit.missing.is_empty() {
        let title = "Searched for after the fork and not found: costs system calls but no memory"
            .to_string();
        tables.push((title, missing(audit, limit, style)));
    }
    if !audit.unshared.is_empty() {
        let sum: i128 = audit
            .kinds
            .iter()
            .map(|(_, bytes)| i128::from(*bytes))
            .sum();
        let kinds = audit.kinds.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, value)| format!("{kind} {}", bytes.show(*value)))
            .collect();
        let title = format!(
            "Inherited, then copied because it was written to: {} ({})",
            bytes.show(sum),
            kinds.join(", ")
        );
        tables.push((title, unshared_table(audit, sum, bytes, style)));
    }
    Ok(tables)
}

fn children(audit: &ForkAudit, bytes: &UnitFormatter) -> Result<ReportTable, ReportError> {
    let mut table = ReportTable::new(&[
        ("pid", ColumnAlign::Right),
        ("parent", ColumnAlign::Right),
        ("gen", ColumnAlign::Right),
        ("read at", ColumnAlign::Right),
        ("age", ColumnAlign::Right),
        ("rss", ColumnAlign::Right),
        ("pss", ColumnAlign::Right),
        ("dirty", ColumnAlign::Right),
        ("new", ColumnAlign::Right),
        ("shared", ColumnAlign::Right),
        ("copied", ColumnAlign::Right),
        ("own", ColumnAlign::Right),
        ("end", ColumnAlign::Left),
        ("what it is", ColumnAlign::Left),
    ]);
    let time = UnitFormatter::new("nanoseconds", None)?;
    let time = |micros: i64| time.show(i128::from(micros) * 1000);
    for child in &audit.children {
        let of = |name: &str| match child.audited_micros {
            0 => "?".to_string(),
            _ => bytes.show(child.bytes_of(name)),
        };
        table.row(vec![
            child.pid.to_string(),
            child.parent.to_string(),
            child.generation.to_string(),
            time(child.audited_micros),
            time(child.age_micros),
            of("rss"),
            of("pss"),
            of("private_dirty"),
            of("new_space"),
            of("shared_space"),
            of("unshared_space"),
            of("own_private_space"),
            child.ending.clone(),
            describe_child(child),
        ]);
    }
    Ok(table)
}

/// Returns the title or the program of a child, and the reason if something about the child is not
/// known.
fn describe_child(child: &ForkChild) -> String {
    let mut text = match child.title.is_empty() {
        true => child.program.clone(),
        false => cut(&child.title, MAX_TITLE_CHARS),
    };
    if !child.unavailable_reason.is_empty() {
        text += &format!(" ({})", child.unavailable_reason);
    }
    text
}

fn loads(
    all: &[&ForkLoad],
    bytes: &UnitFormatter,
    limit: Option<usize>,
    style: &ReportStyle,
) -> Result<ReportTable, ReportError> {
    let mut table = ReportTable::new(&[
        ("children", ColumnAlign::Right),
        ("each", ColumnAlign::Right),
        ("together", ColumnAlign::Right),
        ("time", ColumnAlign::Right),
        ("how", ColumnAlign::Left),
        ("what", ColumnAlign::Left),
        ("before the fork", ColumnAlign::Left),
        ("first asked for at", ColumnAlign::Left),
    ]);
    let time = UnitFormatter::new("nanoseconds", None)?;
    let most = limit.unwrap_or(all.len()).min(all.len());
    for load in &all[..most] {
        table.row(vec![
            load.children.to_string(),
            bytes.show(load.each),
            bytes.show(load.flat),
            load.micros
                .map_or_else(String::new, |micros| time.show(i128::from(micros) * 1000)),
            load.kind.clone(),
            file(&load.name, style),
            preload_statement(load),
            site(&load.site, style),
        ]);
    }
    if let rest @ [_, ..] = &all[most..] {
        let flat: i128 = rest.iter().map(|load| i128::from(load.flat)).sum();
        let mut cells = vec![String::new(), String::new(), bytes.show(flat)];
        cells.extend([String::new(), String::new()]);
        cells.push(format!("(other: {} more)", rest.len()));
        cells.extend([String::new(), String::new()]);
        table.row(cells);
    }
    Ok(table)
}

fn missing(audit: &ForkAudit, limit: Option<usize>, style: &ReportStyle) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("children", ColumnAlign::Right),
        ("attempts", ColumnAlign::Right),
        ("stat calls", ColumnAlign::Right),
        ("what", ColumnAlign::Left),
        ("first asked for at", ColumnAlign::Left),
    ]);
    let all = &audit.missing;
    let most = limit.unwrap_or(all.len()).min(all.len());
    for load in &all[..most] {
        table.row(vec![
            load.children.to_string(),
            load.attempts.to_string(),
            load.stats.to_string(),
            load.name.clone(),
            site(&load.site, style),
        ]);
    }
    if let rest @ [_, ..] = &all[most..] {
        let sum = |of: fn(&ForkLoad) -> i64| rest.iter().map(of).sum::<i64>().to_string();
        table.row(vec![
            String::new(),
            sum(|load| load.attempts),
            sum(|load| load.stats),
            format!("(other: {} more)", rest.len()),
            String::new(),
        ]);
    }
    table
}

fn unshared_table(
    audit: &ForkAudit,
    sum: i128,
    bytes: &UnitFormatter,
    style: &ReportStyle,
) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("together", ColumnAlign::Right),
        ("share", ColumnAlign::Right),
        ("each", ColumnAlign::Right),
        ("children", ColumnAlign::Right),
        ("kind of memory", ColumnAlign::Left),
    ]);
    table.column("allocated by", ColumnAlign::Left);
    for of in &audit.unshared {
        let mut cells = vec![
            bytes.show(of.bytes),
            percent(of.bytes, sum),
            bytes.show(of.each),
            of.children.to_string(),
            of.kind.clone(),
        ];
        cells.push(String::new());
        table.row(cells);
    }
    let mut places: Vec<CodePlace> = audit.unshared.iter().map(|of| of.place.clone()).collect();
    let [rest, rows] = audit.unshared_other;
    if rows > 0 {
        let mut cells = vec![bytes.show(rest), percent(rest, sum)];
        cells.extend([String::new(), String::new(), String::new()]);
        cells.push(String::new());
        table.row(cells);
        places.push(CodePlace {
            function: format!("(other: {rows} rows)"),
            ..CodePlace::default()
        });
    }
    name_rows(&mut table, &places, NO_FUNCTIONS, style);
    table
}

/// Returns the Perl statement that loads a file before the fork, so that the children share it.
/// Empty for kinds of loads without such a statement.
fn preload_statement(load: &ForkLoad) -> String {
    match (&*load.kind, load.name.strip_suffix(".pm")) {
        ("require", Some(module)) if !module.starts_with(['/', '.']) => {
            format!("use {};", module.replace('/', "::"))
        }
        ("require", _) => format!("require '{}';", load.name),
        ("do", _) => format!("do '{}';", load.name),
        _ => String::new(),
    }
}

/// Whether a child may have loaded code through an interpreter.
fn may_load(audit: &ForkAudit) -> bool {
    let is_perl = |child: &ForkChild| child.program.starts_with("perl");
    !audit.loads.is_empty() || audit.children.iter().any(is_perl)
}

/// Returns hints about the audit, one line each.
fn hints(audit: &ForkAudit, style: &ReportStyle) -> Vec<String> {
    let mut lines = Vec::new();
    if audit.children.is_empty() {
        lines.push(format!(
            "No forked child was audited: {}",
            style.advise(ReportAdvice::AuditForks)
        ));
    } else if !audit.has_attempts && may_load(audit) {
        lines.push(format!(
            "It is not known which modules were only searched for and how long loads took: a Perl \
             program reports this through the module Devel::HeapProf, which {}; without it, the \
             copied memory may include what Perl writes when it cleans up",
            style.advise(ReportAdvice::BuildPerlModule)
        ));
    }
    let killed = audit
        .children
        .iter()
        .filter(|child| child.ending == "killed");
    let killed = killed.count();
    if killed > 0 {
        lines.push(format!(
            "{} killed some time after the last reading; more may have been copied by then",
            plural_of(killed, "child was", "children were")
        ));
    }
    lines
}

/// Returns a file's name: its last parts, unless `style` asks for whole names.
fn file(name: &str, style: &ReportStyle) -> String {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.len() > MAX_FILE_NAME_PARTS && name.starts_with('/') && !style.full_names {
        true => format!("…/{}", parts[parts.len() - MAX_FILE_NAME_PARTS..].join("/")),
        false => name.to_string(),
    }
}

/// Returns the site of a load: as many of its places as fit, or all if `style` asks for whole
/// names.
fn site(site: &str, style: &ReportStyle) -> String {
    let mut text = String::new();
    for place in site.split(" < ") {
        let place = file(place, style);
        let wide = text.chars().count() + place.chars().count();
        if !text.is_empty() && wide > MAX_SITE_CHARS && !style.full_names {
            text += " < …";
            break;
        }
        if !text.is_empty() {
            text += " < ";
        }
        text += &place;
    }
    text
}

/// Returns a text, cut to at most `most` characters.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_string(),
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

/// Returns the report as JSON. `path` returns the text to show for a file, or for a place in a
/// file.
pub fn fork_document(
    audit: &ForkAudit,
    name: &str,
    path: &dyn Fn(&str) -> String,
) -> Map<String, Value> {
    let mut document = Map::new();
    document.insert("profile".into(), json!(name));
    let children = audit.children.iter().map(|child| {
        let mut row = json!({
            "pid": child.pid,
            "parent": child.parent,
            "generation": child.generation,
            "program": child.program,
            "title": child.title,
            "time_micros": child.time_micros,
            "looked_micros": child.audited_micros,
            "age_micros": child.age_micros,
            "ending": child.ending,
            "period": child.period,
            "lacks": child.unavailable_reason,
        });
        for (name, bytes) in &child.bytes {
            row[*name] = json!(bytes);
        }
        row
    });
    document.insert("children".into(), children.collect());
    let load = |load: &ForkLoad| {
        let site = load.site.split(" < ").filter(|at| !at.is_empty());
        let site: Vec<String> = site.map(path).collect();
        let name = match load.name.starts_with('/') {
            true => path(&load.name),
            false => load.name.clone(),
        };
        json!({
            "name": name,
            "kind": load.kind,
            "outcome": load.outcome,
            "children": load.children,
            "attempts": load.attempts,
            "each": load.each,
            "flat": load.flat,
            "cum": load.cum,
            "micros": load.micros,
            "stats": load.stats,
            "opens": load.opens,
            "site": site,
            "before": preload_statement(load),
        })
    };
    document.insert("loads".into(), audit.loads.iter().map(load).collect());
    document.insert("missing".into(), audit.missing.iter().map(load).collect());
    let unshared = audit.unshared.iter().map(|of: &ForkUnsharedPlace| {
        let mut row = json::place(&of.place);
        if let Some(file) = &of.place.file {
            row.insert("file".into(), json!(path(file)));
        }
        row.insert("kind".into(), json!(of.kind));
        row.insert("children".into(), json!(of.children));
        row.insert("each".into(), json!(of.each));
        row.insert("bytes".into(), json!(of.bytes));
        row.insert("objects".into(), json!(of.objects));
        Value::Object(row)
    });
    document.insert("unshared".into(), unshared.collect());
    let [bytes, rows] = audit.unshared_other;
    document.insert("other".into(), json!({"bytes": bytes, "rows": rows}));
    let kinds = audit.kinds.iter();
    let kinds = kinds.map(|(kind, bytes)| json!({"kind": kind, "bytes": bytes}));
    document.insert("kinds".into(), kinds.collect());
    document
}

/// Makes the table of the whole report as facts, for CSV.
fn facts(audit: &ForkAudit) -> ReportTable {
    let mut table = ReportTable::new(&[
        ("table", ColumnAlign::Left),
        ("of", ColumnAlign::Left),
        ("what", ColumnAlign::Left),
        ("fact", ColumnAlign::Left),
        ("value", ColumnAlign::Right),
    ]);
    let mut fact = |table_name: &str, of: &str, what: &str, fact: &str, value: i64| {
        table.row(vec![
            table_name.to_string(),
            of.to_string(),
            what.to_string(),
            fact.to_string(),
            value.to_string(),
        ]);
    };
    for child in &audit.children {
        let pid = child.pid.to_string();
        fact("child", &pid, &child.ending, "generation", child.generation);
        fact("child", &pid, &child.ending, "age_micros", child.age_micros);
        for (name, bytes) in &child.bytes {
            fact("child", &pid, &child.ending, name, *bytes);
        }
    }
    for load in audit.loads.iter().chain(&audit.missing) {
        let mut of_load = |name, value| fact("load", &load.name, &load.outcome, name, value);
        of_load("children", load.children);
        of_load("attempts", load.attempts);
        of_load("flat", load.flat);
        of_load("cum", load.cum);
        of_load("stats", load.stats);
        of_load("opens", load.opens);
        if let Some(micros) = load.micros {
            of_load("micros", micros);
        }
    }
    for of in &audit.unshared {
        let place = json::place_json(&of.place);
        fact("unshared", &place, &of.kind, "bytes", of.bytes);
        fact("unshared", &place, &of.kind, "children", of.children);
    }
    table
}
