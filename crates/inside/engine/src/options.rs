//! The options of a recording.

use std::time::Duration;

use crate::mode::RecordingMode;

/// The format of a dump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DumpFormat {
    /// Gzipped pprof protobuf.
    #[default]
    Pprof,
    /// gperftools' text (`heap profile: … @ heapprofile`).
    Text,
}

/// The kinds of frames that are recorded of a stack in an interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameChoice {
    /// Only the interpreter's frames.
    #[default]
    Script = 1,
    /// Only the native frames.
    Native = 2,
    /// Both kinds: the interpreter's frames are in the native stack, at the place of the
    /// interpreter's run loop.
    Both = 3,
}

impl FrameChoice {
    /// Returns the choice with this number.
    #[inline(always)]
    #[must_use]
    pub fn from_number(number: u8) -> Self {
        match number {
            2 => Self::Native,
            3 => Self::Both,
            _ => Self::Script,
        }
    }
}

/// The conditions for dumps before the program's end. Sizes are in bytes, and `None` means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DumpTriggers {
    /// Makes a dump each time this duration has passed.
    pub interval: Option<Duration>,
    /// Makes a dump each time the heap is larger by this size than at the last dump.
    pub growth: Option<u64>,
    /// Makes a dump at each new peak of the heap that is at least a tenth, and at least 64 KiB,
    /// above the peak at the last dump.
    pub peak: bool,
    /// Makes a dump each time the heap's peak is higher by this size than at the last dump
    /// (gperftools' inuse interval).
    pub peak_growth: Option<u64>,
    /// Makes a dump each time this size was allocated.
    pub allocated: Option<u64>,
    /// Makes a dump each time this size was freed.
    pub freed: Option<u64>,
    /// Reports the call sites whose memory in use has changed, each time a line may have grown by
    /// this size. The report goes into the folder [`DumpOutput::list`], and is not a dump.
    pub line_growth: Option<u64>,
    /// Writes the current profile into the folder [`DumpOutput::list`] each time the file `asked`
    /// in that folder requests it. This profile is not a dump.
    pub live: bool,
}

/// A function that receives the descriptor number of the ledger's file.
#[derive(Clone, Copy, Debug)]
pub struct LedgerTaker(pub fn(i32));

impl PartialEq for LedgerTaker {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for LedgerTaker {}

/// The ledger keeper: the process that receives the file with this process's ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LedgerRecipient {
    /// No process gets the ledger, which is in private memory.
    #[default]
    Private,
    /// The ledger keeper listens at the socket with this path.
    Socket(Vec<u8>),
    /// A function passes the file to the ledger keeper. The file is closed when the function
    /// returns.
    Taker(LedgerTaker),
}

