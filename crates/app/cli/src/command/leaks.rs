//! `heapprof leaks`: reports what is in use at exit; with `--fail-if` also judges it.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    AnalysisSession, ProfileQuestion, Query, QuestionSource, TypeSelection,
    suppression::SuppressionSet,
};
use heapprof_formats::{self as formats, EventLog};
use heapprof_page::LeaksQuestion;

use super::gate::GateRules;
use crate::advice::note_question;
use crate::args::LeaksArgs;
use crate::context::{CommandContext, row_limit};
use crate::messages;

pub(super) fn run(context: &CommandContext, args: &LeaksArgs) -> Result<ExitCode> {
    // The rules are read first, so that a rule that can't be read does not cost the reading of a
    // profile.
    let mut gate = GateRules::for_one_profile(&args.gate)?;
    let query = Query {
        limit: row_limit(&args.limit, args.report.output.file()),
        ..args.question.judged_query(!args.gate.fail_if.is_empty())
    };
    let question = LeaksQuestion::new(query, suppressions(args)?)?;
    let source = match &args.log {
        Some(path) => read_log(context, path)?,
        None => {
            let names = context.sources.or_newest(&args.profiles.profiles)?;
            context.sources.read(&names)?
        }
    };
    let question = question.about(&source);
    let session = question.open(source.clone(), &note_question)?;
    let report = question.rows(&session)?;
    gate.judge("in use", |rule| {
        match rule.judge_leaks(&session, &report)? {
            // The rule is about a total of memory that is not in use, which nothing suppresses.
            None if rule.sample_type().is_some() => {
                let query = question.query();
                let whole = ProfileQuestion::new(vec![source.clone()], query, TypeSelection::All)?;
                Ok(rule.judge_profile(&AnalysisSession::new(whole)?, 1, query)?)
            }
            verdict => Ok(verdict),
        }
    })?;
    let written = context.finish_into(&args.report, &session, |style, out| {
        let broken = gate.in_report(&args.report, style);
        Ok(heapprof_report::leaks(&report, broken, style, out)?)
    });
    gate.end(written, heapprof_report::value_line)
}

/// Reads a log and keeps the blocks that were allocated and never freed.
fn read_log(context: &CommandContext, path: &Path) -> Result<QuestionSource> {
    let name = path.display().to_string();
    let named = || format!("{name}: cannot be read");
    if path == Path::new("-") {
        context.sources.claim_stdin()?;
        let log = formats::read_log(&mut std::io::stdin().lock());
        return profile_from_log("standard input".to_string(), log);
    }
    // A pipe is read while it is written.
    let file = File::open(path).with_context(named)?;
    if file.metadata().with_context(named)?.is_dir() {
        bail!("{name}: is a folder; --log names a file");
    }
    profile_from_log(name, formats::read_log(&mut BufReader::new(file)))
}

/// Turns a log into a profile. Prints a note if the log has gaps.
fn profile_from_log(
    name: String,
    log: Result<EventLog, formats::FormatError>,
) -> Result<QuestionSource> {
    let log = log.with_context(|| name.clone())?;
    if !log.has_program {
        bail!("{name}: has no events: no program was recorded, or it never handed its events over");
    }
    let uncertain = match log.dropped {
        Some(0) => None,
        Some(dropped) => Some(format!("{dropped} events are missing from it")),
        None => Some(
            "events are missing: it is still being written, or heapprof or the program was killed, \
             or lines were removed"
                .to_string(),
        ),
    };
    if let Some(why) = uncertain {
        messages::note(&format!(
            "{name}: {why}; freed blocks may be listed, and leaked ones may be missing"
        ));
    }
    Ok(QuestionSource::new(name, log.profile))
}

/// Reads the suppression rules of all files, in the order of the command line.
fn suppressions(args: &LeaksArgs) -> Result<SuppressionSet> {
    let mut suppressions = SuppressionSet::default();
    for file in &args.suppressions {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| format!("{name}: cannot be read"))?;
        suppressions.read(&name, &String::from_utf8_lossy(&bytes))?;
    }
    Ok(suppressions)
}
