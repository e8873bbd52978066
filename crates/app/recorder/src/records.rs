//! Asks a running `record` for the ledgers of its processes, through a socket in a folder that only
//! its user can enter.
//!
//! The kernel may forbid users to read their own processes (Yama, `PR_SET_DUMPABLE`). The `record`
//! that started such a process still has the file with the process's ledger.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use heapprof_live::SharedLedger;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, connect, recvmsg, sendmsg, sockopt,
};

use crate::sockets::{SocketKind, address, folders};

/// The question for the numbers of all recorded processes. The answer consists of these numbers.
const PROCESSES_QUESTION: &str = "heapprof: processes\n";
/// The beginning of the question for the file of a process, whose number follows. The file comes
/// with the answer.
const FILE_QUESTION_PREFIX: &str = "heapprof: file of ";
/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// Longest time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// A question to a `record`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordQuestion {
    /// Asks for the numbers of the recorded processes.
    Processes,
    /// Asks for the file in which this process keeps its ledger.
    File(u32),
}

impl RecordQuestion {
    /// Parses a question. Returns `None` if the text is no question.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?;
        if text == PROCESSES_QUESTION {
            return Some(Self::Processes);
        }
        let pid = text
            .strip_prefix(FILE_QUESTION_PREFIX)?
            .strip_suffix('\n')?;
        pid.parse().ok().map(Self::File)
    }

    fn text(self) -> String {
        match self {
            Self::Processes => PROCESSES_QUESTION.to_string(),
            Self::File(pid) => format!("{FILE_QUESTION_PREFIX}{pid}\n"),
        }
    }
}

/// Sends a text, and a file if there is one, without waiting.
pub(crate) fn answer(to: &OwnedFd, text: &str, file: Option<&File>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let files = file.map(|file| [file.as_fd()]);
    if let Some(files) = &files {
        ancillary.push(SendAncillaryMessage::ScmRights(files));
    }
    let parts = [IoSlice::new(text.as_bytes())];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    sendmsg(to, &parts, &mut ancillary, flags)?;
    Ok(())
}

/// Receives the next message from a socket: a text of at most `longest` bytes, and up to 3 files
/// that came with it.
pub(crate) fn receive(from: &OwnedFd, longest: usize) -> io::Result<(Vec<u8>, [Option<File>; 3])> {
    let mut text = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got = recvmsg(from, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut all = [None, None, None];
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            all = [(); 3].map(|()| files.next().map(File::from));
        }
    }
    text.truncate(got.bytes);
    Ok((text, all))
}

/// Asks the `record` at one socket a question.
fn ask(
    folder: &OwnedFd,
    name: &str,
    question: RecordQuestion,
) -> io::Result<(Vec<u8>, Option<File>)> {
    let socket = SocketKind::RECORD.socket(SocketFlags::empty())?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER_TIMEOUT))?;
    connect(&socket, &address(folder, name)?)?;
    answer(&socket, &question.text(), None)?;
    let (text, [file, ..]) = receive(&socket, MAX_ANSWER_BYTES)?;
    Ok((text, file))
}

/// Asks each `record` of this user a question, until `done` returns a result for an answer.
fn ask_all<T>(
    question: RecordQuestion,
    mut done: impl FnMut(Vec<u8>, Option<File>) -> Option<T>,
) -> Option<T> {
    for folder in folders() {
        for name in SocketKind::RECORD.names(&folder) {
            if let Ok((text, file)) = ask(&folder, &name, question)
                && let Some(found) = done(text, file)
            {
                return Some(found);
            }
        }
    }
    None
}

/// Returns the pid namespace of this process. Process ids are only valid within a namespace.
pub(crate) fn namespace() -> String {
    let name = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Returns the words of an answer, if its process ids belong to this process's pid namespace.
fn words(text: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split_whitespace().map(str::to_string);
    (words.next()? == namespace()).then(|| words.collect())
}

/// Returns the file in which a process keeps its ledger, if a `record` of this user has it.
pub(crate) fn file_of(pid: u32) -> Option<SharedLedger> {
    ask_all(RecordQuestion::File(pid), |text, file| {
        words(&text)?;
        SharedLedger::new(file?).ok()
    })
}

/// Returns the processes of all recordings of this user.
pub(crate) fn processes() -> Vec<u32> {
    let mut all = Vec::new();
    ask_all(RecordQuestion::Processes, |text, _| {
        let pids = words(&text).unwrap_or_default();
        all.extend(pids.iter().filter_map(|pid| pid.parse::<u32>().ok()));
        None::<()>
    });
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_what_its_text_asks() {
        for question in [
            RecordQuestion::Processes,
            RecordQuestion::File(0),
            RecordQuestion::File(u32::MAX),
        ] {
            assert_eq!(
                RecordQuestion::parse(question.text().as_bytes()),
                Some(question)
            );
        }
        for text in ["", "heapprof: file of x\n", "heapprof: file of 7", "\u{ff}"] {
            assert_eq!(RecordQuestion::parse(text.as_bytes()), None);
        }
    }
}
