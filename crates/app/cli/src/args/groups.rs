//! Commands that are parts of another command, such as `info stats`. They are parsed there, and run
//! as commands of their own.

use clap::{Args, Subcommand};

use super::{
    CliCommand, CompareAllocatorsArgs, FollowArgs, HeapwalkArgs, MarkArgs, MatchArgs, MergeArgs,
    PerlHeapArgs, StatsArgs, SymbolizeArgs, TagsArgs, TimelineArgs, TracesArgs,
};

#[derive(Debug, Subcommand)]
pub(crate) enum InfoCommand {
    /// Totals, mean and median sizes, and a histogram of sizes
    #[command(after_help = "Example: heapprof info stats profile.pb.gz")]
    Stats(StatsArgs),
    /// How the memory divides among the values of each label
    #[command(after_help = "Example: heapprof info tags profile.pb.gz")]
    Tags(TagsArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum TreeCommand {
    /// Callers and callees of the functions that match
    #[command(after_help = "Example: heapprof tree peek 'parseExpr$' profile.pb.gz")]
    Peek(MatchArgs),
    /// Each stack with its labels and value, the largest first
    #[command(after_help = "Example: heapprof tree traces -n 3 profile.pb.gz")]
    Traces(TracesArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum GrowthCommand {
    /// The heap over time, in a recording or in several profiles
    #[command(
        after_help = "For one profile, timeline shows the history that record noted in it. \
                            Each of several profiles, or of the profiles in a folder, is one \
                            moment.\n\nExample: heapprof growth timeline profile.pb.gz"
    )]
    Timeline(TimelineArgs),
    /// Report which lines of a recorded process grow
    #[command(
        after_help = "The process is read from outside, twice a second. record \
                            --follow-lines prints the same reports for a program that it starts, \
                            and misses no growth between two readings.\n\nExample: heapprof \
                            growth follow 1234 --min 10MiB"
    )]
    Follow(FollowArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConvertCommand {
    /// Add profiles up into one file
    #[command(after_help = "Example: heapprof convert merge -o sum.pb.gz one.pb.gz two.pb.gz")]
    Merge(MergeArgs),
    /// Give addresses functions, files, lines and inlined frames
    #[command(
        after_help = "Without -o, the file is replaced. symbolize searches for debug files beside \
                      the binary, in each --debug-dir and below /usr/lib/debug, by build id and \
                      .gnu_debuglink. It does not use a file whose build id differs from the one \
                      in the profile.\n\nExample: heapprof convert symbolize \
                      heapprof.server.4711.pb.gz"
    )]
    Symbolize(SymbolizeArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    /// What another malloc would cost and save
    #[command(
        after_help = "Each run is measured as a whole, with the kernel's values of time, memory, \
                      page faults and context switches. A difference is shown if it is larger than \
                      the noise. One further run is recorded. It shows how much of the memory was \
                      in use.\n\nExample: heapprof bench allocators --allocators \
                      glibc,jemalloc,glibc:arena_max=1 -- ./server --once"
    )]
    Allocators(CompareAllocatorsArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum WatchCommand {
    /// Add a mark to a watch: something begins here
    #[command(after_help = "Example: heapprof watch mark 'cache is warm'")]
    Mark(MarkArgs),
}

#[derive(Debug, Subcommand)]
pub(crate) enum HeapCommand {
    /// Leaked blocks in the heap of any process or core file
    #[command(
        after_help = "A process is suspended only while its memory is copied. A line shows how \
                      long this took. The process does not have to be recorded. If it is, the \
                      profile of -o has the stacks that allocated the blocks.\n\nExample: heapprof \
                      heap blocks pid:1234"
    )]
    Blocks(HeapwalkArgs),
    /// Which variables hold the memory of a Perl program
    #[command(
        after_help = "TARGET is a process, a core file, or a file of Devel::MAT (.pmat). A process \
                      is suspended only while its memory is copied. Nothing is loaded into it. In \
                      the profile, the stack of a value is its path, so you can use top, diff, \
                      flame, report and sql on it.\n\nExample: heapprof heap values pid:1234 -o \
                      h.pb.gz",
        mut_arg("limit", |arg| arg.help("Row limit; 0 shows all rows [default: 20]"))
    )]
    Values(PerlHeapArgs),
}

/// The heap of a program: of a perl its values, of any other program its blocks.
#[derive(Debug, Args)]
pub(crate) struct HeapArgs {
    /// The process or core file to read: pid:NUMBER, pid:NAME, NUMBER or core:FILE
    #[arg(value_name = "TARGET", value_parser = crate::name::parser(), required = true)]
    pub(crate) target: Option<String>,
}

/// A command with parts that are commands of their own.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct GroupArgs<Own: Args, Part: Subcommand> {
    #[command(subcommand)]
    pub(crate) part: Option<Box<Part>>,
    #[command(flatten)]
    pub(crate) own: Own,
}

impl CliCommand {
    /// Returns the command that a part of another command is.
    pub(crate) fn ungrouped(mut self) -> Self {
        let part = match &mut self {
            Self::Info(group) => group.part.take().map(|part| Self::InfoPart(*part)),
            Self::Tree(group) => group.part.take().map(|part| Self::TreePart(*part)),
            Self::Growth(group) => group.part.take().map(|part| Self::GrowthPart(*part)),
            Self::Convert(group) => group.part.take().map(|part| Self::ConvertPart(*part)),
            Self::Watch(group) => group.part.take().map(|part| Self::WatchPart(*part)),
            Self::Bench(group) => group.part.take().map(|part| Self::BenchPart(*part)),
            Self::Heap(group) => group.part.take().map(|part| Self::HeapPart(*part)),
            _ => None,
        };
        part.unwrap_or(self)
    }
}
