//! The command line of `record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use heapprof_recorder::AllocatorChoice;

use super::{FileModeArgs, LogArgs};

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Record every allocation instead of a sample
    #[arg(long, conflicts_with = "period")]
    pub(crate) exact: bool,
    /// Average number of bytes between samples [default: 512KiB]
    #[arg(long, value_name = "SIZE", value_parser = period)]
    pub(crate) period: Option<u64>,
    /// The file, file pattern or folder for the profiles
    #[arg(short, long, value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Write a profile at this interval, e.g. 10s or 2m
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(crate) interval: Option<Duration>,
    /// Write a profile each time the heap has grown by this size
    #[arg(long, value_name = "SIZE", value_parser = super::size::growth)]
    pub(crate) on_growth: Option<u64>,
    /// Write a profile at each peak that is 10 % and 64 KiB above the last
    #[arg(long)]
    pub(crate) on_peak: bool,
    /// Write a profile when this signal comes, e.g. USR2
    #[arg(long, value_name = "SIGNAL", value_parser = signal)]
    pub(crate) on_signal: Option<i32>,
    /// Whether children of the program are recorded, too
    #[arg(long, value_enum, default_value_t = YesOrNo::Yes, value_name = "WHETHER")]
    pub(crate) follow_children: YesOrNo,
    /// Count memory that the program maps itself (mmap) as allocated
    #[arg(long)]
    pub(crate) mmap: bool,
    /// Which allocators inside files to record: auto (all that are known), none, or names
    #[arg(long, value_name = "LIST", hide_short_help = true, value_parser = AllocatorChoice::parse)]
    pub(crate) allocators: Option<AllocatorChoice>,
    /// Record which thread allocated what, as labels `thread` and `tid`
    #[arg(long)]
    pub(crate) threads: bool,
    /// Also record what forked children load and what they no longer share, for heapprof fork-audit
    #[arg(long, conflicts_with = "live", hide_short_help = true)]
    pub(crate) fork_audit: bool,
    /// Show nothing at the end except warnings
    #[arg(short, long, hide_short_help = true)]
    pub(crate) quiet: bool,
    /// Also keep profiles of children that never had 64 KiB in use
    #[arg(long)]
    pub(crate) keep_small: bool,
    /// Which frames to keep in stacks with an interpreter such as Perl
    #[arg(long, value_enum, default_value_t = FrameSelection::Script, value_name = "WHICH")]
    pub(crate) frames: FrameSelection,
    /// Whether names of Perl's string evals keep their numbers, as in (eval 12)
    #[arg(long, value_enum, default_value_t = EvalNaming::Merged, value_name = "HOW")]
    pub(crate) perl_evals: EvalNaming,
    /// Also trace what created each Perl value (needs perl-install)
    #[arg(long)]
    pub(crate) perl_values: bool,
    /// Build Devel::HeapProf for the perl in use, if the module is missing and --perl-values or
    /// --fork-audit needs it
    #[arg(long, hide_short_help = true)]
    pub(crate) perl_install: bool,
    /// Whether to record Python's small objects, which never reach malloc [default: yes for a
    /// sample, no with --exact]
    #[arg(long, value_enum, value_name = "WHETHER", hide_short_help = true)]
    pub(crate) python_objects: Option<YesOrNo>,
    /// Show the program in the terminal while it runs
    #[arg(long)]
    pub(crate) live: bool,
    /// While the program runs, report a source line each time its memory in use has grown by MIN
    /// [default: 1MiB]
    #[arg(long, value_name = "MIN", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1MiB", value_parser = super::size::growth)]
    pub(crate) follow_lines: Option<u64>,
    /// File or pipe for the reports of --follow-lines, instead of stderr
    #[arg(long, value_name = "FILE", requires = "follow_lines")]
    pub(crate) follow_output: Option<PathBuf>,
    /// The form of a report: PID, FILE:LINE, +BYTES, FUNCTION, or one JSON object per line
    #[arg(long, value_enum, default_value_t = LineFormat::Text, value_name = "FORM")]
    #[arg(requires = "follow_lines", hide_short_help = true)]
    pub(crate) follow_format: LineFormat,
    /// Leave your own allocation wrappers out of reports, as malloc is: functions whose names
    /// (without parameters) match
    #[arg(long, value_name = "REGEX", value_parser = super::code::regex)]
    pub(crate) wrappers: Option<String>,
    #[command(flatten)]
    pub(crate) log: LogArgs,
    #[command(flatten)]
    pub(crate) file_mode: FileModeArgs,
    /// Put the whole command line of each program into its profile, with the passwords that it may
    /// contain
    #[arg(long, hide_short_help = true)]
    pub(crate) command_line: bool,
    /// Leave addresses without names, for heapprof convert symbolize later
    #[arg(long)]
    pub(crate) no_symbolize: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub(crate) command: Vec<OsString>,
}

