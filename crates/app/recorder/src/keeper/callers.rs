//! The callers of the ledger keeper: processes of the recording, and other commands of its user.
//! Any other caller is refused before anything is read, and the processes of each user have limits.

use std::collections::{HashMap, HashSet};
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heapprof_files::FileOwner;
use heapprof_process::ProcessIdentity;
use heapprof_process::job_control::session_of;
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::Pid;

use crate::note::RecordingNote;
use crate::peer::SocketPeer;
use crate::rights::ProcessRights;
use crate::sockets;

/// Maximum number of processes whose connections wait to be accepted. The kernel may have a lower
/// limit.
const MAX_BACKLOG: i32 = 4096;
/// Longest time that a process may take from its connection to the keeper until it hands over its
/// file. Only a process that is stopped, or one on a very busy machine, takes long. The keeper does
/// other work meanwhile.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of steps from a process up to a known ancestor.
const MAX_ANCESTORS: usize = 64;
/// Maximum number of processes that are remembered as possible leaders of a session.
const MAX_KNOWN_PROCESSES: usize = 1 << 16;
/// Maximum number of callers that are accepted and have not sent anything yet.
const MAX_CALLERS: usize = 4096;
/// Maximum number of callers that belong to one other user.
const MAX_CALLERS_OF_OTHERS: usize = 256;
/// Longest total time that reading the files of a user's processes may take beyond the usual time.
const MAX_EXTRA_READ_TIME: Duration = Duration::from_secs(20);

/// A caller that was accepted, and has not sent anything yet.
pub(super) struct KeeperCaller {
    pub(super) socket: OwnedFd,
    /// Whether the caller asks a question, instead of handing over a file.
    pub(super) asks: bool,
    pub(super) owner: FileOwner,
    pub(super) pid: Pid,
    pub(super) until: Instant,
}

/// The waiting callers, and the resources that callers have used so far.
#[derive(Default)]
pub(super) struct CallerRegistry {
    pub(super) waiting: Vec<KeeperCaller>,
    /// Processes that belong to the recording: the processes that have called, and the leaders of
    /// their sessions.
    known: HashSet<u32>,
    /// Time that reading ledgers took beyond the usual time, for each set of process rights.
    spent: HashMap<ProcessRights, Duration>,
    /// Number of callers that were refused.
    refused: u64,
}

impl CallerRegistry {
    /// Whether no further caller can be accepted now.
    pub(super) fn are_full(&self) -> bool {
        self.waiting.len() >= MAX_CALLERS
    }

    /// Accepts a caller: this user and root may ask, and processes of the recording may hand over a
    /// file. `is_living` returns whether a number is the process id of a running process of the
    /// recording.
    pub(super) fn admit(&mut self, socket: OwnedFd, asks: bool, is_living: impl Fn(u32) -> bool) {
        let Some(SocketPeer { pid, owner }) = SocketPeer::from_socket(&socket) else {
            return;
        };
        let may = match (asks, pid) {
            (true, _) => owner.is_us() || owner.user == 0,
            // If a process has no id in this namespace, its end could not be noticed.
            (false, None) => return,
            (false, Some(pid)) => owner.is_us() || self.is_ours(pid, is_living),
        };
        let of_owner = |caller: &&KeeperCaller| caller.owner.user == owner.user;
        let has_room =
            owner.is_us() || self.waiting.iter().filter(of_owner).count() < MAX_CALLERS_OF_OTHERS;
        if !may || !has_room || fcntl_setfl(&socket, OFlags::NONBLOCK).is_err() {
            self.refused += u64::from(!asks);
            return;
        }
        let pid = pid.unwrap_or_else(rustix::process::getpid);
        if !asks && self.known.len() < MAX_KNOWN_PROCESSES {
            self.known.insert(number_of(pid));
            // The leader may be a process that held too little to call, and is gone. A process of
            // the recording that is in another session than heapprof's has left heapprof's session
            // since it began.
            let session = session_of(Some(pid))
                .ok()
                .filter(|session| session_of(None).ok() != Some(*session));
            self.known
                .extend(session.and_then(Pid::from_raw).map(number_of));
        }
        self.waiting.push(KeeperCaller {
            socket,
            asks,
            owner,
            pid,
            until: Instant::now() + HAND_OVER_TIMEOUT,
        });
    }

    /// Whether a process of another user belongs to the recording: it descends from heapprof or
    /// from a recorded process, or is in a session that one of them has begun.
    fn is_ours(&self, pid: Pid, is_living: impl Fn(u32) -> bool) -> bool {
        let session = session_of(Some(pid)).ok().and_then(Pid::from_raw);
        if session.is_some_and(|session| self.known.contains(&number_of(session))) {
            return true;
        }
        let own = std::process::id();
        let mut number = number_of(pid);
        for _ in 0..MAX_ANCESTORS {
            if number == own || is_living(number) {
                return true;
            }
            match ProcessIdentity::from_pid(number) {
                Ok(found) if found.parent > 1 => number = found.parent,
                _ => return false,
            }
        }
        false
    }

    /// Whether there is time left for reading the ledgers of processes with the rights `rights`.
    /// Processes with other rights have separate limits.
    pub(super) fn have_time(&self, rights: ProcessRights) -> bool {
        self.spent
            .get(&rights)
            .is_none_or(|spent| *spent <= MAX_EXTRA_READ_TIME)
    }

    /// Adds the time of reading a ledger to the time that was used for processes with the rights
    /// `rights`.
    pub(super) fn note_time(&mut self, rights: ProcessRights, time: Duration) {
        *self.spent.entry(rights).or_default() += time;
    }

    /// Returns a note about callers that were refused, if there were any.
    pub(super) fn note(&self) -> Option<RecordingNote> {
        (self.refused > 0).then_some(RecordingNote::RefusedCalls(self.refused))
    }
}

/// Returns a process id as a number.
pub(super) fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Opens a socket at which processes call, and returns it with its path. Only recorded processes
/// know the path: other processes can't list the folder, and the kernel's list of sockets shows a
/// path below `/proc/self/fd` instead.
pub(super) fn open_listening_socket(list: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let folder = list.parent().ok_or(io::ErrorKind::NotFound)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let named = tempfile::Builder::new()
        .prefix("k")
        .rand_bytes(16)
        .make_in(folder, |path| {
            let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let hidden = sockets::address(&opened, &name)?;
            match bind(&socket, &hidden) {
                // There is no /proc.
                Err(Errno::NOENT) => bind(&socket, &SocketAddrUnix::new(path)?)?,
                bound => bound?,
            }
            Ok(socket)
        })?;
    let (socket, path) = named.keep().map_err(|error| error.error)?;
    // A process may have become another user, so everybody may connect. Only that user vouches for
    // what the process hands over.
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    listen(&socket, MAX_BACKLOG)?;
    Ok((socket, path))
}
