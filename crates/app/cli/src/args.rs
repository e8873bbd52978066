//! The command line: what can be typed, and what `--help`, man pages and completions say of it.

mod attach;
mod code;
mod color;
mod compare;
mod db;
mod diff;
mod drop_in;
mod file_mode;
mod files;
mod flame;
mod fork_audit;
mod gate;
mod groups;
mod heapwalk;
mod kind;
mod leaks;
mod list;
mod log;
mod output;
mod outside;
mod perl_heap;
mod process;
mod question;
pub(crate) mod record;
pub(crate) mod report;
mod reports;
mod series;
mod setup;
mod shared;
mod shell;
pub(crate) mod size;
mod stats;
mod store;
mod surface;
mod tui;
pub(crate) mod web;
mod why;
mod wiretap;

use clap::{Args, Parser, Subcommand};
use heapprof_analysis::SortKey;
use heapprof_report::ReportFormat;

use crate::name;

pub(crate) use attach::AttachArgs;
pub(crate) use code::CodeArgs;
pub(crate) use color::ColorMode;
pub(crate) use compare::{BenchArgs, CompareAllocatorsArgs};
pub(crate) use db::DbCommand;
pub(crate) use diff::DiffArgs;
pub(crate) use drop_in::{DropInArgs, help_of};
pub(crate) use file_mode::{FileMode, FileModeArgs};
pub(crate) use files::{ConvertArgs, ConvertFormat, MergeArgs, SymbolizeArgs};
pub(crate) use flame::{FlameArgs, FlameFormat, FlameRoot};
pub(crate) use fork_audit::ForkAuditArgs;
pub(crate) use gate::GateArgs;
pub(crate) use groups::{
    BenchCommand, ConvertCommand, GroupArgs, GrowthCommand, HeapArgs, HeapCommand, InfoCommand,
    TreeCommand, WatchCommand,
};
pub(crate) use heapwalk::HeapwalkArgs;
pub(crate) use kind::CommandKind;
pub(crate) use leaks::LeaksArgs;
pub(crate) use list::{BINARY_ADVICE, ListArgs, SourceArgs};
pub(crate) use log::LogArgs;
pub(crate) use output::{OutputArgs, ReportArgs};
pub(crate) use outside::{DumpArgs, FollowArgs, LiveArgs};
pub(crate) use perl_heap::PerlHeapArgs;
pub(crate) use process::{MarkArgs, ProcArgs, ProcessReportArgs, WatchArgs};
pub(crate) use question::{LabelArgs, QuestionArgs};
pub(crate) use record::RecordArgs;
pub(crate) use report::PageArgs;
pub(crate) use reports::{InfoArgs, MatchArgs, TagsArgs, TopArgs, TracesArgs, TreeArgs};
pub(crate) use series::{ExportArgs, GrowthArgs, ImportArgs, OverTimeMode, PruneArgs, SeriesArgs};
pub(crate) use setup::SetupCommand;
pub(crate) use shared::SharedOptions;
pub(crate) use shell::ShellArgs;
pub(crate) use stats::{StatsArgs, TimelineArgs};
pub(crate) use store::{LoadArgs, LsArgs, RmArgs, SchemaArgs, SqlArgs};
pub(crate) use surface::{
    cli_command, current_name, is_command, old_names, parse, shared_options, visible_command,
};
pub(crate) use tui::TuiArgs;
pub(crate) use web::WebArgs;
pub(crate) use why::WhyArgs;
pub(crate) use wiretap::{AliveArgs, AliveCommand, AliveReportArgs, ListenArgs, WiretapArgs};

