//! What a recording is asked to do.

use std::time::Duration;

use crate::mode::Mode;

/// How a dump is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Gzipped pprof protobuf.
    #[default]
    Pprof,
    /// gperftools' text (`heap profile: … @ heapprofile`).
    Text,
}

/// When to dump besides at the end. Sizes are bytes; `None` is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Triggers {
    /// Each time this long has passed.
    pub interval: Option<Duration>,
    /// Each time the heap is this much larger than at the last dump.
    pub growth: Option<u64>,
    /// Each time the heap is at a new peak, a tenth (and 64 KiB) above the last one dumped.
    pub peak: bool,
    /// Each time the heap's peak is this much above that of the last dump (gperftools' inuse
    /// interval).
    pub peak_growth: Option<u64>,
    /// Each time this much was allocated.
    pub allocated: Option<u64>,
    /// Each time this much was freed.
    pub freed: Option<u64>,
}

/// Where dumps go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Path, with `%p` for the process, `%e` for the name that the program was started by and `%n`
    /// for the number of the dump. Without any of them the process that `parent` started writes its
    /// last dump there, all others beside it. Empty: nowhere.
    pub pattern: Vec<u8>,
    /// The pattern of all other processes, absolute and with a `%p`; empty: the same. Its folder is
    /// made when one of them dumps.
    pub children: Vec<u8>,
    /// Where a relative pattern begins, if not in the folder that the process is in when the
    /// recording starts.
    pub folder: Option<Vec<u8>>,
    /// Process that started the recording; its child is the main process.
    pub parent: Option<i32>,
    /// Folder with a file of each user's, to which each dump adds an entry, ended by a NUL:
    /// process, when (0 on the way, 1 at the end, 2 before an exec), whether it is exact, bytes in
    /// use, peak bytes, stacks, events lost, path; or `!`, errno and path, or `!` and a text.
    pub list: Vec<u8>,
    /// gperftools' way of naming: `prefix.NNNN.heap`, `prefix_PID.NNNN.heap` after a fork or exec.
    pub numbered_prefix: bool,
    /// With it: `prefix_PID.NNNN.heap` for the main process too.
    pub always_id: bool,
    /// With it: the main process takes away the files of an earlier run.
    pub removes_earlier: bool,
}

/// Options of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// What is recorded.
    pub mode: Mode,
    /// Average bytes between samples.
    pub period: u64,
    /// How dumps are written.
    pub format: Format,
    /// When.
    pub triggers: Triggers,
    /// Where to.
    pub output: Output,
    /// The rights of new files, whatever the umask is.
    pub file_mode: u32,
    /// A regular expression for functions that reports leave out, as they do malloc: it becomes
    /// part of `drop_frames`. Empty: none besides those that are known.
    pub wrappers: String,
    /// Whether forked children go on recording, each for itself.
    pub follow_children: bool,
}

/// 512 KiB: what Go and jemalloc take.
pub const DEFAULT_PERIOD: u64 = 512 << 10;
/// Rights of a file that its user alone reads: it shows what a program did.
pub(crate) const OWN_FILE: u32 = 0o600;
/// The longest period, in bytes: sums of weights stay within 64 bits.
pub const LONGEST_PERIOD: u64 = 1 << 40;

impl Default for Options {
    fn default() -> Self {
        Self {
            mode: Mode::Sampled,
            period: DEFAULT_PERIOD,
            format: Format::Pprof,
            triggers: Triggers::default(),
            output: Output::default(),
            file_mode: OWN_FILE,
            wrappers: String::new(),
            follow_children: true,
        }
    }
}
