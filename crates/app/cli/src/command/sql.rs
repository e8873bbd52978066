//! `heapprof sql STATEMENT`: runs the user's own SQL statement.

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    TypeSelection,
    statement::{MeasuredPerlCall, UserStatement},
    store::ProfileStore,
};
use heapprof_report::{ReportStyle, result_table, write_result_table};

use crate::args::SqlArgs;
use crate::context::CommandContext;
use crate::output;

pub(super) fn run(context: &CommandContext, args: &SqlArgs) -> Result<()> {
    let query = args.question.query();
    let profiles = context.sources.or_shell_source(&args.profile);
    let has_options = args.question.query_of_all_code() != heapprof_analysis::Query::default();
    if profiles.is_empty() && (has_options || args.question.code.all_code) {
        bail!("filters and other report options need a profile: give it with -p");
    }
    if let Some(answer) = heapprof_stores::query(context.sources.backend(), &args.statement)? {
        return output::write_paged(args.output.file(), |out| {
            Ok(write_result_table(&answer, args.format, out)?)
        });
    }
    let session = match profiles {
        [] => {
            let db = context.sources.db();
            if !db.exists() {
                bail!(
                    "{}: there is no such database; heapprof db load creates it, and -p PROFILE \
                     queries a file",
                    db.display()
                );
            }
            ProfileStore::open(db)
                .and_then(ProfileStore::session_for_statements)
                .with_context(|| db.display().to_string())?
        }
        names => {
            let (mut sources, mut calls) = (Vec::new(), Vec::new());
            for name in names {
                let (source, of_mprof) = context.sources.read_with_calls(name)?;
                sources.push(source);
                calls.extend(of_mprof);
            }
            let session = context.session(sources, &query, TypeSelection::All, |q| q)?;
            if !calls.is_empty() {
                session.add_calls(calls.iter().map(|call| MeasuredPerlCall {
                    function: &call.function,
                    before: call.before,
                    after: call.after,
                }))?;
            }
            session
        }
    };
    let mut statement = UserStatement::new(&session, &args.statement)
        .map_err(with_advice)
        .context("the statement")?;
    let style = ReportStyle {
        format: args.format,
        color: false,
        unit: None,
        ..ReportStyle::default()
    };
    output::write_paged(args.output.file(), |out| {
        result_table(&mut statement, &style, out).context("the statement")
    })
}

/// Adds advice to the error about an unknown table or column: where to find the names.
fn with_advice(error: heapprof_analysis::AnalysisError) -> anyhow::Error {
    let text = error.to_string();
    let is_unknown = ["no such table", "no such column"]
        .iter()
        .any(|why| text.contains(why));
    match is_unknown {
        true => anyhow::anyhow!("{text}; heapprof db schema lists the tables with their columns"),
        false => error.into(),
    }
}