impl RecordArgs {
    /// Whether every allocation is recorded.
    pub(crate) fn is_exact(&self) -> bool {
        let audits = self.fork_audit && self.period.is_none();
        self.exact || audits || self.log.log.is_some()
    }

    /// Average bytes between samples.
    pub(crate) fn period(&self) -> u64 {
        self.period.unwrap_or(DEFAULT_PERIOD)
    }
}

/// Average bytes between samples, unless something else is asked for.
pub(crate) const DEFAULT_PERIOD: u64 = 512 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum YesOrNo {
    Yes,
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LineFormat {
    /// For people
    Text,
    /// For programs
    Json,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FrameSelection {
    /// The interpreter's frames only; a label names what the interpreter does
    Script,
    /// The native frames only
    Native,
    /// All frames, with the interpreter's in place of its run loop
    Both,
}

impl FrameSelection {
    /// Its number in the letter of whoever attaches.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Script => 1,
            Self::Native => 2,
            Self::Both => 3,
        }
    }

    /// Its name in the environment.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Script => "script",
            Self::Native => "native",
            Self::Both => "both",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum EvalNaming {
    /// Evals of equal code have the same name
    Merged,
    /// Each evaluation keeps its number
    Numbered,
}

impl EvalNaming {
    /// Its name in the environment.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Merged => "merged",
            Self::Numbered => "numbered",
        }
    }
}

pub(super) fn period(text: &str) -> Result<u64, String> {
    let bytes = super::size::size(text)?;
    match bytes {
        0 | 1 => Err("use --exact to record every allocation".to_string()),
        bytes if bytes > 1 << 40 => Err("at most 1TiB".to_string()),
        bytes => Ok(bytes),
    }
}

/// A signal by its name, with SIG or without, or by its number.
fn signal(text: &str) -> Result<i32, String> {
    use signal_hook::consts::FORBIDDEN;
    use signal_hook::low_level::signal_name;
    let upper = text.to_ascii_uppercase();
    let is_it = |name: &str| name == upper || name.strip_prefix("SIG") == Some(&upper);
    let named = (1..=31).find(|&n| n.to_string() == text || signal_name(n).is_some_and(is_it));
    match named {
        None => Err("no such signal; USR2 is one".to_string()),
        Some(n) if FORBIDDEN.contains(&n) => Err("a program can't catch it".to_string()),
        Some(n) => Ok(n),
    }
}

pub(super) fn time(text: &str) -> Result<Duration, String> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let (number, unit) = text.split_at(text.len() - digits.len());
    let seconds = match unit.trim() {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        unit => return Err(format!("{unit:?} is not a unit of time; use ms, s, m or h")),
    };
    let seconds = number
        .parse::<f64>()
        .map_err(|_| format!("{number:?} is not a number"))?
        * seconds;
    if !(0.001..1e9).contains(&seconds) {
        return Err("at least 1ms".to_string());
    }
    Ok(Duration::from_secs_f64(seconds))
}
