//! How a `record` that runs is asked for the books of its processes: a socket in a folder that only
//! its user can enter, and the two questions that can be asked there.
//!
//! The kernel may keep a user from reading a process of their own (Yama, `PR_SET_DUMPABLE`). The
//! `record` that started it has the file in which it keeps its books.

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

/// A question: which processes there are. The answer is their numbers.
const PROCESSES_QUESTION: &str = "heapprof: processes\n";
/// A question: the file of one, whose number follows. It comes with the answer.
const FILE_QUESTION_PREFIX: &str = "heapprof: file of ";
/// The longest answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// So long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// What somebody asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordQuestion {
    Processes,
    File(u32),
}

impl RecordQuestion {
    /// The question that a text asks; `None` if it asks none.
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

/// Answers with a text, and a file if there is one. It does not wait.
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

/// What comes next from a socket: a text of so many bytes at most, and up to two files that came
/// with it.
pub(crate) fn receive(from: &OwnedFd, longest: usize) -> io::Result<(Vec<u8>, [Option<File>; 2])> {
    let mut text = vec![0; longest];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got = recvmsg(from, &mut parts, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut all = [None, None];
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut files) = message {
            all = [(); 2].map(|()| files.next().map(File::from));
        }
    }
    text.truncate(got.bytes);
    Ok((text, all))
}

/// Asks one `record`.
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
    let (text, [file, _]) = receive(&socket, MAX_ANSWER_BYTES)?;
    Ok((text, file))
}

/// Asks each `record` of this user, until `done` has what it wants of an answer.
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

/// Which namespace the numbers of processes are of.
pub(crate) fn namespace() -> String {
    let name = std::fs::read_link("/proc/self/ns/pid").unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The words of an answer, if its numbers are of this process's own namespace.
fn words(text: &[u8]) -> Option<Vec<String>> {
    let text = String::from_utf8_lossy(text);
    let mut words = text.split_whitespace().map(str::to_string);
    (words.next()? == namespace()).then(|| words.collect())
}

/// The file in which a process keeps its books, if a `record` of this user has it.
pub(crate) fn file_of(pid: u32) -> Option<SharedLedger> {
    ask_all(RecordQuestion::File(pid), |text, file| {
        words(&text)?;
        SharedLedger::new(file?).ok()
    })
}

/// The processes of all records of this user.
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
