//! Receives the marks of a watch: datagrams of this user's processes.

use std::io::IoSliceMut;
use std::os::fd::OwnedFd;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendFlags, recvmsg, sendto};

use crate::mark::WatchMark;

/// Longest datagram that is read, in bytes.
const MAX_DATAGRAM_BYTES: usize = 2048;

/// Receives all datagrams that wait in the socket, and sends the answers. `take` returns the answer
/// to a mark.
pub fn receive_marks(socket: &OwnedFd, mut take: impl FnMut(WatchMark) -> String) {
    let mut bytes = [0; MAX_DATAGRAM_BYTES];
    loop {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let mut nothing = RecvAncillaryBuffer::default();
        let Ok(got) = recvmsg(socket, &mut parts, &mut nothing, RecvFlags::DONTWAIT) else {
            return;
        };
        let answer = match WatchMark::parse(&bytes[..got.bytes]) {
            Some(mark) => take(mark),
            None => "it was not understood".to_string(),
        };
        // A program that sets a mark does not wait for an answer.
        if let Some(from) = &got.address {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            let _ = sendto(socket, answer.as_bytes(), flags, from);
        }
    }
}
