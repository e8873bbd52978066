//! The command line: what can be typed, and what `--help`, man pages and completions say of it.

mod attach;
mod code;
mod color;
mod compare;
mod diff;
mod drop_in;
mod file_mode;
mod files;
mod flame;
mod fork_audit;
mod gate;
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
pub(crate) mod size;
mod stats;
mod store;
mod tui;
pub(crate) mod web;
mod wiretap;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use heapprof_analysis::SortKey;
use heapprof_formats::ValueTypeName;
use heapprof_report::ReportFormat;
use heapprof_stores::StoreBackend;

use crate::name;

pub(crate) use attach::{AttachArgs, DetachArgs};
pub(crate) use code::CodeArgs;
pub(crate) use color::ColorMode;
pub(crate) use compare::{BenchArgs, CompareAllocatorsArgs};
pub(crate) use diff::DiffArgs;
pub(crate) use drop_in::{DropInArgs, help_of};
pub(crate) use file_mode::{FileMode, FileModeArgs};
pub(crate) use files::{ConvertArgs, ConvertFormat, MergeArgs, SymbolizeArgs};
pub(crate) use flame::{FlameArgs, FlameFormat, FlameRoot};
pub(crate) use fork_audit::ForkAuditArgs;
pub(crate) use gate::GateArgs;
pub(crate) use heapwalk::HeapwalkArgs;
pub(crate) use kind::CommandKind;
pub(crate) use leaks::LeaksArgs;
pub(crate) use list::{ListArgs, SourceArgs};
pub(crate) use log::LogArgs;
pub(crate) use output::{OutputArgs, ReportArgs};
pub(crate) use outside::{DumpArgs, FollowArgs, LiveArgs, PsArgs};
pub(crate) use perl_heap::PerlHeapArgs;
pub(crate) use process::{MarkArgs, ProcArgs, ProcessReportArgs, WatchArgs};
pub(crate) use question::{LabelArgs, QuestionArgs};
pub(crate) use record::RecordArgs;
pub(crate) use report::PageArgs;
pub(crate) use reports::{InfoArgs, MatchArgs, TagsArgs, TopArgs, TracesArgs, TreeArgs};
pub(crate) use series::{ExportArgs, GrowthArgs, ImportArgs, OverTimeMode, PruneArgs, SeriesArgs};
use size::size;
pub(crate) use stats::{StatsArgs, TimelineArgs};
pub(crate) use store::{LoadArgs, LsArgs, RmArgs, SchemaArgs, SqlArgs};
pub(crate) use tui::TuiArgs;
pub(crate) use web::WebArgs;
pub(crate) use wiretap::{AliveArgs, ListenArgs, WiretapArgs};

/// The heading of the options that every command has. They come after a command's own options, and
/// only in the long help.
const GLOBAL_OPTIONS_HEADING: &str = "For every command";

/// Reads heap profiles (pprof's format) and says where the memory is
#[derive(Debug, Parser)]
#[command(
    name = "heapprof",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "A PROFILE is a file, - for stdin, an http(s) URL, the name of a profile \
                  loaded into the database, or a selector of such profiles \
                  (service=shop,since=2h). FILE#12, FILE#peak and FILE#last name one of several \
                  profiles in a file. Several profiles are added up. Without a PROFILE, heapprof \
                  reads its newest recording in this folder.\n\nflat is exclusive: what a function \
                  allocated itself. cum is inclusive: what it and all that it called allocated. A \
                  sample counts once, however often the function recurs in it.\n\nExit code: 0 \
                  done, 1 a --fail-if rule broke, 2 it could not be done."
)]
pub(crate) struct Cli {
    /// When to use colour; NO_COLOR is obeyed as well
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = ColorMode::Auto,
        value_name = "WHEN",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    pub(crate) color: ColorMode,

    /// The database that load fills, and in which profile names are looked up [env: HEAPPROF_DB]
    /// [default: heapprof.db]
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    db: Option<PathBuf>,

    /// The most bytes that a profile may inflate to, e.g. 16GiB
    #[arg(
        long,
        global = true,
        value_name = "SIZE",
        default_value = "4GiB",
        value_parser = size,
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    pub(crate) max_inflated: u64,

    /// What the numbers mean if the file does not say it, e.g. inuse_space/bytes (folded stacks,
    /// bpftrace, dtrace, perf script, google-pprof --raw)
    #[arg(
        long,
        global = true,
        value_name = "TYPE/UNIT",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    pub(crate) values: Option<ValueTypeName>,

    /// Add up several moments of one process, although what they have in common counts more than
    /// once
    #[arg(long, global = true, help_heading = GLOBAL_OPTIONS_HEADING, hide_short_help = true)]
    pub(crate) sum: bool,

