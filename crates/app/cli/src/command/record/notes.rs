//! Describes the failures of a recording.

use heapprof_recorder::{AuditLimit, RecordingNote};

/// Describes a failure of a recording, in one line.
pub(super) fn describe(note: &RecordingNote) -> String {
    match note {
        RecordingNote::RefusedCalls(count) => format!(
            "{count} requests from other users' processes were refused: they are not known to \
             belong to the recording, or were too many at once"
        ),
        RecordingNote::FileNotTaken => "the recorded data of a process could not be received, so \
                                        it may be lost if that process is killed"
            .to_string(),
        RecordingNote::TooManyProcesses => {
            "there were too many processes to keep the recorded data of all of them".to_string()
        }
        RecordingNote::NoLogEvents(why) => format!("--log: there are no events: {why}"),
        RecordingNote::TooManyReplacedPrograms => {
            "too many processes executed another program without reporting it".to_string()
        }
        RecordingNote::ReadTimeOver => {
            "it took too long to read what processes had in use when they ended".to_string()
        }
        RecordingNote::PartialProfile(path) => format!(
            "{}: does not have everything that was recorded: there was no room for the rest",
            path.display()
        ),
        RecordingNote::NoPlace(error) => {
            format!("{error}; -o DIR/%e.%p.pb.gz, with a DIR of mode 1777, keeps it")
        }
        RecordingNote::UnreadLedger { process, why } => {
            format!("what process {process} had in use when it ended is not known: {why}")
        }
        RecordingNote::AuditLimit { what, count, limit } => {
            let what = match what {
                AuditLimit::Children => "children were forked",
                AuditLimit::Loads => "files were loaded",
            };
            format!("--fork-audit: {count} more {what} than the {limit} that are recorded")
        }
        RecordingNote::AuditNotWritten(why) => format!("--fork-audit: {why}"),
    }
}