/// The files to which dumps are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpOutput {
    /// The path of dumps, as a pattern. `%p` stands for the process id, `%e` for the name by which
    /// the program was started, and `%n` for the number of the dump. If the pattern has none of
    /// these, the process that `parent` started writes its last dump to this path, and all other
    /// dumps go to files beside it. If the pattern is empty, no dump is written.
    pub pattern: Vec<u8>,
    /// The path pattern for all processes except the process that `parent` started. The pattern is
    /// absolute and has a `%p`. Its folder is made when the first of these processes dumps. If the
    /// pattern is empty, these processes use the field `pattern`.
    pub children: Vec<u8>,
    /// The folder to which a relative pattern refers. `None` means the process's working folder at
    /// the start of the recording.
    pub folder: Option<Vec<u8>>,
    /// Id of the process that started the recording. The child of that process is the main process.
    pub parent: Option<i32>,
    /// The folder of the list of dumps, which has a file for each user.
    ///
    /// Each dump adds an entry that ends with a NUL. The parts of the entry are, in this order:
    ///
    /// * the process;
    /// * the time of the dump: 0 before the program's end, 1 at the end, 2 before an exec, 3 before
    ///   a filter of system calls under which a dump would end the program;
    /// * whether the recording is exact;
    /// * the bytes in use, the peak bytes, and the most bytes that the process itself had in use;
    /// * the number of stacks, the number of lost events, and the path.
    ///
    /// A dump that was not written adds `!`, errno, process and path, or `!` and a text. A child
    /// that was left out (see [`min_child_bytes`](Self::min_child_bytes)) adds `-`, process and
    /// time.
    ///
    /// The reports of [`DumpTriggers::line_growth`] go into another file there, whose name ends in
    /// `.lines`. A report has a newline, a NUL, `lines `, and then, as text, the process, the time
    /// at which its recording began (nanoseconds since 1970), whether the recording is exact, and
    /// the length of a gzipped profile with the growth of each stack. A newline and this profile
    /// follow.
    ///
    /// The profiles of [`DumpTriggers::live`] go into a file whose name ends in `.live`. They have
    /// the same form, but each is a whole profile.
    pub list: Vec<u8>,
    /// Smallest number of bytes with which a child writes a last dump: the child must have had this
    /// many bytes in use at one time. Blocks that a forked child inherits do not count. A child
    /// that never had this many bytes in use adds an entry to `list` instead.
    pub min_child_bytes: u64,
    /// The ledger keeper, which gets a file in memory. The file contains all data for a profile,
    /// and outlives a recorded process that is killed.
    pub recipient: LedgerRecipient,
    /// Path of the socket of the auditor, a process that inspects the pages of forked children. A
    /// child waits for the auditor when it begins, and before its last dump. If the path is empty,
    /// there is no auditor.
    pub audit: Vec<u8>,
    /// Whether a process waits before its last dump until the ledger keeper behind the socket has
    /// read how its memory is divided.
    pub waits_at_end: bool,
    /// Whether dumps are named as gperftools names them: `prefix.NNNN.heap`, `prefix_PID.NNNN.heap`
    /// after a fork or exec.
    pub numbered_prefix: bool,
    /// With `numbered_prefix`: whether the main process, too, writes to `prefix_PID.NNNN.heap`.
    pub always_id: bool,
    /// With `numbered_prefix`: whether the main process removes the files of an earlier run.
    pub removes_earlier: bool,
}

/// Options of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordingOptions {
    /// Whether and how allocations are recorded.
    pub mode: RecordingMode,
    /// Average number of bytes between samples.
    pub period: u64,
    /// The format of dumps.
    pub format: DumpFormat,
    /// The conditions for dumps before the program's end.
    pub triggers: DumpTriggers,
    /// The files to which dumps are written.
    pub output: DumpOutput,
    /// The rights of new files, which do not depend on the umask.
    pub file_mode: u32,
    /// A regular expression for functions that reports leave out, like malloc. It becomes part of
    /// `drop_frames` in the profile. If it is empty, reports leave out only the functions of
    /// allocators that heapprof knows.
    pub wrappers: String,
    /// Whether forked children continue to record, each child for itself.
    pub follow_children: bool,
    /// The kinds of frames that are recorded of a stack in an interpreter. The text format has only
    /// native frames.
    pub frames: FrameChoice,
    /// Whether allocations are counted for each thread separately, with the labels `thread` (the
    /// thread's name) and `tid`. The text format lacks these labels.
    pub by_thread: bool,
    /// Whether profiles have the program's whole command line, which may hold passwords. The text
    /// format lacks it.
    pub command_line: bool,
    /// Whether each allocation and each free is written to a log, which the ledger keeper reads
    /// ([`DumpOutput::recipient`]). A log needs an exact recording. Forked children have no log.
    pub logs: bool,
}

/// Default period: 512 KiB, as in Go and jemalloc.
pub const DEFAULT_PERIOD: u64 = 512 << 10;
/// The rights of a file that shows details of a program: only the file's user may read and write
/// it.
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
/// The longest period, in bytes. With this limit, sums of weights stay within 64 bits.
pub const MAX_PERIOD: u64 = 1 << 40;

impl Default for RecordingOptions {
    fn default() -> Self {
        Self {
            mode: RecordingMode::Sampled,
            period: DEFAULT_PERIOD,
            format: DumpFormat::Pprof,
            triggers: DumpTriggers::default(),
            output: DumpOutput::default(),
            file_mode: PRIVATE_FILE_MODE,
            wrappers: String::new(),
            follow_children: true,
            frames: FrameChoice::default(),
            by_thread: false,
            command_line: false,
            logs: false,
        }
    }
}
