//! The report `wiretap`: which code ran, and which expected code never ran.

use heapprof_analysis::store::{WiretapReport, WiretapRow, WiretapRowKind};
use serde_json::json;

use crate::error::ReportError;
use crate::measure::{plural, time_utc};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable, printable};

fn time(ms: i64) -> String {
    time_utc(ms.saturating_mul(1_000_000))
}

/// Returns the kind of a row. For a load, the outcome follows.
fn kind(row: &WiretapRow) -> String {
    match row.outcome.as_str() {
        "" => row.kind.clone(),
        outcome => format!("{} {outcome}", row.kind),
    }
}

fn places(row: &WiretapRow) -> String {
    let mut text = row.places.join(", ");
    if row.more > 0 {
        text += &format!(", {} more", row.more);
    }
    text
}

fn table(report: &WiretapReport, by: WiretapRowKind) -> ReportTable {
    let (name, places_name) = match by {
        WiretapRowKind::Code => ("code", "sites"),
        WiretapRowKind::Host => ("host", "codes"),
        WiretapRowKind::Pid => ("process", "codes"),
    };
    let mut table = ReportTable::new(&[
        (name, ColumnAlign::Left),
        ("kind", ColumnAlign::Left),
        ("count", ColumnAlign::Right),
        ("processes", ColumnAlign::Right),
        ("hosts", ColumnAlign::Right),
        ("first", ColumnAlign::Left),
        ("last", ColumnAlign::Left),
        (places_name, ColumnAlign::Left),
    ]);
    for row in &report.rows {
        table.row(vec![
            row.name.clone(),
            kind(row),
            row.count.to_string(),
            row.processes.to_string(),
            row.hosts.to_string(),
            time(row.first_ms),
            time(row.last_ms),
            places(row),
        ]);
    }
    table
}

/// Returns the line of totals.
fn totals(report: &WiretapReport) -> String {
    let senders: i64 = report.senders.values().sum();
    let mut line = format!(
        "{} of {}, {} lost",
        plural(&report.received.to_string(), "datagram"),
        plural(&senders.to_string(), "sender"),
        report.lost
    );
    for (state, count) in report.senders.iter().filter(|(state, _)| *state != "ended") {
        line += &format!("; {count} {state}");
    }
    for (why, count) in &report.refused {
        line += &format!("; {count} refused: {why}");
    }
    line + "\n"
}

/// Writes the report `wiretap`.
///
/// # Errors
/// The report can't be written as CSV or JSON.
pub fn wiretap(
    report: &WiretapReport,
    by: WiretapRowKind,
    style: &ReportStyle,
) -> Result<String, ReportError> {
    if style.format == ReportFormat::Json {
        let rows = report.rows.iter().map(|row| {
            json!({
                "name": row.name, "kind": row.kind, "outcome": row.outcome, "count": row.count,
                "processes": row.processes, "hosts": row.hosts, "first_ms": row.first_ms,
                "last_ms": row.last_ms, "places": row.places, "more": row.more,
            })
        });
        let refused = report.refused.iter();
        let refused = refused.map(|(why, count)| (why.clone(), json!(count)));
        let refused: serde_json::Map<_, _> = refused.collect();
        return crate::json::text(json!({
            "received": report.received, "lost": report.lost, "senders": report.senders,
            "refused": refused, "rows": rows.collect::<serde_json::Value>(),
            "expected": report.expected, "unseen": report.unseen,
        }));
    }
    let mut table = table(report, by);
    if style.format != ReportFormat::Text {
        // There is one table for all rows: names that were never seen have the count 0.
        for name in &report.unseen {
            let blank = String::new;
            table.row(vec![
                name.clone(),
                "never seen".to_string(),
                "0".to_string(),
                "0".to_string(),
                "0".to_string(),
                blank(),
                blank(),
                blank(),
            ]);
        }
        return table.render(style);
    }
    let mut text = totals(report);
    match report.rows.is_empty() {
        true => {
            text += "nothing was received in that time; heapprof alive listen collects datagrams\n"
        }
        false => text += &table.render(style)?,
    }
    if let Some(expected) = report.expected
        && report.senders.is_empty()
    {
        text += &format!(
            "no reports have arrived, so nothing is known about the {expected} expected names\n"
        );
    } else if let Some(expected) = report.expected {
        text += &format!(
            "never seen: {} of {expected} expected\n",
            report.unseen.len()
        );
        for name in &report.unseen {
            text += &format!("  {}\n", printable(name));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn report() -> WiretapReport {
        let row = WiretapRow {
            name: "orders.cancel".to_string(),
            kind: "alive".to_string(),
            count: 12,
            processes: 2,
            hosts: 1,
            first_ms: 0,
            last_ms: 1000,
            places: vec!["orders.c:12".to_string()],
            more: 2,
            ..WiretapRow::default()
        };
        WiretapReport {
            rows: vec![row],
            unseen: vec!["orders\nold".to_string()],
            expected: Some(2),
            senders: [("ended".to_string(), 1), ("end unknown".to_string(), 1)].into(),
            received: 12,
            lost: 3,
            refused: vec![("not understood".to_string(), 7)],
        }
    }

    #[test]
    fn the_text_says_what_was_lost_and_never_seen() {
        let text = wiretap(&report(), WiretapRowKind::Code, &ReportStyle::default()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[0],
            "12 datagrams of 2 senders, 3 lost; 1 end unknown; 7 refused: not understood"
        );
        assert!(
            lines[2].starts_with("orders.cancel  alive     12"),
            "{text}"
        );
        assert!(lines[2].ends_with("orders.c:12, 2 more"), "{text}");
        assert_eq!(
            lines[3..],
            ["never seen: 1 of 2 expected", "  orders\\nold"]
        );
        let empty = wiretap(
            &WiretapReport::default(),
            WiretapRowKind::Code,
            &ReportStyle::default(),
        )
        .unwrap();
        assert!(empty.contains("nothing was received"), "{empty}");
        // If no sender was heard, an expected name is not reported as never seen.
        let unheard = WiretapReport {
            senders: BTreeMap::default(),
            rows: Vec::new(),
            ..report()
        };
        let unheard = wiretap(&unheard, WiretapRowKind::Code, &ReportStyle::default()).unwrap();
        assert!(
            unheard.contains("nothing is known about the 2"),
            "{unheard}"
        );
        assert!(!unheard.contains("never seen"), "{unheard}");
    }

    #[test]
    fn csv_has_one_table() {
        let style = ReportStyle {
            format: ReportFormat::Csv,
            ..ReportStyle::default()
        };
        let text = wiretap(&report(), WiretapRowKind::Host, &style).unwrap();
        assert!(text.starts_with("host,kind,count,"), "{text}");
        assert!(text.contains("never seen,0,0,0,,,"), "{text}");
    }
}
