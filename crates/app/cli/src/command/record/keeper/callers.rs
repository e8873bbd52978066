//! Those who call a keeper: processes of the recording, and other commands of its user. Whoever is
//! neither is refused before anything is read, and what a user's processes may take has limits.

use std::collections::{HashMap, HashSet};
use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heapprof_process::ProcessIdentity;
use rustix::fs::{CWD, Mode, OFlags, fcntl_setfl, openat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::Pid;

use crate::job_control::session_of;
use crate::peer::SocketPeer;
use crate::place::FileOwner;
use crate::rights::ProcessRights;
use crate::sockets;

/// The maximum number of processes that wait to be let in. The kernel may have a lower limit.
const MAX_BACKLOG: i32 = 4096;
/// So long a process may take to hand its file over once it has called. Only one that is stopped
/// takes long, or one of a machine with very much to do. Nobody waits for it meanwhile.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(60);
/// The maximum number of steps from a process to one that is known.
const MAX_ANCESTORS: usize = 64;
/// The maximum number of processes whose sessions are known.
const MAX_KNOWN_PROCESSES: usize = 1 << 16;
/// The maximum number of callers, and of those of another user.
const MAX_CALLERS: usize = 4096;
const MAX_CALLERS_OF_OTHERS: usize = 256;
/// The maximum time that reading the files of a user's processes takes beyond what is usual.
const MAX_EXTRA_READ_TIME: Duration = Duration::from_secs(20);

/// Somebody who has called, and has not said anything yet.
pub(super) struct KeeperCaller {
    pub(super) socket: OwnedFd,
    /// Whether they ask for something, instead of handing a file over.
    pub(super) asks: bool,
    pub(super) owner: FileOwner,
    pub(super) pid: Pid,
    pub(super) until: Instant,
}

/// Who may call, and what they have taken.
#[derive(Default)]
pub(super) struct CallerRegistry {
    pub(super) waiting: Vec<KeeperCaller>,
    /// Processes of the recording that have called, each of which may lead a session, and those
    /// that lead theirs.
    known: HashSet<u32>,
    /// How long reading took beyond what is usual, by the rights of whose books they were.
    spent: HashMap<ProcessRights, Duration>,
    /// How many were refused.
    refused: u64,
}

impl CallerRegistry {
    /// Whether nobody else can be let in now.
    pub(super) fn are_full(&self) -> bool {
        self.waiting.len() >= MAX_CALLERS
    }

    /// Lets somebody in who has called: to ask, this user and root; to hand something over,
    /// processes of the recording. `is_living` says of a number whether a process of the recording
    /// has it now.
    pub(super) fn admit(&mut self, socket: OwnedFd, asks: bool, is_living: impl Fn(u32) -> bool) {
        let Some(SocketPeer { pid, owner }) = SocketPeer::from_socket(&socket) else {
            return;
        };
        let may = match (asks, pid) {
            (true, _) => owner.is_us() || owner.user == 0,
            // Of a process without a number here, nobody could say when it ends.
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
            // Its leader may be a process that has held too little to call, and is gone. A process
            // of the recording that is in another session than ours has left ours since it began.
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

    /// Whether a process of another user belongs to the recording: it descends from this process or
    /// from one that does, or is in a session that one of them has begun.
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

    /// Whether there is time left for what processes with these rights have held. Nobody takes the
    /// time of others: those that have kept this user's rights have their own.
    pub(super) fn have_time(&self, rights: ProcessRights) -> bool {
        self.spent
            .get(&rights)
            .is_none_or(|spent| *spent <= MAX_EXTRA_READ_TIME)
    }

    /// Notes how long it took.
    pub(super) fn note_time(&mut self, rights: ProcessRights, time: Duration) {
        *self.spent.entry(rights).or_default() += time;
    }

    /// What is to be said of those who were refused.
    pub(super) fn note(&self) -> Option<String> {
        (self.refused > 0).then(|| {
            format!(
                "{} calls of other users' processes were refused: they are not known to belong to \
                 the recording, or were too many at once",
                self.refused
            )
        })
    }
}

/// A process's number.
pub(super) fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// A socket at which processes call, and its path. Only they know its name: others can't list the
/// folder, and the kernel's list of sockets has the path by which it was bound.
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
    // A process may have become another user. What it hands over is that user's word.
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    listen(&socket, MAX_BACKLOG)?;
    Ok((socket, path))
}
