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
    /// What it is called.
    pub program: String,
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
                "pid": p.pid, "program": p.program,
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
    for p in processes {
        table.row(vec![
            p.pid.to_string(),
            p.program.clone(),
            p.mode(&measure),
            time_utc(p.started),
            measure.show(p.in_use),
            measure.show(p.peak),
            p.rss.map_or_else(String::new, |rss| measure.show(rss)),
            p.own.map_or_else(String::new, |own| measure.show(own)),
            p.file.clone().unwrap_or_default(),
        ]);
    }
    table.render(style)
}