    /// With a SELECTOR of stored moments: which values in use to show of a time with several
    /// moments: last, mean or max
    #[arg(
        long,
        global = true,
        value_enum,
        default_value_t = OverTimeMode::Last,
        value_name = "WHICH",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    pub(crate) over_time: OverTimeMode,

    /// Look selectors and names up in what export --parquet wrote, instead of the database: a
    /// folder, s3://BUCKET/PREFIX or http(s)://HOST/FOLDER
    #[arg(
        long,
        global = true,
        value_name = "DIR|URL",
        conflicts_with = "store",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    from: Option<PathBuf>,

    /// Keep and look up profiles in this ClickHouse instead of the database:
    /// clickhouse://HOST:PORT/DB; HEAPPROF_STORE_USER and HEAPPROF_STORE_PASSWORD say who asks
    #[arg(
        long,
        global = true,
        value_name = "URL",
        help_heading = GLOBAL_OPTIONS_HEADING,
        hide_short_help = true
    )]
    store: Option<String>,

    #[command(subcommand)]
    pub(crate) command: CliCommand,
}

impl Cli {
    /// Where stored moments are looked up.
    pub(crate) fn backend(&self) -> StoreBackend {
        match (&self.from, &self.store) {
            (Some(place), _) => StoreBackend::Batches(place.clone()),
            (None, Some(address)) => StoreBackend::ClickHouse(address.clone()),
            (None, None) => StoreBackend::Database(self.db()),
        }
    }

    /// The database that was typed.
    pub(crate) fn typed_db(&self) -> Option<&Path> {
        self.db.as_deref()
    }

