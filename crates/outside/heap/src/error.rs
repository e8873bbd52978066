//! Why a heap can't be walked.

/// Why a heap can't be walked. Each error is one line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HeapWalkError {
    /// Reading failed.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// There is no such process.
    #[error("there is no such process")]
    NoProcess,
    /// The process is not this user's to read.
    #[error("it is not this user's to hold and read")]
    NotAllowed,
    /// Something else traces the process.
    #[error("process {0} traces it already")]
    Traced(u32),
    /// A thread did not come to a stop.
    #[error("its thread {0} does not stop; the kernel works for it")]
    Busy(u32),
    /// This machine is none on which processes are held.
    #[error("processes are held on x86-64 only; walk a core file")]
    OtherMachine,
    /// The file is no core file.
    #[error("it is no core file of a 64-bit program: {0}")]
    NotCore(&'static str),
    /// The file that was named is not the program of the core file.
    #[error("the file of --exe is not that of this core file: {0}")]
    OtherProgram(&'static str),
    /// No arena of glibc's malloc was found.
    #[error("no heap of glibc's malloc was found{other}{}", lacking(*missing))]
    NoHeap {
        /// Which other allocator it has, in words.
        other: &'static str,
        /// How many bytes of memory are missing.
        missing: u64,
    },
    /// There is no memory for a copy.
    #[error("there is not enough memory to copy {0} bytes of it")]
    NoMemory(u64),
    /// The memory is more than can be copied.
    #[error("it has more than {0} bytes of memory")]
    TooLarge(u64),
}

/// What is missing, in words.
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
