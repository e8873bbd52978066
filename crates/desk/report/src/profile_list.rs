//! The report `ls`: the profiles of a database.

use heapprof_analysis::store::StoredProfile;
use serde_json::json;

use crate::error::ReportError;
use crate::measure::{UnitFormatter, time_utc};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// Writes the list of profiles.
pub fn stored_profiles(
    profiles: &[StoredProfile],
    style: &ReportStyle,
) -> Result<String, ReportError> {
    if style.format == ReportFormat::Json {
        let rows = profiles.iter().map(|p| {
            let mut row = json!({
                "name": p.name, "time_nanos": p.time_nanos, "samples": p.samples,
                "sample_type": {"type": p.total.0, "unit": p.total.1}, "total": p.total.2,
            });
            if let Some(snapshot) = &p.snapshot {
                row["start_nanos"] = json!(snapshot.start_nanos);
                row["snapshot"] = json!(snapshot.number);
                row["snapshots"] = json!(snapshot.count);
            }
            for (key, value) in [("program", &p.program), ("called", &p.script_or_title)] {
                if let Some(value) = value {
                    row[key] = json!(value);
                }
            }
            row
        });
        return crate::json::text(rows.collect::<serde_json::Value>());
    }
    let mut table = ReportTable::new(&[
        ("name", ColumnAlign::Left),
        ("time", ColumnAlign::Left),
        ("samples", ColumnAlign::Right),
        ("type", ColumnAlign::Left),
        ("total", ColumnAlign::Right),
    ]);
    // If every process has only one profile, no column is needed for their order.
    let series = |p: &StoredProfile| p.snapshot.as_ref().is_some_and(|s| s.count > 1);
    let has_series = profiles.iter().any(series);
    if has_series {
        table.column("snapshot", ColumnAlign::Left);
    }
    let has_programs = profiles.iter().any(|p| p.program.is_some());
    if has_programs {
        table.column("program", ColumnAlign::Left);
    }
    for p in profiles {
        let measure = match style.format {
            ReportFormat::Csv => UnitFormatter::raw(),
            _ => UnitFormatter::new(&p.total.1, style.unit.as_deref())?,
        };
        let time = if p.time_nanos == 0 {
            String::new()
        } else {
            time_utc(p.time_nanos)
        };
        let mut cells = vec![
            p.name.clone(),
            time,
            p.samples.to_string(),
            p.total.0.clone(),
            measure.show(p.total.2),
        ];
        if has_series {
            let snapshot = p.snapshot.as_ref().filter(|s| s.count > 1);
            cells.push(
                snapshot.map_or_else(String::new, |s| format!("{} of {}", s.number, s.count)),
            );
        }
        if has_programs {
            let both = [&p.program, &p.script_or_title].into_iter().flatten();
            cells.push(both.map(String::as_str).collect::<Vec<_>>().join(" "));
        }
        table.row(cells);
    }
    table.render(style)
}
