//! Why there is no profile of what was to be read.

/// What went wrong. The texts name neither process nor file, because whoever asks knows which.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is no such process.
    #[error("there is no such process")]
    NoProcess,
    /// The kernel does not let this user read the process.
    #[error("its memory cannot be read by this user")]
    NotAllowed,
    /// Nothing is recorded of it.
    #[error("it is not recorded by heapprof")]
    NotRecorded,
    /// It was recorded by a heapprof with another layout.
    #[error("it is recorded by another version of heapprof (layout {0}, this one reads {1})")]
    OtherVersion(u32, u32),
    /// A part of the file in which it keeps its books is swapped out.
    #[error("a part of its books is swapped out")]
    LedgerSwapped,
    /// It copied the books of the process that it was forked from, which it does not keep.
    #[error("it has the books of process {0}, which it was cloned from, and keeps none itself")]
    ParentLedger(i32),
    /// The process ended, or became another program.
    #[error("it has ended, or became another program, while it was read")]
    ProcessEnded,
    /// The books contradict themselves.
    #[error("its books are damaged: {0}")]
    LedgerDamaged(&'static str),
    /// The books are larger than anything that a program would have.
    #[error("its books are larger than a program's can be, or lead in circles")]
    LedgerTooLarge,
    /// Another recording of the process began meanwhile, again and again.
    #[error("its recording began anew while it was read; ask again")]
    RecordingRestarted,
    /// The file is no core file, or a part of it is missing.
    #[error("it is not a core file that can be read: {0}")]
    NotCore(&'static str),
    /// The file does not keep books.
    #[error("it does not keep the books of a recording: {0}")]
    NotSharedLedger(&'static str),
    /// A file could not be read.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}

impl From<heapprof_process::CoreError> for LiveError {
    fn from(error: heapprof_process::CoreError) -> Self {
        match error {
            heapprof_process::CoreError::NotCore(why) => Self::NotCore(why),
            heapprof_process::CoreError::Io(error) => Self::Io(error),
        }
    }
}
