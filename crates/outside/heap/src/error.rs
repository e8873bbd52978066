//! Reasons why a heap can't be walked.

/// The reason why a heap can't be walked. Each error's text is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapWalkError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// There is no such process.
    #[error("there is no such process")]
    NoProcess,
    /// This user may not read the process.
    #[error("this user may not suspend and read it")]
    NotAllowed,
    /// A tracer already traces the process. The number is the tracer's process ID.
    #[error("process {0} is already tracing it")]
    Traced(u32),
    /// The thread with this number did not stop.
    #[error("its thread {0} does not stop; it is blocked in the kernel")]
    Busy(u32),
    /// Processes can't be suspended on this machine.
    #[error("processes can be suspended only on x86-64; use a core file")]
    OtherMachine,
    /// The file is no core file; the text says why.
    #[error("it is not a core file of a 64-bit program: {0}")]
    NotCore(&'static str),
    /// The file that the user named is not the program of the core file.
    #[error("the named file is not the program of this core file: {0}")]
    OtherProgram(&'static str),
    /// No arena of glibc's malloc was found.
    #[error("no glibc malloc heap was found{other}{}", lacking(*missing))]
    NoHeap {
        /// The allocator that the process uses instead, in words; empty if it is not known.
        other: &'static str,
        /// Number of missing bytes of memory.
        missing: u64,
    },
    /// There is not enough memory for a copy of this many bytes.
    #[error("there is not enough memory to copy {0} bytes of it")]
    NoMemory(u64),
    /// The process has more memory than may be copied. The number is the limit in bytes.
    #[error("it has more than {0} bytes of memory")]
    TooLarge(u64),
}

/// Returns a sentence about the missing bytes.
fn lacking(missing: u64) -> String {
    match missing {
        0 => String::new(),
        missing => format!("; {missing} bytes of its memory are missing"),
    }
}

impl From<heapprof_process::CoreError> for HeapWalkError {
    fn from(error: heapprof_process::CoreError) -> Self {
        match error {
            heapprof_process::CoreError::NotCore(why) => Self::NotCore(why),
            heapprof_process::CoreError::Io(error) => Self::Io(error),
        }
    }
}
