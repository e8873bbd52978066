//! Those who call a keeper: processes of the recording, and other commands of its user.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::fs::fcntl_setfl;
use rustix::process::Pid;

use crate::peer::Peer;
use crate::place::Owner;

/// So long a process may take to hand its file over once it has called.
const PATIENCE: Duration = Duration::from_millis(200);

/// Somebody who has called, and has not said anything yet.
pub(super) struct Caller {
    pub(super) socket: OwnedFd,
    /// Whether they ask for something, instead of handing a file over.
    pub(super) asks: bool,
    pub(super) owner: Owner,
    pub(super) pid: Pid,
    pub(super) until: Instant,
}

/// Somebody who has called; `None` if they may not: only this user and root may ask.
pub(super) fn caller(socket: OwnedFd, asks: bool) -> Option<Caller> {
    fcntl_setfl(&socket, rustix::fs::OFlags::NONBLOCK).ok()?;
    let Peer { pid, owner } = Peer::of(&socket)?;
    let may = !asks || owner.is_us() || owner.user == 0;
    // Of a process without a number here, nobody could say when it ends.
    let pid = pid.or(asks.then(rustix::process::getpid))?;
    may.then(|| Caller {
        socket,
        asks,
        owner,
        pid,
        until: Instant::now() + PATIENCE,
    })
}
