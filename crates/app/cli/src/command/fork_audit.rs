//! `heapprof fork-audit`: reports which files forked children load that their parent should have
//! loaded, and which memory they copy.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::Parser;
use heapprof_analysis::{AnalysisSession, fork_audit::ForkRule, store::ProfileStore};
use heapprof_recorder::recorded_files::{PROFILE_SUFFIX, profiles_of};
use heapprof_report::{ReportFormat, ReportStyle};
use heapprof_stores::make_database;

use super::forks::ask;
use super::record;
use crate::args::record::YesOrNo;
use crate::args::size::size;
use crate::args::{Cli, CliCommand, FileMode, ForkAuditArgs, OutputArgs, ReportArgs};
use crate::context::{CommandContext, DEFAULT_TERMINAL_ROWS, row_limit};
use crate::{messages, name, output};

/// Maximum number of folder names that are tried to find an unused one.
const MAX_FOLDER_ATTEMPTS: u32 = 10_000;

pub(super) fn run(context: &CommandContext, args: &ForkAuditArgs) -> Result<ExitCode> {
    let read = |text: &String| {
        let size = |text: &str| size(text).ok();
        ForkRule::parse(text, size).map_err(messages::rule_error)
    };
    let rules: Vec<ForkRule> = args.fail_if.iter().map(read).collect::<Result<_>>()?;
    if args.command.is_empty() {
        let audited = match args.profiles.as_slice() {
            [] => bail!(
                "neither a folder nor a program is given: heapprof fork-audit -- CMD runs a \
                 program, heapprof fork-audit FOLDER reads what record --fork-audit wrote"
            ),
            named => named,
        };
        return report(context, args, &args.report, audited, &rules, false);
    }
    let folder = match args.report.output.file() {
        Some(folder) => {
            must_be_free(folder)?;
            folder.to_path_buf()
        }
        None => free_folder(&args.command[0])?,
    };
    let ended = record(&folder, args)?;
    let to_stdout = ReportArgs {
        output: OutputArgs::default(),
        ..args.report.clone()
    };
    let folder = [folder.to_string_lossy().into_owned()];
    // Other programs may read what the program itself writes.
    let is_beside = matches!(args.report.format, ReportFormat::Text) && !args.report.show_sql;
    if ended != ExitCode::SUCCESS && profiles_of(&folder[0]).is_err() {
        // The program did not even begin, and the reason was printed.
        return Ok(ended);
    }
    let judged = report(context, args, &to_stdout, &folder, &rules, is_beside)?;
    let quoted = name::quoted(folder[0].as_ref());
    messages::note(&format!(
        "heapprof fork-audit {quoted} shows this again, and heapprof report {quoted} makes a page \
         of it"
    ));
    // The exit code of a failed program comes first.
    Ok(if ended == ExitCode::SUCCESS {
        judged
    } else {
        ended
    })
}

/// Records a program into a folder, and returns the program's exit code.
fn record(folder: &Path, asked: &ForkAuditArgs) -> Result<ExitCode> {
    // A folder whose name ends as a file's name does would be taken for a file.
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot be created", folder.display()))?;
    let mode = format!("--file-mode={:o}", asked.file_mode.mode()?.0);
    let period = asked.period.map(|period| format!("--period={period}"));
    let mut words = vec!["heapprof", "record", "--fork-audit", &mode];
    words.extend(period.as_deref());
    words.extend(asked.python_objects.map(|objects| match objects {
        YesOrNo::Yes => "--python-objects=yes",
        YesOrNo::No => "--python-objects=no",
    }));
    words.extend(asked.perl_install.then_some("--perl-install"));
    words.push("-o");
    let mut words: Vec<&OsStr> = words.into_iter().map(OsStr::new).collect();
    words.extend([folder.as_os_str(), OsStr::new("--")]);
    words.extend(asked.command.iter().map(OsString::as_os_str));
    let cli = Cli::try_parse_from(words)?;
    let color = cli.shared.color();
    match cli.command {
        CliCommand::Record(args) => record::run(&args, color),
        _ => bail!("record was not understood"),
    }
}

/// Fails if a folder already has profiles, because the report would include them in this audit.
fn must_be_free(folder: &Path) -> Result<()> {
    let shown = folder.display();
    let is_used = folder.is_dir() && profiles_of(&folder.to_string_lossy()).is_ok();
    if is_used {
        bail!("{shown}: there are already profiles in it; use another folder, or remove them");
    }
    Ok(())
}

/// Returns an unused folder name for the audit of a program.
fn free_folder(program: &OsStr) -> Result<PathBuf> {
    let own = Path::new(program).file_name().unwrap_or(program);
    let stem = format!("{}.fork-audit", own.to_string_lossy());
    let numbered = (1..MAX_FOLDER_ATTEMPTS).map(|n| match n {
        1 => PathBuf::from(&stem),
        n => PathBuf::from(format!("{stem}.{n}")),
    });
    let mut free = numbered.filter(|path| std::fs::symlink_metadata(path).is_err());
    free.next().with_context(|| {
        format!("{stem}: there are too many folders with this name; give one with -o")
    })
}

/// Reports the audit and judges the rules. If `is_beside` is true, the report goes to stderr,
/// because the program's output is on stdout.
fn report(
    context: &CommandContext,
    args: &ForkAuditArgs,
    report: &ReportArgs,
    audited: &[String],
    rules: &[ForkRule],
    is_beside: bool,
) -> Result<ExitCode> {
    let mut names = Vec::new();
    for name in audited {
        names.extend(profiles_of(name)?);
    }
    let limit = match (args.limit.limit, report.format, report.output.file()) {
        // A reader of a table through a pipe wants it as short as on the screen.
        (None, ReportFormat::Text, None) => Some(DEFAULT_TERMINAL_ROWS),
        _ => row_limit(&args.limit, report.output.file()),
    };
    let (audit, session) = ask(context, &names, limit)?;
    let audited = audited.join(" + ");
    let shown = name::shown(&audited);
    if let Some(db) = context.sources.typed_db() {
        keep(db, args.file_mode.mode()?, &audit_name(&audited), &session)?;
    }
    let text = |style: &ReportStyle| -> Result<String> {
        Ok(heapprof_report::fork_audit(&audit, &shown, limit, style)?)
    };
    let written = match is_beside {
        true => text(&context.style(report)).map(|text| messages::report(&text)),
        false => context.finish(report, &session, text),
    };
    match written {
        // A user who stops reading the report still gets the verdict.
        Err(error) if output::is_broken_pipe(&error) => {}
        written => written?,
    }
    let broken: Vec<_> = rules
        .iter()
        .filter_map(|rule| rule.find_violation(&audit))
        .collect();
    for broken in &broken {
        let line = heapprof_report::fork_violation_line(broken)?;
        messages::note(&format!("failed: {line}"));
    }
    Ok(match broken.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(1),
    })
}

/// Stores an audit in a database.
fn keep(db: &Path, mode: FileMode, name: &str, session: &AnalysisSession) -> Result<()> {
    let named = || db.display().to_string();
    make_database(db, mode.0)?;
    let mut store = ProfileStore::open_or_create(db).with_context(named)?;
    store.keep_audit(name, session).with_context(named)?;
    messages::note(&format!("stored audit {name} in {}", db.display()));
    Ok(())
}

/// Returns the name of an audit in a database: the name of its folder or file, without the ending.
fn audit_name(audited: &str) -> String {
    let path = Path::new(audited).file_name().unwrap_or(audited.as_ref());
    let name = path.to_string_lossy();
    name.strip_suffix(PROFILE_SUFFIX)
        .unwrap_or(&name)
        .to_string()
}
