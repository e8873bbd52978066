//! `heapprof leaks`: what is in use at exit; with `--fail-if` also whether that is too much.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heapprof_analysis::{Broken, Rule, Suppressions, Types, leaks};

use super::Shared;
use crate::args::LeaksArgs;
use crate::{messages, output};

pub(super) fn run(shared: &Shared, args: &LeaksArgs) -> Result<ExitCode> {
    // What can't be read must not cost the reading of a profile.
    let mut rules = Vec::new();
    for text in &args.fail_if {
        let rule = Rule::parse(text)?;
        rule.of_one_profile()?;
        rules.push(rule);
    }
    let suppressions = suppressions(args)?;
    let mut query = args.question.query();
    let sample_type = query.sample_type.as_deref().unwrap_or("inuse_space");
    if !["inuse_space", "inuse_objects"].contains(&sample_type) {
        bail!(
            "--sample-type {sample_type:?}: leaks is about what is in use; \
             inuse_space or inuse_objects says what to order by"
        );
    }
    query.sample_type = Some(sample_type.to_string());
    query.limit = shared.limit(&args.limit, &args.report);

    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let sources = vec![shared.sources.read(&names)?];
    let session = shared.session(sources, &query, Types::InUse, |question| {
        question.with_suppressions(&suppressions)
    })?;
    let report = leaks(&session, &query, &suppressions)?;
    let mut broken: Vec<Broken> = Vec::new();
    for (rule, text) in rules.iter().zip(&args.fail_if) {
        match rule.broken_by(&session, &report)? {
            Some(found) => broken.extend(found),
            None => messages::note(&format!("--fail-if {text:?} matches no function in use")),
        }
    }
    let written = shared.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::leaks(&report, &broken, style, out)?)
    });
    match written {
        // Who stops reading the report still gets the verdict.
        Err(error) if output::is_broken_pipe(&error) => {}
        written => written?,
    }
    for broken in &broken {
        let line = heapprof_report::leaks_broken_line(broken, &report);
        messages::note(&format!("failed: {line}"));
    }
    Ok(match broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

/// The rules of all files, in the order of the command line.
fn suppressions(args: &LeaksArgs) -> Result<Suppressions> {
    let mut suppressions = Suppressions::default();
    for file in &args.suppressions {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| format!("{name}: cannot be read"))?;
        suppressions.read(&name, &String::from_utf8_lossy(&bytes))?;
    }
    Ok(suppressions)
}
