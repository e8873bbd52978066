//! The report `ps`: the recorded processes of this machine.

use serde_json::json;

use crate::error::ReportError;
use crate::measure::{UnitFormatter, time_utc};
use crate::style::{ReportFormat, ReportStyle};
use crate::table::{ColumnAlign, ReportTable};

/// A recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedProcess {
    /// The pid of the process.
    pub pid: u32,
    /// The program of the process.
    pub program: String,
    /// The script or the title of the process, if it has one. It distinguishes the process from
    /// other processes of the same program.
    pub script_or_title: Option<String>,
    /// The mean number of bytes between samples; 1 if every allocation is counted.
    pub period: u64,
    /// Whether the process is being recorded now.
    pub is_running: bool,
    /// The time when the recording began, in nanoseconds since 1970.
    pub started: i64,
    /// The bytes in use.
    pub in_use: i64,
    /// The largest number of bytes that were in use.
    pub peak: i64,
    /// The resident bytes of the process, if known.
    pub rss: Option<i64>,
    /// The resident bytes of heapprof itself in the process, if known.
    pub own: Option<i64>,
    /// The path of the last profile that the process writes, if known.
    pub file: Option<String>,
}

impl RecordedProcess {
    fn mode(&self, measure: &UnitFormatter) -> String {
        let mode = match self.period {
            1 => "exact".to_string(),
            period => format!("one in {}", measure.show(period)),
        };
        match self.is_running {
            true => mode,
            false => format!("{mode}, stopped"),
        }
    }
}

/// Writes the list of recorded processes.
///
/// # Errors
/// The unit is no unit of bytes.
pub fn recorded_processes(
    processes: &[RecordedProcess],
    style: &ReportStyle,
) -> Result<String, ReportError> {
    if style.format == ReportFormat::Json {
        let rows = processes.iter().map(|p| {
            json!({
                "pid": p.pid, "program": p.program, "called": p.script_or_title,
                "mode": if p.period == 1 { "exact" } else { "sampled" },
                "period": p.period, "recording": p.is_running, "start_nanos": p.started,
                "inuse_space": p.in_use, "peak_space": p.peak, "rss": p.rss,
                "own": p.own, "file": p.file,
            })
        });
        return crate::json::text(rows.collect::<serde_json::Value>());
    }
    let measure = match style.format {
        ReportFormat::Csv => UnitFormatter::raw(),
        _ => UnitFormatter::new("bytes", style.unit.as_deref())?,
    };
    let is_csv = style.format == ReportFormat::Csv;
    let mut table = ReportTable::new(&[
        ("pid", ColumnAlign::Right),
        ("program", ColumnAlign::Left),
        ("mode", ColumnAlign::Left),
        ("since", ColumnAlign::Left),
        ("in use", ColumnAlign::Right),
        ("peak", ColumnAlign::Right),
        ("rss", ColumnAlign::Right),
        ("own", ColumnAlign::Right),
        ("file", ColumnAlign::Left),
    ]);
    if is_csv {
        table.column("called", ColumnAlign::Left);
    }
    for p in processes {
        let program = match &p.script_or_title {
            Some(called) if !is_csv => format!("{} {called}", p.program),
            _ => p.program.clone(),
        };
        let mut cells = vec![
            p.pid.to_string(),
            program,
            p.mode(&measure),
            time_utc(p.started),
            measure.show(p.in_use),
            measure.show(p.peak),
            p.rss.map_or_else(String::new, |rss| measure.show(rss)),
            p.own.map_or_else(String::new, |own| measure.show(own)),
            p.file.clone().unwrap_or_default(),
        ];
        if is_csv {
            cells.push(p.script_or_title.clone().unwrap_or_default());
        }
        table.row(cells);
    }
    table.render(style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_of_one_program_are_told_apart() {
        let worker = |pid, called: Option<&str>| RecordedProcess {
            pid,
            program: "python3".to_string(),
            script_or_title: called.map(str::to_string),
            period: 1,
            is_running: true,
            ..RecordedProcess::default()
        };
        let all = [worker(1, Some("worker.py")), worker(2, None)];
        let written = |format| {
            let style = ReportStyle {
                format,
                ..ReportStyle::default()
            };
            recorded_processes(&all, &style).unwrap()
        };
        let text = written(ReportFormat::Text);
        assert!(text.contains("  python3 worker.py  exact"), "{text}");
        let csv = written(ReportFormat::Csv);
        let last = csv.lines().map(|line| line.rsplit(',').next().unwrap());
        assert_eq!(last.collect::<Vec<_>>(), ["called", "worker.py", ""]);
        let json: serde_json::Value = serde_json::from_str(&written(ReportFormat::Json)).unwrap();
        assert_eq!(json[0]["called"], "worker.py");
        assert_eq!(json[1]["called"], serde_json::Value::Null);
    }
}
