//! Runs the command of a command line. Each command has a separate file.

mod alive;
mod attach;
mod bench;
mod compare_allocators;
mod completions;
mod convert;
mod diff;
mod dump;
mod export;
mod flame;
mod follow;
mod fork_audit;
mod forks;
mod gate;
mod growth;
mod heap;
mod heap_run;
mod heapwalk;
mod info;
mod leaks;
mod list;
mod listen;
mod live;
mod load;
mod ls;
mod man;
mod mark;
mod merge;
mod peek;
mod perl_heap;
mod perl_install;
mod preload_path;
mod proc;
mod prune;
mod ps;
mod record;
mod report;
mod rm;
mod schema;
mod series;
mod shell;
mod sql;
mod stats;
mod symbolize;
mod tags;
mod target;
mod timeline;
mod top;
mod traces;
mod tree;
mod tui;
mod view;
mod view_commands;
mod watch;
mod web;
mod why;
mod wiretap;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use heapprof_analysis::series::MomentAggregation;
use heapprof_dropin as dropin;
use heapprof_sources::{ProfileSources, ShellSource};
use heapprof_stores::StoreBackend;

use crate::args::{
    AliveCommand, BenchCommand, Cli, CliCommand, CommandKind, ConvertCommand, DbCommand,
    GrowthCommand, HeapCommand, InfoCommand, LiveArgs, SetupCommand, TreeCommand, WatchCommand,
};
use crate::{context::CommandContext, drop_in::CommandLineHost, outside, sources};

/// Runs the command and returns its exit code.
pub(crate) fn run(cli: Cli) -> Result<ExitCode> {
    let sources = sources::from_command_line(&cli);
    run_on(cli, sources)
}

/// Runs a command of the shell, whose source was read before.
fn run_in_shell(cli: Cli, kept: &Arc<ShellSource>) -> Result<ExitCode> {
    let sources = sources::from_command_line(&cli).with_shell_source(Arc::clone(kept));
    run_on(cli, sources)
}

