//! `heapprof bench`: compares the peak heap of candidates (commands or Perl code). The collector
//! measures each peak, so nothing is polled.

use std::ffi::OsString;

use anyhow::Result;
use heapprof_bench::RunSetup;
use heapprof_report::{CandidatePeaks, PeakComparison};

use super::heap_run::{record_heap, split_words};
use super::proc;
use crate::args::BenchArgs;
use crate::context::CommandContext;
use crate::output;

/// Perl code that allocates memory before a candidate's code runs. It allocates more than perl
/// briefly needs for starting and compiling, so that each peak comes while the candidate's code
/// runs. The empty candidate allocates this memory, too.
const BALLAST: &str =
    "package heapprof; INIT { vec($heapprof::ballast, 1048575, 8) = 0 } package main;";
/// The function in which `BALLAST` allocates.
const BALLAST_FUNCTION: &str = "heapprof::INIT";
/// The directive that numbers the lines of a candidate from 1.
const FIRST_LINE_DIRECTIVE: &str = "#line 1 \"-e\"";

pub(super) fn run(context: &CommandContext, args: &BenchArgs) -> Result<()> {
    let empty = match (&args.empty, args.perl) {
        (Some(empty), _) => Some(empty.as_str()),
        (None, true) => Some(""),
        (None, false) => None,
    };
    let mut all = Vec::new();
    // Candidates that can't be split into words are reported before anything runs.
    for candidate in empty
        .iter()
        .copied()
        .chain(args.candidates.iter().map(String::as_str))
    {
        all.push((candidate, command_words(args, candidate)?));
    }
    let mut found = PeakComparison::default();
    for (i, (candidate, words)) in all.iter().enumerate() {
        let mut peak = CandidatePeaks {
            name: (*candidate).to_string(),
            ..CandidatePeaks::default()
        };
        for _ in 0..args.runs {
            let how = RunSetup {
                command: words,
                shows_output: args.runs_of.show_output,
                ignores_failure: args.runs_of.ignore_failure,
                name: format!("{candidate:?}"),
            };
            let run = record_heap(context, &how, args.perl.then_some(BALLAST_FUNCTION))?;
            if peak.peaks.iter().all(|&before| run.peak > before) {
                peak.most = run.most;
                // A process that did not run `BALLAST` shares nothing with the empty candidate.
                peak.has_empty = run.has_uncounted || !args.perl;
            }
            peak.peaks.push(run.peak);
        }
        match (i, empty) {
            (0, Some(empty)) => {
                let least = peak.peaks.iter().min().copied().unwrap_or(0);
                let name = match empty {
                    "" => "no code".to_string(),
                    empty => empty.to_string(),
                };
                found.empty = Some((name, least));
            }
            _ => found.candidates.push(peak),
        }
    }
    let style = proc::style(context, &args.report);
    let text = heapprof_report::peaks(&found, &style)?;
    output::text(args.report.output.file(), &text)
}

/// Returns the command that runs a candidate.
fn command_words(args: &BenchArgs, candidate: &str) -> Result<Vec<OsString>> {
    if args.perl {
        let words = [
            args.perl_path.as_str(),
            "-e",
            BALLAST,
            "-e",
            FIRST_LINE_DIRECTIVE,
            "-e",
            candidate,
        ];
        return Ok(words.map(OsString::from).to_vec());
    }
    let words = split_words(candidate)?;
    Ok(words.into_iter().map(OsString::from).collect())
}
