//! `heapprof report`: writes a page that shows everything about profiles.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Parser;
use heapprof_analysis::{
    Granularity, Query, QuestionSource, TreeOptions, TypeSelection, agree, fork_audit::ForkAudit,
    in_order_of_time, report::report,
};
use heapprof_page::{PathRule, ReportPage, SourceFiles, hash_names, page_rows};
use heapprof_recorder::recorded_files;
use heapprof_report::UnitFormatter;
use heapprof_web::{ReportContainer, page};

use super::forks;
use super::view_commands::view_commands;
use crate::args::report::PathNames;
use crate::args::{Cli, CliCommand, PageArgs};
use crate::context::CommandContext;
use crate::{messages, name, output, sources};

/// Smallest number of profiles that are shown as moments over time.
const MIN_SERIES_PROFILES: usize = 3;

pub(super) fn run(context: &CommandContext, args: &PageArgs) -> Result<()> {
    let file = args.output.file();
    if output::is_terminal(file) {
        bail!(
            "the report is a page (HTML); write it to a file: heapprof report -o report.html, or \
             heapprof report > report.html"
        );
    }
    if args.question.granularity != Granularity::Functions {
        bail!("--granularity: the page has functions and their lines; leave it out");
    }
    let query = Query {
        granularity: Granularity::Lines,
        // The page folds libraries itself, so that its reader can show them.
        own_code: false,
        ..args.question.query()
    };
    let named = context.sources.or_newest(&args.profiles.profiles)?;
    let audit = read_audit(context, args, &named)?;
    let names = match &audit {
        Some(audit) => audit.names.clone(),
        None => expand_names(&named)?,
    };
    let sources = match audit.is_some() {
        // The page is about what all children copy.
        true => vec![context.sources.read(&names)?],
        false => read(context, args, &names)?,
    };
    let options = TreeOptions {
        reverse: false,
        least: 0.0,
        most: Some(args.max_nodes.max(1)),
    };
    let session = context.session(sources, &query, TypeSelection::All, |q| {
        q.with_tree(options)
    })?;
    let found = report(&session)?;
    let names_of_types: Vec<&str> = found.types.iter().map(|t| &*t.r#type).collect();
    let asked_type = args.question.sample_type.as_deref().and_then(|asked| {
        let at = heapprof_profile::find_sample_type(&names_of_types, asked).ok()?;
        Some(names_of_types[at].to_string())
    });
    let folders = args.source_files.folders();
    let sources = SourceFiles::new(&folders);
    let mut rows = page_rows(
        found,
        &ReportPage {
            names: &names,
            base: &args.base,
            paths: args.paths.into(),
            sources: args.source.then_some(&sources),
            commands: &view_commands,
        },
    );
    rows.own_code = !args.question.code.all_code;
    if let Some(asked) = asked_type {
        rows.default_type = asked;
    }
    if let Some(audit) = audit {
        let paths = PathRule::new(args.paths.into());
        let path = |path: &str| paths.shown(path);
        let document = heapprof_report::fork_document(&audit.found, &named.join(" + "), &path);
        rows.forks = Some(document.into());
        rows.sql.insert("forks".to_string(), audit.sql);
        let command = format!("heapprof fork-audit {}", name::quoted(named[0].as_ref()));
        rows.commands.insert("forks".to_string(), command);
    }
    if args.anonymize {
        hash_names(&mut rows);
    }
    let container = ReportContainer::pack(&rows).with_context(|| names.join(" + "))?;
    let title = match rows.program.as_str() {
        "" => "heapprof".to_string(),
        program => format!("{program} - heapprof"),
    };
    let page = page(&title, &container);
    output::write(file, |writer| Ok(writer.write_all(page.as_bytes())?))?;
    if let Some(file) = file {
        messages::note(&describe_page(file, &page, &rows, args)?);
    }
    Ok(())
}

/// The audit of forked children in a folder.
struct FolderAudit {
    /// Paths of the profiles of copied memory.
    names: Vec<String>,
    found: ForkAudit,
    sql: String,
}

/// Maximum number of places in an audit that a page shows.
const MAX_AUDIT_PLACES: usize = 500;

/// Reads the fork audit of a folder. Returns `None` if the user named anything but one folder that
/// has an audit.
fn read_audit(
    context: &CommandContext,
    args: &PageArgs,
    named: &[String],
) -> Result<Option<FolderAudit>> {
    let [folder] = named else { return Ok(None) };
    if !args.base.is_empty() || !Path::new(folder).is_dir() {
        return Ok(None);
    }
    let all = recorded_files::profiles_of(folder)?;
    let of_forks = |name: &&String| name.ends_with(forks::AUDIT_SUFFIX);
    let names: Vec<String> = all.iter().filter(of_forks).cloned().collect();
    if names.is_empty() {
        return Ok(None);
    }
    let (found, session) = forks::ask(context, &all, Some(MAX_AUDIT_PLACES))?;
    Ok(Some(FolderAudit {
        names,
        found,
        sql: crate::context::statements(&session),
    }))
}

/// Writes the page of a profile file, as `heapprof report` without options does.
pub(super) fn write_page_of_file(profile: &str, page: &str) -> Result<()> {
    let words = ["heapprof", "report", "-o", page, "--", profile];
    let cli = Cli::try_parse_from(words).context("the report")?;
    let context = CommandContext::new(sources::from_command_line(&cli), cli.shared.color());
    match &cli.command {
        CliCommand::Report(args) => run(&context, args),
        _ => bail!("the report: the arguments belong to another command"),
    }
}

/// Replaces each folder by the profiles in it, as separate profiles.
pub(super) fn expand_names(names: &[String]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for name in names {
        if !Path::new(name).is_dir() {
            all.push(name.clone());
            continue;
        }
        let mut found = recorded_files::list_folder(Path::new(name))?;
        found.retain(|path| {
            path.to_string_lossy()
                .ends_with(recorded_files::PROFILE_SUFFIX)
        });
        recorded_files::must_have_some(name, &found)?;
        all.extend(found.iter().map(|path| path.display().to_string()));
    }
    Ok(all)
}

/// Reads the profiles. With a base, returns two profiles: the sum of the base profiles, and the sum
/// of the other profiles. Without a base, returns each profile as a moment, in the order of time.
fn read(
    context: &CommandContext,
    args: &PageArgs,
    names: &[String],
) -> Result<Vec<QuestionSource>> {
    if !args.base.is_empty() {
        let mut base = context.sources.read(&args.base)?;
        let mut after = context.sources.read(names)?;
        agree(&mut base, &mut after)?;
        return Ok(vec![base, after]);
    }
    let mut sources = context.sources.read_each(names)?;
    in_order_of_time(&mut sources);
    Ok(sources)
}

/// Describes a page that was written: its size, its content, what was left out, and what to do
/// next.
fn describe_page(
    file: &Path,
    page: &str,
    rows: &heapprof_web::WebReport,
    args: &PageArgs,
) -> Result<String> {
    let size = UnitFormatter::new("bytes", None)?.show(i64::try_from(page.len())?);
    let mut said = format!("{}: {size}, {} nodes", file.display(), rows.nodes.len());
    if rows.left_out.nodes > 0 {
        said += &format!(
            " (smaller ones are in {} nodes named (other); --max-nodes shows more)",
            rows.left_out.nodes
        );
    }
    said += match (args.anonymize, args.paths) {
        (true, _) => "; names are hashed",
        (false, PathNames::None) => "; it has the names of functions",
        (false, _) => "; it has the names and paths of functions: --anonymize hashes them",
    };
    if args.source {
        said += "; it also has the text of source lines";
    }
    if rows.snapshots.len() >= MIN_SERIES_PROFILES {
        said += &format!("; {} moments", rows.snapshots.len());
    }
    Ok(said + "; open it in a browser")
}