/// Where is the memory? Records programs, and reads heap profiles of any tool
#[derive(Debug, Parser)]
#[command(
    name = "heapprof",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "A PROFILE is a file, - for stdin, an http(s) URL, the name of a profile in the \
                  database, or a selector of such profiles (service=shop,since=2h). FILE#12, \
                  FILE#peak and FILE#last name one of several profiles in a file. Several profiles \
                  are added up. Without a PROFILE, heapprof reads its newest recording in this \
                  folder.\n\nflat is exclusive: what a function allocated itself. cum is \
                  inclusive: what the function and all functions that it called allocated. A \
                  sample counts once, however often the function recurs in it.\n\nThe exit code is \
                  0 if the command succeeded, 1 if a --fail-if condition was true, and 2 if the \
                  command failed."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) shared: SharedOptions,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a program and record its heap
    #[command(
        after_help = "If OUT contains %, it is a file pattern: %p is the process id, %e the name \
                      by which the program was started, %n the number of the dump. If OUT is a \
                      plain name that ends in .pb.gz, the last profile of the program gets this \
                      name. Profiles from before an exec are named NAME.PID.N.pb.gz, and dumps \
                      while the program runs get a number. Profiles of children are in the folder \
                      NAME.children, by program and process. Any other OUT is a folder. The \
                      default is heapprof.%e.%p.pb.gz in this folder.\n\nThe exit code is the \
                      program's: 128 + N if signal N ended it, 127 if it is not found, 126 if it \
                      cannot be executed.\n\nExample: heapprof record -- ./server --port 8080"
    )]
    Record(RecordArgs),
    /// Functions by the memory they hold
    #[command(after_help = "Example: heapprof top --sort cum -n 10 profile.pb.gz")]
    Top(TopArgs),
    /// The call tree; tree peek: callers, tree traces: stacks
    #[command(after_help = "Example: heapprof tree --min-percent 5 profile.pb.gz")]
    Tree(GroupArgs<TreeArgs, TreeCommand>),
    #[command(skip)]
    TreePart(TreeCommand),
    /// Source lines of functions that match, with their values
    #[command(
        after_help = "Example: heapprof list 'parser.*parseIdent$' --source-path ~/go/src \
                      profile.pb.gz"
    )]
    List(ListArgs),
    /// What a profile contains; info stats and tags show totals
    #[command(after_help = "Example: heapprof info profile.pb.gz")]
    Info(GroupArgs<InfoArgs, InfoCommand>),
    #[command(skip)]
    InfoPart(InfoCommand),
    /// What is in use at the end, by stack, with object counts
    #[command(
        mut_arg("granularity", |arg| arg.default_value("lines")),
        mut_arg("sample_type", |arg| arg.help("What to order by: inuse_space or inuse_objects")),
        after_help = "Rules of --fail-if: 'inuse_space > 1MiB' and 'inuse_objects > 0' test the \
                      sum of all stacks that are not suppressed; 'flat(REGEX) > 64KiB' and \
                      'cum(REGEX) > 64KiB' test each function that matches.\n\nExample: heapprof \
                      leaks --suppressions known.supp --fail-if 'inuse_objects > 0' profile.pb.gz"
    )]
    Leaks(LeaksArgs),
    /// What grew, shrank, came or went between two profiles
    #[command(
        after_help = "Rules of --fail-if: 'inuse_space > +10%' and 'inuse_space > +5MiB' test the \
                      growth of the total; 'inuse_space > 1GiB' tests the total of the second \
                      profile; 'flat(REGEX) > +1MiB' and 'cum(REGEX) > +20%' test each function \
                      that matches; 'new > 1MiB' tests functions that are only in the second \
                      profile. With rules, diff compares what is in use; -t peak compares \
                      peaks.\n\nExample: heapprof diff before.pb.gz after.pb.gz --fail-if \
                      'inuse_space > +10%'"
    )]
    Diff(DiffArgs),
    /// What forked children load late and copy from the parent
    #[command(
        after_help = "With -- CMD, the program is recorded with all processes that it forks, and \
                      the report is shown when the program has ended. If the exit code of the \
                      program is not 0, it is also that of fork-audit. Rules of --fail-if: 'loaded \
                      > 0' (files), 'loaded > 1MiB' (bytes) and 'missing > 0' test all children \
                      together; 'copied > 20MiB', 'new > 5MiB' and 'private_dirty > 30MiB' test \
                      the child with the largest value.\n\nExample: heapprof fork-audit -o audit \
                      -- starman app.psgi"
    )]
    ForkAudit(ForkAuditArgs),
    /// A flame graph as one SVG file
    #[command(
        after_help = "Example: heapprof flame profile.pb.gz > out.svg\n         \
heapprof flame --base before.pb.gz after.pb.gz > diff.svg"
    )]
    Flame(FlameArgs),
    /// A report page for the browser, as one HTML file
    #[command(
        after_help = "For one profile, the page opens with the flame graph. With --base, it shows \
                      the difference. Several profiles, or the profiles in a folder, are moments \
                      of a series and are not added up. The text of source lines is left out \
                      unless --source is given.\n\nExample: heapprof report -o report.html \
                      profile.pb.gz"
    )]
    Report(PageArgs),
    /// The report page, from a server with the whole profile
    #[command(
        after_help = "The server answers only this machine, and only requests with the token in \
                      the printed address. Several profiles, or the profiles in a folder, are \
                      moments of a series. If PROFILE is the file of a database, the page offers \
                      all profiles in it. Other programs can query the server, too: \
                      docs/web-api.md describes the answers, which are JSON. Ctrl-C ends the \
                      server.\n\nExample: heapprof web profile.pb.gz"
    )]
    Web(WebArgs),
    /// Browse a profile or a recorded process in the terminal
    #[command(
        after_help = "Several profiles, or the profiles in a folder, are moments of a series and \
                      are not added up. The keys [ and ] show the previous and the next moment. \
                      The key ? shows all keys. heapprof record --live shows a program while it \
                      runs.\n\nExample: heapprof tui profile.pb.gz"
    )]
    Tui(TuiArgs),
    /// Commands one after the other, about one source
    #[command(
        after_help = "Type commands without heapprof: top, list parse, diff old.pb.gz new.pb.gz. \
                      A command that names no profile is about the source. > FILE \
                      writes a report into a file. The keys Tab and Up help.\n\nExample: \
                      heapprof shell profile.pb.gz"
    )]
    Shell(ShellArgs),
    /// A recorded process in the terminal, while it runs
    #[command(
        after_help = "The process is read from outside. It is not stopped, and it continues when \
                      the view ends. heapprof proc --recorded lists the recorded processes. The \
                      key ? shows all keys.\n\nExample: heapprof tui 1234"
    )]
    Live(LiveArgs),
    /// Write a profile of what a recorded process has in use now
    #[command(
        after_help = "The process is read from outside. It is not stopped, and it does no work for \
                      the dump. Every command also takes pid:NUMBER or pid:NAME as a PROFILE, and \
                      core:FILE for the core file of a recorded program.\n\nExample: heapprof dump \
                      1234 -o now.pb.gz"
    )]
    Dump(DumpArgs),
    /// Record a program that is already running, from now on
    #[command(
        after_help = "The program keeps running: attach suspends one thread for some milliseconds, \
                      in which this thread loads libheapprof.so. Blocks that were allocated \
                      earlier are not in the profile. While heapprof attach runs, every command \
                      takes pid:PID as a PROFILE. The profile is written at the end: after --for, \
                      at Ctrl-C, or when the program ends.\n\nExample: heapprof attach 1234 --for \
                      10s -o now.pb.gz"
    )]
    Attach(AttachArgs),
    /// What is in a heap: Perl's values, or leaked blocks
    #[command(
        after_help = "heap shows the values of a perl by variable, and of any other program the \
                      blocks that leaked. heap values and heap blocks have more options.\n\n\
                      Example: heapprof heap 1234"
    )]
    Heap(GroupArgs<HeapArgs, HeapCommand>),
    #[command(skip)]
    HeapPart(HeapCommand),
    /// Where all memory of a process, command or profile is
    #[command(
        after_help = "TARGET is a process by its id, a profile, core:FILE, or the name of one of \
                      your processes. A process is suspended once, while its memory is copied; \
                      nothing is loaded into it. The parts add up to its resident memory. With -- \
                      COMMAND, the command is recorded, and the answer is about its peak.\n\n\
                      Example: heapprof why 1234"
    )]
    Why(WhyArgs),
    /// The memory of a process, or of all, as the kernel sees it
    #[command(
        after_help = "PROCESS is a process id, or a name that only one process has. The parts add \
                      up to the kernel's own sums (smaps_rollup). If you lack the rights to read \
                      some values, proc shows the others, and names what is missing.\n\nExample: \
                      heapprof proc 1234"
    )]
    Proc(ProcArgs),
    /// Track the memory of a process and its children over time
    #[command(
        after_help = "Each reading adds a row for each process to the database (tables watch, \
                      watch_process, watch_moment, watch_event). At the end, watch shows a chart \
                      and the marks. Rules of --until use the names rss, pss, uss, swap, size \
                      (addresses), data and threads for one process, and total_rss and so on for \
                      all processes together.\n\nExample: heapprof watch 1234 --until 'rss > 2GiB' \
                      --then 'gcore {pid}'"
    )]
    Watch(GroupArgs<WatchArgs, WatchCommand>),
    #[command(skip)]
    WatchPart(WatchCommand),
    /// Exact peak memory; bench allocators: other mallocs
    #[command(
        after_help = "Every allocation is recorded, so a peak counts even if it lasts only a \
                      millisecond.\n\nExample: heapprof bench --perl 'my @a = 1 .. 1e5' 'my %h = \
                      map { $_ => 1 } 1 .. 1e5'"
    )]
    Bench(GroupArgs<BenchArgs, BenchCommand>),
    #[command(skip)]
    BenchPart(BenchCommand),
    /// Report that code ran, to the address in HEAPPROF_WIRETAP
    #[command(after_help = "Example: heapprof alive backup.weekly --site backup.sh:12")]
    Alive(AliveArgs),
    /// What grows in a series; growth timeline, growth follow
    #[command(
        after_help = "Rows that grow steadily come first. A row that levels off is bounded, such \
                      as a cache that is full.\n\nExample: heapprof growth service=shop,since=2d"
    )]
    Growth(GroupArgs<GrowthArgs, GrowthCommand>),
    #[command(skip)]
    GrowthPart(GrowthCommand),
    /// Keep profiles in a database, and compare their series
    #[command(
        subcommand,
        after_help = "The database is heapprof.db in this folder, or the file of --db or of \
                      HEAPPROF_DB. Reports accept the names of profiles in it.\n\nExample: \
                      heapprof db load monday.pb.gz"
    )]
    Db(DbCommand),
    /// Run an SQL statement on the database, or on profiles
    #[command(
        after_help = "heapprof db schema shows the tables.\n\nExample: heapprof sql -p \
                      profile.pb.gz \"SELECT name, flat FROM function_total t JOIN function f ON f.id = \
                      t.function JOIN sample_type s ON s.id = t.type WHERE s.type = 'inuse_space' \
                      ORDER BY flat DESC LIMIT 5\""
    )]
    Sql(SqlArgs),
    /// Other formats; merge: sums; symbolize: names
    #[command(after_help = "Example: heapprof convert --to folded profile.pb.gz | head")]
    Convert(GroupArgs<ConvertArgs, ConvertCommand>),
    #[command(skip)]
    ConvertPart(ConvertCommand),
    /// Take pprof's flags and print pprof's output, byte for byte
    #[command(disable_help_flag = true, after_help = heapprof_dropin::pprof_help())]
    Pprof(DropInArgs),
    /// Take jeprof's options and print its numbers and its text
    #[command(disable_help_flag = true, after_help = heapprof_dropin::jeprof_help())]
    Jeprof(DropInArgs),
    /// Take the options of gperftools' Perl script
    #[command(disable_help_flag = true, after_help = heapprof_dropin::google_pprof_help())]
    GooglePprof(DropInArgs),
    /// Preload library, Perl module, completions, man pages
    #[command(subcommand, after_help = "Example: heapprof setup completions bash")]
    Setup(SetupCommand),
}

/// Where profiles come from.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// A file, - for stdin, a URL, pid:PROCESS, core:FILE, or a name in the database; several
    /// profiles are added up
    #[arg(value_name = "PROFILE", value_parser = name::parser())]
    pub(crate) profiles: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SortArg {
    /// Order by flat (exclusive) or cum (inclusive)
    #[arg(short, long, value_name = "ORDER", default_value = "flat")]
    pub(crate) sort: SortKey,
}

#[derive(Debug, Args)]
pub(crate) struct LimitArg {
    /// Row limit; 0 shows all rows. The default is 40 on a terminal, otherwise all
    #[arg(short = 'n', long, value_name = "ROWS")]
    pub(crate) limit: Option<usize>,
}

fn format(text: &str) -> Result<ReportFormat, String> {
    text.parse()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_has_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            assert!(
                help.contains("Example: heapprof "),
                "{}",
                command.get_name()
            );
        }
    }
}