    /// The database: as typed, otherwise as the environment says (an empty variable says nothing),
    /// otherwise in the current folder.
    pub(crate) fn db(&self) -> PathBuf {
        let set = || std::env::var_os("HEAPPROF_DB").filter(|db| !db.is_empty());
        let db = self.db.clone().or_else(|| Some(set()?.into()));
        db.unwrap_or_else(|| "heapprof.db".into())
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Run a program and record its heap
    #[command(
        after_help = "An OUT that ends in .pb.gz or holds % is a file pattern: %p is the process, \
                      %e the name by which the program was started, %n the number of the dump. If \
                      OUT is a plain name, the profile of the program's last image gets it, those \
                      of earlier images get NAME.PID.N.pb.gz, and dumps on the way get a number. \
                      The profiles of children are in the folder NAME.children, by program and \
                      process. Any other OUT is a folder. The default is heapprof.%e.%p.pb.gz in \
                      this folder.\n\nThe exit code is the program's: 128 + N if signal N ended \
                      it, 127 if it is not found, 126 if it cannot be executed.\n\nExample: \
                      heapprof record -- ./server --port 8080"
    )]
    Record(RecordArgs),
    /// Functions by the memory they hold
    #[command(after_help = "Example: heapprof top --sort cum -n 10 profile.pb.gz")]
    Top(TopArgs),
    /// The call tree, from the roots down or from the leaves up
    #[command(after_help = "Example: heapprof tree --min-percent 5 profile.pb.gz")]
    Tree(TreeArgs),
    /// Callers and callees of the functions that match
    #[command(after_help = "Example: heapprof peek 'parseExpr$' profile.pb.gz")]
    Peek(MatchArgs),
    /// Source lines of the functions that match, with their values
    #[command(
        after_help = "Example: heapprof list 'parser.*parseIdent$' --source-path ~/go/src \
                      profile.pb.gz"
    )]
    List(ListArgs),
    /// Each stack with its labels and value, the largest first
    #[command(after_help = "Example: heapprof traces -n 3 profile.pb.gz")]
    Traces(TracesArgs),
    /// What each label's values are worth
    #[command(after_help = "Example: heapprof tags profile.pb.gz")]
    Tags(TagsArgs),
    /// What a profile holds: types, totals, period, time, mappings, comments, symbols
    #[command(after_help = "Example: heapprof info profile.pb.gz")]
    Info(InfoArgs),
    /// Totals, mean and median sizes, a histogram of sizes, and the first functions
    #[command(after_help = "Example: heapprof stats profile.pb.gz")]
    Stats(StatsArgs),
    /// The heap over time: of one recording, or of a series of profiles
    #[command(
        after_help = "One profile shows the history that record noted in it. Several profiles, or \
                      a folder of them, are one moment each.\n\nExample: heapprof timeline \
                      profile.pb.gz"
    )]
    Timeline(TimelineArgs),
    /// What is in use at exit, by stack, with objects and their mean size
    #[command(
        mut_arg("granularity", |arg| arg.default_value("lines")),
        mut_arg("sample_type", |arg| arg.help("What to order by: inuse_space or inuse_objects")),
        after_help = "Rules of --fail-if: 'inuse_space > 1MiB' or 'inuse_objects > 0' is about all \
                      that is not suppressed, 'flat(REGEX) > 64KiB' and 'cum(REGEX) > 64KiB' about \
                      each function that matches.\n\nExample: heapprof leaks --suppressions \
                      known.supp --fail-if 'inuse_objects > 0' profile.pb.gz"
    )]
    Leaks(LeaksArgs),
    /// What grew, shrank, is new or gone between two profiles
    #[command(
        after_help = "Rules of --fail-if: 'inuse_space > +10%' or '> +5MiB' is about the total's \
                      growth, 'inuse_space > 1GiB' about the total after; 'flat(REGEX) > +1MiB' \
                      and 'cum(REGEX) > +20%' about each function that matches; 'new > 1MiB' about \
                      functions that were not there before.\n\nExample: heapprof diff before.pb.gz \
                      after.pb.gz --fail-if 'inuse_space > +10%'"
    )]
    Diff(DiffArgs),
    /// What forked children load too late, and whose memory they copy
    #[command(
        after_help = "With -- CMD the program is recorded with all that it forks, and the report \
                      comes when it has ended; the exit code is the program's unless that is 0. \
                      Rules of --fail-if: 'loaded > 0' (files), 'loaded > 1MiB' (bytes), 'missing \
                      > 0', and of the child that has most of it 'copied > 20MiB', 'new > 5MiB', \
                      'private_dirty > 30MiB'.\n\nExample: heapprof fork-audit -o audit -- \
                      starman app.psgi"
    )]
    ForkAudit(ForkAuditArgs),
    /// A flame graph as one SVG file
    #[command(
        after_help = "Example: heapprof flame profile.pb.gz > out.svg\n         \
heapprof flame --base before.pb.gz after.pb.gz > diff.svg"
    )]
    Flame(FlameArgs),
    /// A page to look at: one HTML file with flame graph, table, treemap, timeline and differences
    #[command(
        after_help = "With one profile the page opens on the flame graph. With --base it shows the \
                      difference. Several profiles, or a folder of them, are moments of a series \
                      and are not added up. Text of source lines is left out unless --source is \
                      given.\n\nExample: heapprof report -o report.html profile.pb.gz"
    )]
    Report(PageArgs),
    /// The page of report from a server, which answers from the whole profile
    #[command(
        after_help = "The page is served to this machine only, and only to whoever has the token \
                      of the printed address. Several profiles, or a folder of them, are moments \
                      of a series. DB, the file of a database, offers all of its profiles. Other \
                      programs can ask it, too: docs/web-api.md describes the answers, which are \
                      JSON. Ctrl-C ends it.\n\nExample: heapprof web profile.pb.gz"
    )]
    Web(WebArgs),
    /// A profile in the terminal: table, tree, curve and growth, by keys
    #[command(
        after_help = "Several profiles, or a folder of them, are moments of a series and are not \
                      added up; [ and ] go from one to the next. The key ? shows all keys. \
                      heapprof record --live shows a program while it runs.\n\nExample: heapprof \
                      tui profile.pb.gz"
    )]
    Tui(TuiArgs),
    /// A recorded process in the terminal, while it runs
    #[command(
        after_help = "The process is read from outside: it is not stopped, and goes on when the \
                      view ends. heapprof ps shows which processes are recorded. The key ? shows \
                      all keys.\n\nExample: heapprof live 1234"
    )]
    Live(LiveArgs),
    /// Say which lines of a recorded process have grown, while it runs
    #[command(
        after_help = "The process is read from outside, twice a second. record --follow-lines says \
                      the same of a program that it starts, and misses nothing between two \
                      readings.\n\nExample: heapprof follow 1234 --min 10MiB"
    )]
    Follow(FollowArgs),
    /// Write a profile of what a recorded process holds now
    #[command(
        after_help = "The process is read from outside: it is not stopped, and does nothing for \
                      it. Every command takes pid:NUMBER or pid:NAME as a PROFILE, too, and \
                      core:FILE for the core file of a recorded program.\n\nExample: heapprof dump \
                      1234 -o now.pb.gz"
    )]
    Dump(DumpArgs),
    /// Record a program that runs already, from now on
    #[command(
        after_help = "The program goes on: one thread of it is held for some milliseconds, and \
                      loads libheapprof.so. Blocks from before are not in the profile. While \
                      heapprof attach runs, every command takes pid:PID as a PROFILE. The profile \
                      is written at the end: after --for, at Ctrl-C, or when the program ends. \
                      \n\nExample: heapprof attach 1234 --for 10s -o now.pb.gz"
    )]
    Attach(AttachArgs),
    /// Leave a program that heapprof attach has not left by itself
    #[command(after_help = "Example: heapprof detach 1234")]
    Detach(DetachArgs),
    /// List the recorded processes of this machine
    #[command(after_help = "Example: heapprof ps")]
    Ps(PsArgs),
    /// What of a process's heap, or of a core file's, has leaked, and who points where (glibc)
    #[command(
        after_help = "A process is held only as long as its memory is copied, which the first \
                      lines say. Nothing needs to have been recorded; if it was, the profile has \
                      the stacks that allocated what leaked.\n\nExample: heapprof heapwalk pid:1234"
    )]
    Heapwalk(HeapwalkArgs),
    /// What holds the memory in a Perl program: every value by its path, from outside
    #[command(
        after_help = "TARGET is a process, a core file, or a file of Devel::MAT (.pmat). A process \
                      is held only as long as its memory is copied. Nothing is loaded into it. The \
                      profile has each value's path as its stack, so top, diff, flame, report and \
                      sql answer the rest.\n\nExample: heapprof perl-heap pid:1234 -o h.pb.gz"
    )]
    PerlHeap(PerlHeapArgs),
    /// The memory of a process as the kernel sees it, explained; without PROCESS, of all processes
    #[command(
        after_help = "PROCESS is a number, or a name that one process has. The parts add up to the \
                      kernel's own sums (smaps_rollup). Without rights, what can be had is shown, \
                      and what is missing is said.\n\nExample: heapprof proc 1234"
    )]
    Proc(ProcArgs),
    /// Write down what a process and its children have in memory, over time
    #[command(
        after_help = "A row for each process and moment goes into the database (tables watch, \
                      watch_process, watch_moment, watch_event). At the end, a chart and the marks \
                      are shown. Names of --until are rss, pss, uss, swap, size (addresses), data \
                      and threads, of one process; total_rss and so on are of all of them.\n\n\
                      Example: heapprof watch 1234 --until 'rss > 2GiB' --then 'gcore {pid}'"
    )]
    Watch(WatchArgs),
    /// Tell a watch that something begins here
    #[command(after_help = "Example: heapprof mark 'cache is warm'")]
    Mark(MarkArgs),
    /// What another malloc would cost and save: time, memory, faults
    #[command(
        after_help = "Each run is measured whole: time, memory, faults and switches are the \
                      kernel's. A difference is told if it is more than noise. One run more, which \
                      is recorded, tells how much of the memory was in use.\n\nExample: heapprof \
                      compare-allocators --allocators glibc,jemalloc,glibc:arena_max=1 -- ./server \
                      --once"
    )]
    CompareAllocators(CompareAllocatorsArgs),
    /// The peak of each candidate, to the byte
    #[command(
        after_help = "Every allocation is recorded, so a peak of a millisecond counts. \
                      \n\nExample: heapprof bench --perl 'my @a = 1 .. 1e5' 'my %h = map { $_ => 1 \
                      } 1 .. 1e5'"
    )]
    Bench(BenchArgs),
    /// Collect what programs say of the code that runs (heapprof_alive)
    #[command(after_help = "Example: heapprof listen --udp 127.0.0.1:4711")]
    Listen(ListenArgs),
    /// Say that code runs, to where HEAPPROF_WIRETAP says
    #[command(after_help = "Example: heapprof alive backup.weekly --site backup.sh:12")]
    Alive(AliveArgs),
    /// Which code ran, where and when last; and which never did
    #[command(after_help = "Example: heapprof wiretap --expect codes.txt --since 30d")]
    Wiretap(WiretapArgs),
    /// Put profiles into the database
    #[command(
        after_help = "Example: heapprof load monday.pb.gz tuesday.pb.gz && heapprof diff monday \
                      tuesday"
    )]
    Load(LoadArgs),
    /// List the profiles of the database
    #[command(after_help = "Example: heapprof ls")]
    Ls(LsArgs),
    /// List the series of the database: whose moments it has, and from when
    #[command(
        after_help = "A SELECTOR is KEY=VALUE, KEY!=VALUE, KEY~REGEX or KEY!~REGEX, several with \
                      commas between them; since=2h, until=2026-11-20 and last=60 (moments of each \
                      process) say when.\n\nExample: heapprof series service=shop"
    )]
    Series(SeriesArgs),
    /// What grows over all moments of a series: functions or stacks, with slope and verdict
    #[command(
        after_help = "Rows that grow steadily come first. What levels off is bounded, such as a \
                      cache that is full.\n\nExample: heapprof growth service=shop,since=2d"
    )]
    Growth(GrowthArgs),
    /// Thin out old moments of the database, put them together, or remove them
    #[command(
        after_help = "What no --keep keeps is removed.\n\nExample: heapprof prune service=shop \
                      --keep 7d --keep 1h=30d --keep 1d=365d"
    )]
    Prune(PruneArgs),
    /// Write profiles of the database as files of Parquet, for other engines
    #[command(
        after_help = "Engines such as DuckDB, DataFusion, Spark and ClickHouse read the files. A \
                      batch that was not finished is not read.\n\nExample: heapprof export \
                      service=shop --parquet fleet"
    )]
    Export(ExportArgs),
    /// Load the profiles of a folder that export wrote
    #[command(after_help = "Example: heapprof import fleet")]
    Import(ImportArgs),
    /// Remove profiles from the database and give their space back
    #[command(after_help = "Example: heapprof rm monday")]
    Rm(RmArgs),
    /// Ask SQL of the database, or of profiles
    #[command(
        after_help = "heapprof schema shows the tables.\n\nExample: heapprof sql -p profile.pb.gz \
                      \"SELECT name, flat FROM function_total t JOIN function f ON f.id = \
                      t.function JOIN sample_type s ON s.id = t.type WHERE s.type = 'inuse_space' \
                      ORDER BY flat DESC LIMIT 5\""
    )]
    Sql(SqlArgs),
    /// Show the tables that sql can read
    #[command(after_help = "Example: heapprof schema")]
    Schema(SchemaArgs),
    /// Add profiles up into one file
    #[command(after_help = "Example: heapprof merge -o sum.pb.gz one.pb.gz two.pb.gz")]
    Merge(MergeArgs),
    /// Write a profile in another form
    #[command(after_help = "Example: heapprof convert --to folded profile.pb.gz | head")]
    Convert(ConvertArgs),
    /// Give addresses functions, files, lines and inlined frames
    #[command(
        after_help = "Without -o the file is replaced. Debug files are looked for beside the \
                      binary, by build id and .gnu_debuglink, in each --debug-dir and below \
                      /usr/lib/debug. A file whose build id is not the profile's is not \
                      used.\n\nExample: heapprof symbolize heapprof.server.4711.pb.gz"
    )]
    Symbolize(SymbolizeArgs),
    /// Take pprof's flags and print pprof's output, byte for byte
    #[command(disable_help_flag = true, after_help = heapprof_dropin::pprof_help())]
    Pprof(DropInArgs),
    /// Take jeprof's options and print its numbers and its text
    #[command(disable_help_flag = true, after_help = heapprof_dropin::jeprof_help())]
    Jeprof(DropInArgs),
    /// Print where libheapprof.so, or its C header, is on this machine
    #[command(
        after_help = "To record without record: HEAPPROF_OUTPUT=server.%p.pb.gz \
                      LD_PRELOAD=$(heapprof preload-path) ./server\n\nExample: heapprof \
                      preload-path --header"
    )]
    PreloadPath {
        /// Print the header's path instead of the library's
        #[arg(long)]
        header: bool,
    },
    /// Build the Perl module Devel::HeapProf for a perl
    #[command(
        after_help = "heapprof shows subs and lines without the module. It lets a program start \
                      and dump recordings itself, and it makes perls readable whose structures \
                      heapprof does not know. This needs make, a C compiler and the headers of \
                      that perl. Each version of heapprof needs it once.\n\nExample: heapprof \
                      perl-install --perl /opt/perl/bin/perl"
    )]
    PerlInstall {
        /// The perl; the one in PATH unless it is named
        #[arg(long, value_name = "PATH")]
        perl: Option<PathBuf>,
    },
    /// Print completions for a shell
    #[command(after_help = "Example: heapprof completions bash > \
                            ~/.local/share/bash-completion/completions/heapprof")]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page of heapprof or of one command, or write all of them
    #[command(after_help = "Example: heapprof man top | man -l -")]
    Man {
        /// The command to print the page of
        command: Option<String>,
        /// Write all pages into this folder
        #[arg(long, value_name = "DIR", conflicts_with = "command")]
        out: Option<PathBuf>,
    },
}

/// Where profiles come from.
#[derive(Debug, Args)]
pub(crate) struct ProfileArgs {
    /// A file, - for stdin, a URL, pid:PROCESS, core:FILE, or a name in the database; several are
    /// added up
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
    /// The most rows; 0 shows all. The default is 40 on a terminal, otherwise all
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
