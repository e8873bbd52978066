//! The settings of a recording, which a front end makes.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use heapprof_allocators::AllocatorChoice;

use crate::lines::LineFollowOptions;
use crate::live::LiveViewOptions;
use crate::names::ProfileNamePatterns;
use crate::small_children::MIN_OWN_BYTES;

/// The settings of a recording, which a front end makes.
pub struct RecordingSettings {
    /// The program and its arguments. There is at least the program's name.
    pub command: Vec<OsString>,
    /// The file of the program, as [`find_program`](crate::find_program) finds it.
    pub program_file: Option<PathBuf>,
    /// Whether the library is preloaded, as [`PreloadCheck`](crate::PreloadCheck) decides.
    pub preloads: bool,
    /// The path of the library.
    pub library: PathBuf,
    /// The option for `PERL5OPT` that loads the module for Perl, if there is one.
    pub perl_option: Option<String>,
    /// The names of the profiles.
    pub names: ProfileNamePatterns,
    /// The mode of the profiles.
    pub file_mode: u32,
    /// Whether the profiles have the parts of the resident memory at its peak.
    pub divides_peaks: bool,
    /// Whether every allocation is recorded.
    pub is_exact: bool,
    /// Average bytes between samples.
    pub period: u64,
    /// Time between two profiles, if profiles are written at intervals.
    pub interval: Option<Duration>,
    /// Number of bytes of growth after which a profile is written.
    pub on_growth: Option<u64>,
    /// Whether a profile is written at each new peak.
    pub on_peak: bool,
    /// The signal at which a profile is written.
    pub on_signal: Option<i32>,
    /// Whether children of the program are recorded.
    pub follows_children: bool,
    /// Whether children that held few bytes besides inherited ones keep their profiles.
    pub keeps_small_children: bool,
    /// Whether the mappings that the program makes itself are counted as allocations.
    pub counts_mappings: bool,
    /// Which allocators inside files are recorded; `None` leaves that to the environment.
    pub allocators: Option<AllocatorChoice>,
    /// Whether the memory of each thread is recorded separately.
    pub by_thread: bool,
    /// Whether forked children are audited.
    pub audits_forks: bool,
    /// Which frames are kept in stacks through an interpreter, as the value of the environment
    /// variable `HEAPPROF_FRAMES`.
    pub frames: &'static str,
    /// The way of naming Perl's evals, as the value of the environment variable
    /// `HEAPPROF_PERL_EVALS`.
    pub perl_evals: &'static str,
    /// Whether Perl's values are traced.
    pub traces_perl_values: bool,
    /// Whether Python's small objects are recorded; `None` for the default.
    pub records_python_objects: Option<bool>,
    /// The regular expression of the program's own allocation functions.
    pub wrappers: Option<String>,
    /// Whether profiles have the whole command line.
    pub keeps_command_line: bool,
    /// Whether addresses get names.
    pub symbolizes: bool,
    /// The options for showing the program while it runs; `None` if it is not shown.
    pub view: Option<LiveViewOptions>,
    /// The options for reporting growing lines of code; `None` if they are not reported.
    pub lines: Option<LineFollowOptions>,
    /// The file for the log of events, and its largest size in bytes, if there is to be a log.
    pub log: Option<(File, u64)>,
}

impl RecordingSettings {
    /// Returns the minimum number of bytes that a child must have held to keep its profile.
    /// Inherited bytes do not count. Returns `None` if all children keep their profiles.
    pub(crate) fn least_of_child(&self) -> Option<i64> {
        (!self.keeps_small_children && !self.audits_forks).then_some(MIN_OWN_BYTES)
    }
}
