//! Reasons why a ledger can't be read.

/// The reason why a ledger can't be read. The texts name neither the process nor the file, because
/// the caller knows them.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is no such process.
    #[error("there is no such process")]
    NoProcess,
    /// The kernel does not let this user read the process.
    #[error("its memory cannot be read by this user")]
    NotAllowed,
    /// The process is not recorded.
    #[error("it is not recorded by heapprof")]
    NotRecorded,
    /// The process is recorded by another version of heapprof, whose ledger has another layout. The
    /// numbers are the version of the ledger and the version that this heapprof reads.
    #[error("it is being recorded by another version of heapprof (layout {0}, this one reads {1})")]
    OtherVersion(u32, u32),
    /// A part of the file in which the process keeps its ledger is swapped out.
    #[error("a part of its recorded data is swapped out")]
    LedgerSwapped,
    /// The process was forked and is not recorded itself: it has only a copy of its parent's
    /// ledger, which is not updated. The number is the parent's process id.
    #[error(
        "it shares the recorded data of process {0}, which it was cloned from, and records none \
             itself"
    )]
    ParentLedger(i32),
    /// The process ended, or became another program.
    #[error("it ended or executed another program while it was read")]
    ProcessEnded,
    /// The ledger contradicts itself.
    #[error("its recorded data is damaged: {0}")]
    LedgerDamaged(&'static str),
    /// The ledger is larger than the ledger of any real program.
    #[error(
        "its recorded data is larger than that of any real program, or refers to itself in a loop"
    )]
    LedgerTooLarge,
    /// The process's recording restarted during each attempt to read it.
    #[error("its recording was restarted while it was read; try again")]
    RecordingRestarted,
    /// The file is no core file, or a part of it is missing.
    #[error("it is not a readable core file: {0}")]
    NotCore(&'static str),
    /// The file is no saved ledger.
    #[error("it does not contain the recorded data of a process: {0}")]
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
