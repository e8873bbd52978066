//! `heapprof growth follow`: prints which lines of a recorded process have grown, while it runs.

use std::collections::HashMap;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_analysis::{CodePlace, line_growth::line_growth};
use heapprof_profile::Profile;
use heapprof_report::LineGrowth;

use crate::args::FollowArgs;
use crate::args::record::LineFormat;
use crate::{messages, outside};

/// Shortest time between two readings.
const MIN_READ_INTERVAL: Duration = Duration::from_millis(500);
/// The divisor that limits the cost of reading: reading takes at most 1/`READ_TIME_DIVISOR` of the
/// time.
const READ_TIME_DIVISOR: u32 = 20;
/// Time between two checks whether the process has ended.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(100);

pub(super) fn run(args: &FollowArgs) -> Result<()> {
    let mut watched = outside::find_for_reader(&args.process)?;
    let pid = watched.pid();
    let least = i64::try_from(args.min).unwrap_or(i64::MAX);
    let mut said = ReportedLineSizes::default();
    let mut out = io::stdout().lock();
    let mut is_first = true;
    messages::note(&format!(
        "process {pid}: reporting lines that grow by {} or more",
        heapprof_report::UnitFormatter::new("bytes", None)?.show(least)
    ));
    loop {
        let began = Instant::now();
        match watched.read() {
            Ok(profile) => {
                let is_exact = profile.period == 1;
                let seconds = (profile.duration_nanos as f64 / 1e6).round() / 1e3;
                for (place, bytes) in said.find_grown_lines(profile, least)? {
                    let growth = LineGrowth {
                        process: pid,
                        user: None,
                        place: &place,
                        bytes,
                        is_exact,
                        seconds,
                    };
                    let text = match args.format {
                        LineFormat::Text => growth.text(),
                        LineFormat::Json => growth.json(),
                    };
                    writeln!(out, "{text}").context("standard output")?;
                }
                out.flush().context("standard output")?;
            }
            Err(_) if !watched.is_there() => {
                messages::note(&format!(
                    "process {pid} has ended or executed another program"
                ));
                return Ok(());
            }
            Err(error) => return Err(error.context(format!("process {pid}"))),
        }
        // The first reading names all code, and later readings know these names.
        let share = if is_first { 1 } else { READ_TIME_DIVISOR };
        is_first = false;
        let next = began + MIN_READ_INTERVAL.max(began.elapsed() * share);
        while Instant::now() < next && watched.is_there() {
            std::thread::sleep(END_CHECK_INTERVAL);
        }
    }
}

/// The number of bytes that each line had in use when it was last reported.
#[derive(Default)]
struct ReportedLineSizes(Option<HashMap<CodePlace, i64>>);

impl ReportedLineSizes {
    /// Returns the lines that have grown by at least `least` bytes, with their growth since they
    /// were last reported, or since the first call. The line that has grown most comes first.
    fn find_grown_lines(
        &mut self,
        mut profile: Profile,
        least: i64,
    ) -> Result<Vec<(CodePlace, i64)>> {
        let in_use = profile.find_sample_type("inuse_space")?;
        let samples = &profile.samples;
        let values = (0..samples.len())
            .map(|i| samples.values(i)[in_use])
            .collect();
        profile.samples.set_values(1, values);
        profile.sample_type = vec![profile.sample_type[in_use]];
        let (now, _) = line_growth(&profile)?;
        let Some(said) = &mut self.0 else {
            self.0 = Some(now.into_iter().collect());
            return Ok(Vec::new());
        };
        let mut grown = Vec::new();
        for (place, bytes) in now {
            let before = said.get(&place).copied().unwrap_or(0);
            let growth = bytes.saturating_sub(before);
            if growth >= least {
                said.insert(place.clone(), bytes);
                grown.push((place, growth));
            }
        }
        grown.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Ok(grown)
    }
}

#[cfg(test)]
mod tests {
    use heapprof_profile::ProfileBuilder;

    use super::*;

    #[test]
    fn a_line_is_said_once_it_has_grown_enough() {
        let mut said = ReportedLineSizes::default();
        let mut step = |bytes: i64| {
            let mut builder =
                ProfileBuilder::new(&[("alloc_space", "bytes"), ("inuse_space", "bytes")]);
            builder.add_folded("main;keep", &[1 << 40, bytes]);
            builder.add_folded("main;other", &[5, 5]);
            let grown = said.find_grown_lines(builder.finish(), 100).unwrap();
            grown.into_iter().map(|(_, bytes)| bytes).sum::<i64>()
        };
        let steps = [500, 599, 600, 650, 10, 699, 720];
        assert_eq!(steps.map(&mut step), [0, 0, 100, 0, 0, 0, 120]);
    }
}
