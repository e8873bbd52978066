//! `ls`: the profiles of a database.

use heapprof_analysis::StoredProfile;
use serde_json::json;

use crate::error::Error;
use crate::measure::{Measure, time_utc};
use crate::style::{Format, Style};
use crate::table::{Align, Table};

/// Writes the list.
pub fn stored(profiles: &[StoredProfile], style: &Style) -> Result<String, Error> {
    if style.format == Format::Json {
        let rows = profiles.iter().map(|p| {
            let mut row = json!({
                "name": p.name, "time_nanos": p.time_nanos, "samples": p.samples,
                "sample_type": {"type": p.total.0, "unit": p.total.1}, "total": p.total.2,
            });
            if let Some(snapshot) = &p.snapshot {
                row["start_nanos"] = json!(snapshot.start_nanos);
                row["snapshot"] = json!(snapshot.number);
                row["snapshots"] = json!(snapshot.of);
            }
            for (key, value) in [("program", &p.program), ("called", &p.called)] {
                if let Some(value) = value {
                    row[key] = json!(value);
                }
            }
            row
        });
        return crate::json::text(rows.collect::<serde_json::Value>());
    }
    let mut table = Table::new(&[
        ("name", Align::Left),
        ("time", Align::Left),
        ("samples", Align::Right),
        ("type", Align::Left),
        ("total", Align::Right),
    ]);
    // If every process has only one profile, there is no order to tell.
    let series = |p: &StoredProfile| p.snapshot.as_ref().is_some_and(|s| s.of > 1);
    let has_series = profiles.iter().any(series);
    if has_series {
        table.column("snapshot", Align::Left);
    }
    let has_programs = profiles.iter().any(|p| p.program.is_some());
    if has_programs {
        table.column("program", Align::Left);
    }
    for p in profiles {
        let measure = match style.format {
            Format::Csv => Measure::raw(),
            _ => Measure::new(&p.total.1, style.unit.as_deref())?,
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
            let snapshot = p.snapshot.as_ref().filter(|s| s.of > 1);
            cells.push(snapshot.map_or_else(String::new, |s| format!("{} of {}", s.number, s.of)));
        }
        if has_programs {
            let both = [&p.program, &p.called].into_iter().flatten();
            cells.push(both.map(String::as_str).collect::<Vec<_>>().join(" "));
        }
        table.row(cells);
    }
    table.render(style)
}
