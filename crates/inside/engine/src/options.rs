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

/// Which frames are kept of a stack that leads through an interpreter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameChoice {
    /// The interpreter's frames alone.
    #[default]
    Script = 1,
    /// The native frames alone.
    Native = 2,
    /// Both: the interpreter's frames in the place of its run loop.
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
    /// Dumps each time this long has passed.
    pub interval: Option<Duration>,
    /// Dumps each time the heap is this much larger than at the last dump.
    pub growth: Option<u64>,
    /// Dumps each time the heap is at a new peak, a tenth (and at least 64 KiB) above the last one
    /// dumped.
    pub peak: bool,
    /// Dumps each time the heap's peak is this much above that of the last dump (gperftools' inuse
    /// interval).
    pub peak_growth: Option<u64>,
    /// Dumps each time this much was allocated.
    pub allocated: Option<u64>,
    /// Dumps each time this much was freed.
    pub freed: Option<u64>,
    /// Reports the places whose memory in use has changed, each time a line may have grown by this
    /// much. The report goes into the folder [`DumpOutput::list`], and is not a dump.
    pub line_growth: Option<u64>,
    /// Writes the present profile into the folder [`DumpOutput::list`] each time that the file
    /// `asked` in that folder requests it. This profile is not a dump.
    pub live: bool,
}

/// A function that receives the number of the file in which the ledger is kept.
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
    /// No process. The ledger is in private memory.
    #[default]
    Private,
    /// The process that listens at the socket with this path.
    Socket(Vec<u8>),
    /// The process to which this function passes the file. The file is closed when the function
    /// returns.
    Taker(LedgerTaker),
}

/// Where dumps go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DumpOutput {
    /// The path of dumps. `%p` stands for the process, `%e` for the name that the program was
    /// started by, and `%n` for the number of the dump. Without any of them, the process that
    /// `parent` started writes its last dump there, and all other dumps go beside it. If the
    /// pattern is empty, dumps go nowhere.
    pub pattern: Vec<u8>,
    /// The path pattern of all processes except the one that `parent` started, absolute and with a
    /// `%p`. Its folder is made when one of them dumps. If it is empty, these processes use
    /// `pattern`.
    pub children: Vec<u8>,
    /// The folder in which a relative pattern begins. If it is `None`, that is the folder that the
    /// process is in when the recording starts.
    pub folder: Option<Vec<u8>>,
    /// The process that started the recording. Its child is the main process.
    pub parent: Option<i32>,
    /// The folder of the list of dumps, which has a file for each user.
    ///
    /// Each dump adds an entry that ends with a NUL. Its parts are the process, when the dump was
    /// made (0 before the program's end, 1 at the end, 2 before an exec, 3 before a filter of
    /// system calls under which a dump would end the program), whether it is exact, bytes in use,
    /// peak bytes, the most bytes that the process itself had in use, stacks, events lost, and the
    /// path. A dump that was not written adds `!`, errno, process and path, or `!` and a text. A
    /// child that was left out (see [`min_child_bytes`](Self::min_child_bytes)) adds `-`, process
    /// and when.
    ///
    /// The reports of [`DumpTriggers::line_growth`] go into another file there, whose name ends in
    /// `.lines`. A report has a newline, a NUL, `lines `, then as text the process, when its
    /// recording began (nanoseconds since 1970), whether it is exact, and the length of a gzipped
    /// profile with the growth of each stack, which follows after a newline.
    ///
    /// The profiles of [`DumpTriggers::live`] go into a file whose name ends in `.live`. They have
    /// the same form, but each is a whole profile.
    pub list: Vec<u8>,
    /// Smallest number of bytes that a child must have had in use to write a last dump. Blocks that
    /// a forked child inherits do not count. A child that never had that many adds an entry to
    /// `list` instead.
    pub min_child_bytes: u64,
    /// The ledger keeper, which is given a file in memory. The file contains all data for a
    /// profile, and is still there if the recorded process is killed.
    pub recipient: LedgerRecipient,
    /// The socket of the process that inspects forked children's pages: a child waits for it when
    /// it begins, and before its last dump. If the path is empty, no process does that.
    pub audit: Vec<u8>,
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
    /// Average bytes between samples.
    pub period: u64,
    /// How dumps are written.
    pub format: DumpFormat,
    /// When dumps are made.
    pub triggers: DumpTriggers,
    /// Where dumps go.
    pub output: DumpOutput,
    /// The rights of new files, which do not depend on the umask.
    pub file_mode: u32,
    /// A regular expression for functions that reports leave out, as they leave out malloc. It
    /// becomes part of `drop_frames`. If it is empty, reports leave out only the allocators'
    /// functions that heapprof knows.
    pub wrappers: String,
    /// Whether forked children go on recording, each for itself.
    pub follow_children: bool,
    /// Which frames are kept of a stack that leads through an interpreter. The text form can hold
    /// native ones only.
    pub frames: FrameChoice,
    /// Whether allocations are counted for each thread separately, with the labels `thread` (its
    /// name) and `tid`. The text form has no place for them.
    pub by_thread: bool,
    /// Whether profiles have the program's whole command line, which may hold passwords. The text
    /// form has no place for it.
    pub command_line: bool,
    /// Whether each allocation and each free goes into a log, which the ledger keeper reads
    /// ([`DumpOutput::recipient`]). It is for exact recordings. Forked children have no log.
    pub logs: bool,
}

/// Default period: 512 KiB, as in Go and jemalloc.
pub const DEFAULT_PERIOD: u64 = 512 << 10;
/// The rights of a file that shows details of a program, so that only its user may read it.
pub(crate) const PRIVATE_FILE_MODE: u32 = 0o600;
/// The longest period, in bytes. With it, sums of weights stay within 64 bits.
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
