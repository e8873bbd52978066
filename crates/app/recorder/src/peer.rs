//! The process at the other end of a socket, as the kernel reports it. rustix can't be used,
//! because it assumes that no process has the number 0. The kernel reports 0 for a process outside
//! of this pid namespace.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::Pid;

use heapprof_files::FileOwner;

/// The process at the other end of a socket, at the time when it connected.
pub(crate) struct SocketPeer {
    /// The process id; `None` if the process is in a namespace whose processes have no number here.
    pub(crate) pid: Option<Pid>,
    pub(crate) owner: FileOwner,
}

impl SocketPeer {
    /// Returns the process at the other end of a socket.
    #[expect(unsafe_code, reason = "the kernel fills in a structure of C")]
    pub(crate) fn from_socket(socket: &OwnedFd) -> Option<Self> {
        let mut found = libc::ucred {
            pid: 0,
            uid: 0,
            gid: 0,
        };
        let mut len = size_of::<libc::ucred>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `len` bytes, which are those of the structure, and any
        // numbers are fine in it.
        let result = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERCRED,
                (&raw mut found).cast(),
                &raw mut len,
            )
        };
        (result == 0 && len as usize == size_of::<libc::ucred>()).then_some(Self {
            pid: Pid::from_raw(found.pid),
            owner: FileOwner {
                user: found.uid,
                group: found.gid,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn this_process_is_at_both_ends() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = SocketPeer::from_socket(&one.into()).unwrap();
        assert_eq!(peer.pid, Some(rustix::process::getpid()));
        assert!(peer.owner.is_us());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(SocketPeer::from_socket(&file.into()).is_none());
    }
}