fn run_on(cli: Cli, sources: ProfileSources) -> Result<ExitCode> {
    let color = cli.shared.color();
    let context = CommandContext::new(sources, color);
    reject_unused_options(&context, &cli.command)?;
    #[cfg(feature = "parquet")]
    if let StoreBackend::Batches(place) = context.sources.backend() {
        crate::panics::exit_on_panic(place);
    }
    let host = |command| CommandLineHost {
        command,
        sources: &context.sources,
        serve: web::serve_for_pprof,
    };
    match cli.command {
        CliCommand::Record(args) => return record::run(&args, color),
        CliCommand::Top(args) => return top::run(&context, &args),
        CliCommand::Tree(args) => tree::run(&context, &args.own)?,
        CliCommand::TreePart(TreeCommand::Peek(args)) => peek::run(&context, &args)?,
        CliCommand::List(args) => list::run(&context, &args)?,
        CliCommand::TreePart(TreeCommand::Traces(args)) => traces::run(&context, &args)?,
        CliCommand::InfoPart(InfoCommand::Tags(args)) => tags::run(&context, &args)?,
        CliCommand::Info(args) => return info::run(&context, &args.own),
        CliCommand::InfoPart(InfoCommand::Stats(args)) => stats::run(&context, &args)?,
        CliCommand::GrowthPart(GrowthCommand::Timeline(args)) => timeline::run(&context, &args)?,
        CliCommand::Leaks(args) => return leaks::run(&context, &args),
        CliCommand::Diff(args) => return diff::run(&context, &args),
        CliCommand::ForkAudit(args) => return fork_audit::run(&context, &args),
        CliCommand::Flame(args) => flame::run(&context, &args)?,
        CliCommand::Report(args) => report::run(&context, &args)?,
        CliCommand::Web(args) => web::run(context, &args)?,
        CliCommand::Tui(args) => match args.profiles.profiles.as_slice() {
            [one] if outside::is_process(one) => {
                let process = one.clone();
                live::run(&context, &LiveArgs { process })?;
            }
            _ => tui::run(&context, &args)?,
        },
        CliCommand::Shell(args) => return shell::run(&context, &cli.shared, &args, run_in_shell),
        CliCommand::Dump(args) => dump::run(&args)?,
        CliCommand::Attach(args) if args.stop => attach::detach(&args.processes)?,
        CliCommand::Attach(args) => attach::run(&args)?,
        CliCommand::GrowthPart(GrowthCommand::Follow(args)) => follow::run(&args)?,
        CliCommand::Live(args) => live::run(&context, &args)?,
        CliCommand::Heap(args) => heap::run(&context, &args.own)?,
        CliCommand::HeapPart(HeapCommand::Blocks(args)) => heapwalk::run(&context, &args)?,
        CliCommand::HeapPart(HeapCommand::Values(args)) => perl_heap::run(&context, &args)?,
        CliCommand::Why(args) => return why::run(&context, &args),
        CliCommand::Proc(args) if args.recorded => ps::run(&args.report)?,
        CliCommand::Proc(args) => proc::run(&context, &args)?,
        CliCommand::Watch(args) => return watch::run(&context, &args.own),
        CliCommand::WatchPart(WatchCommand::Mark(args)) => mark::run(&args)?,
        CliCommand::BenchPart(BenchCommand::Allocators(args)) => {
            compare_allocators::run(&context, &args)?;
        }
        CliCommand::Bench(args) => bench::run(&context, &args.own)?,
        CliCommand::Alive(args) => match (args.command, args.report) {
            (Some(command), _) => return run_alive(&context, &command),
            (None, report) => alive::run(&report.context("give a name for the code")?)?,
        },
        CliCommand::Growth(args) => growth::run(&context, &args.own)?,
        CliCommand::Db(command) => run_db(&context, &command)?,
        CliCommand::Setup(command) => run_setup(&command)?,
        CliCommand::Sql(args) => sql::run(&context, &args)?,
        CliCommand::ConvertPart(ConvertCommand::Merge(args)) => merge::run(&context, &args)?,
        CliCommand::Convert(args) => convert::run(&context, &args.own)?,
        CliCommand::ConvertPart(ConvertCommand::Symbolize(args)) => {
            symbolize::run(&context, &args)?;
        }
        CliCommand::Pprof(args) => dropin::pprof(&host("pprof"), &args.words)?,
        CliCommand::Jeprof(args) => dropin::jeprof(&host("jeprof"), &args.words)?,
        CliCommand::GooglePprof(args) => dropin::google_pprof(&host("google-pprof"), &args.words)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_db(context: &CommandContext, command: &DbCommand) -> Result<()> {
    match command {
        DbCommand::Load(args) => load::run(context, args),
        DbCommand::Ls(args) => ls::run(context, args),
        DbCommand::Series(args) => series::run(context, args),
        DbCommand::Export(args) => export::run(context, args),
        DbCommand::Import(args) => export::import(context, args),
        DbCommand::Prune(args) => prune::run(context, args),
        DbCommand::Rm(args) => rm::run(context, args),
        DbCommand::Schema(args) => schema::run(context, args),
    }
}

fn run_alive(context: &CommandContext, command: &AliveCommand) -> Result<ExitCode> {
    match command {
        AliveCommand::Listen(args) => listen::run(context, args)?,
        AliveCommand::Wiretap(args) => return wiretap::run(context, args),
    }
    Ok(ExitCode::SUCCESS)
}

fn run_setup(command: &SetupCommand) -> Result<()> {
    match command {
        SetupCommand::PreloadPath { header } => preload_path::run(*header),
        SetupCommand::PerlInstall { perl } => perl_install::run(perl.clone()),
        SetupCommand::Completions { shell } => completions::run(*shell),
        SetupCommand::Man { command, out } => man::run(command, out.as_deref()),
    }
}

/// Fails for `--from`, `--store` and `--over-time` with a command that has no use for them.
fn reject_unused_options(context: &CommandContext, command: &CliCommand) -> Result<()> {
    let kind = command.kind();
    let is_list = kind == CommandKind::SeriesList;
    let is_question = kind == CommandKind::ProfileQuestion;
    let (option, is_used) = match (context.sources.backend(), command) {
        (StoreBackend::Database(_), _) => ("", true),
        (StoreBackend::Batches(_), CliCommand::Sql(args)) => ("--from", args.profile.is_empty()),
        (StoreBackend::Batches(_), _) => ("--from", is_question || is_list),
        (StoreBackend::ClickHouse(_), CliCommand::Db(DbCommand::Load(_))) => ("--store", true),
        (StoreBackend::ClickHouse(_), CliCommand::Sql(args)) => {
            ("--store", args.profile.is_empty())
        }
        (StoreBackend::ClickHouse(_), _) => ("--store", is_question || is_list),
    };
    if !is_used {
        bail!("{option} has no effect on this command");
    }
    if is_list && context.sources.over_time() != MomentAggregation::Last {
        bail!("--over-time has no effect on this command");
    }
    Ok(())
}
