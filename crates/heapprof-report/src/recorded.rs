//! `ps`: the recorded processes of this machine.

use serde_json::json;

use crate::error::Error;
use crate::measure::{Measure, time_utc};
use crate::style::{Format, Style};
use crate::table::{Align, Table};

/// A recorded process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedProcess {
    /// Its number.
    pub pid: u32,
    /// Its program.
    pub program: String,
    /// What tells it from others of that program, if anything does: a script, or a title.
    pub called: Option<String>,
    /// Mean bytes between samples; 1 if every allocation is counted.
    pub period: u64,
    /// Whether it is recorded now.
    pub is_running: bool,
    /// When the recording began, in nanoseconds since 1970.
    pub started: i64,
    /// Bytes in use.
    pub in_use: i64,
    /// The most bytes that were in use.
    pub peak: i64,
    /// Bytes in memory, if that is known.
    pub rss: Option<i64>,
    /// Bytes of heapprof's own in memory, if that is known.
    pub own: Option<i64>,
    /// Where its last profile will be, if that is known.
    pub file: Option<String>,
}

impl RecordedProcess {
    fn mode(&self, measure: &Measure) -> String {
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

/// Writes the list.
///
/// # Errors
/// The unit may be no unit of bytes.
pub fn recorded(processes: &[RecordedProcess], style: &Style) -> Result<String, Error> {
    if style.format == Format::Json {
        let rows = processes.iter().map(|p| {
            json!({
                "pid": p.pid, "program": p.program, "called": p.called,
                "mode": if p.period == 1 { "exact" } else { "sampled" },
                "period": p.period, "recording": p.is_running, "start_nanos": p.started,
                "inuse_space": p.in_use, "peak_space": p.peak, "rss": p.rss,
                "own": p.own, "file": p.file,
            })
        });
        return crate::json::text(rows.collect::<serde_json::Value>());
    }
    let measure = match style.format {
        Format::Csv => Measure::raw(),
        _ => Measure::new("bytes", style.unit.as_deref())?,
    };
    let is_csv = style.format == Format::Csv;
    let mut table = Table::new(&[
        ("pid", Align::Right),
        ("program", Align::Left),
        ("mode", Align::Left),
        ("since", Align::Left),
        ("in use", Align::Right),
        ("peak", Align::Right),
        ("rss", Align::Right),
        ("own", Align::Right),
        ("file", Align::Left),
    ]);
    if is_csv {
        table.column("called", Align::Left);
    }
    for p in processes {
        let program = match &p.called {
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
            cells.push(p.called.clone().unwrap_or_default());
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
            called: called.map(str::to_string),
            period: 1,
            is_running: true,
            ..RecordedProcess::default()
        };
        let all = [worker(1, Some("worker.py")), worker(2, None)];
        let written = |format| {
            let style = Style {
                format,
                ..Style::default()
            };
            recorded(&all, &style).unwrap()
        };
        let text = written(Format::Text);
        assert!(text.contains("  python3 worker.py  exact"), "{text}");
        let csv = written(Format::Csv);
        let last = csv.lines().map(|line| line.rsplit(',').next().unwrap());
        assert_eq!(last.collect::<Vec<_>>(), ["called", "worker.py", ""]);
        let json: serde_json::Value = serde_json::from_str(&written(Format::Json)).unwrap();
        assert_eq!(json[0]["called"], "worker.py");
        assert_eq!(json[1]["called"], serde_json::Value::Null);
    }
}
