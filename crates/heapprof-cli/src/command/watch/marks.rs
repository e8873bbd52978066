//! Marks that come to a watch: datagrams of this user's processes.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use heapprof_process::Statm;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags, recvmsg, sendto};

/// The longest datagram that is read.
const LONGEST: usize = 2048;
/// The longest text that is kept, in bytes.
const LONGEST_TEXT: usize = 1000;

/// A mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::command) struct Mark {
    /// The process that it is of, if it is of one.
    pub(in crate::command) pid: Option<u32>,
    /// When it was set, in milliseconds since 1970 UTC.
    pub(in crate::command) time_ms: i64,
    /// What the process had in memory then.
    pub(in crate::command) statm: Option<Statm>,
    /// What begins.
    pub(in crate::command) text: String,
}

impl Mark {
    /// Reads a datagram: a head with the process and the time, the kernel's line of the process's
    /// memory, and the text.
    pub(in crate::command) fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram = String::from_utf8_lossy(datagram);
        let (head, rest) = datagram.split_once('\n')?;
        let (statm, text) = rest.split_once('\n')?;
        let (pid, time) = head.strip_prefix("heapprof mark 1 ")?.split_once(' ')?;
        let mut text = text.to_string();
        if let Some(end) = (0..=LONGEST_TEXT.min(text.len()))
            .rev()
            .find(|&i| text.is_char_boundary(i))
        {
            text.truncate(end);
        }
        Some(Self {
            pid: Some(pid.parse().ok()?).filter(|pid| *pid != 0),
            time_ms: time.parse().ok()?,
            statm: Statm::parse(statm),
            text,
        })
    }
}

/// Takes what waits in the socket. `take` returns what is answered.
pub(super) fn receive(socket: &OwnedFd, mut take: impl FnMut(Mark) -> String) {
    let mut bytes = [0; LONGEST];
    loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut nothing = RecvAncillaryBuffer::default();
        let Ok(got) = recvmsg(socket, &mut parts, &mut nothing, RecvFlags::DONTWAIT) else {
            return;
        };
        let answer = match Mark::parse(&bytes[..got.bytes]) {
            Some(mark) => take(mark),
            None => "it was not understood".to_string(),
        };
        // A program that sets a mark waits for no answer.
        if let Some(from) = &got.address {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = sendto(socket, answer.as_bytes(), flags, from);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_marks_or_nothing() {
        let mark = Mark::parse(b"heapprof mark 1 7 99\n9 5 3 2 0 4 0\nwarm\nnow").unwrap();
        assert_eq!(
            (mark.pid, mark.time_ms, mark.text.as_str()),
            (Some(7), 99, "warm\nnow")
        );
        assert!(mark.statm.is_some());
        let mark = Mark::parse(b"heapprof mark 1 0 99\n\n\xff").unwrap();
        assert_eq!(
            (mark.pid, mark.statm, mark.text.as_str()),
            (None, None, "\u{fffd}")
        );
        let long = format!("heapprof mark 1 0 9\n\n{}", "\u{e9}".repeat(1500));
        assert_eq!(
            Mark::parse(long.as_bytes()).unwrap().text.len(),
            LONGEST_TEXT
        );
        for wrong in [
            &b""[..],
            b"heapprof mark 1 7 99",
            b"heapprof mark 2 7 99\n\nx",
            b"heapprof mark 1 -7 99\n\nx",
            b"heapprof mark 1 7\n\nx",
        ] {
            assert_eq!(Mark::parse(wrong), None, "{wrong:?}");
        }
    }
}
