//! Sockets by which other processes of this user reach a running heapprof. They are in a folder
//! that only this user can enter.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, mkdirat, openat, unlinkat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use rustix::process::geteuid;

/// The purpose of a socket.
#[derive(Clone, Copy, Debug)]
pub struct SocketKind {
    /// The beginning of the socket's name. The number of the process follows.
    prefix: &'static str,
    socket: SocketType,
}

impl SocketKind {
    /// The socket at which a `record` answers questions. It keeps messages in order.
    pub const RECORD: Self = Self {
        prefix: "",
        socket: SocketType::SEQPACKET,
    };
    /// The socket at which a `watch` receives marks.
    pub const WATCH: Self = Self {
        prefix: "watch-",
        socket: SocketType::DGRAM,
    };

    /// Makes a socket of this kind.
    pub fn socket(self, flags: SocketFlags) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | flags;
        Ok(socket_with(AddressFamily::UNIX, self.socket, flags, None)?)
    }

    /// Returns the names of the sockets of this kind in a folder.
    pub fn names(self, folder: &OwnedFd) -> Vec<String> {
        let Ok(entries) = rustix::fs::Dir::read_from(folder) else {
            return Vec::new();
        };
        let is_socket = |entry: &rustix::fs::DirEntry| {
            matches!(entry.file_type(), FileType::Socket | FileType::Unknown)
        };
        let is_ours = |name: &String| {
            let number = name.strip_prefix(self.prefix);
            number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
        };
        entries
            .filter_map(Result::ok)
            .filter(is_socket)
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_string))
            .filter(is_ours)
            .collect()
    }

    /// Removes the sockets at which no process listens any more.
    fn remove_stale(self, folder: &OwnedFd) {
        for name in self.names(folder) {
            let refused = address(folder, &name)
                .and_then(|address| Ok(connect(&self.socket(SocketFlags::NONBLOCK)?, &address)?));
            if refused.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                let _ = unlinkat(folder, &name, AtFlags::empty());
            }
        }
    }
}

/// Returns the paths of the folders in which sockets may be: the user's runtime folder if there is
/// one, and a folder in /tmp, which always exists.
fn paths() -> Vec<PathBuf> {
    let user = geteuid().as_raw();
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let of_user = of_user.filter(|path| path.is_absolute());
    let first = of_user.map(|path| path.join("heapprof"));
    let second = PathBuf::from(format!("/tmp/heapprof-run-{user}"));
    first.into_iter().chain([second]).collect()
}

/// Opens the existing folders for sockets, and returns them.
pub fn folders() -> impl Iterator<Item = OwnedFd> {
    paths().into_iter().filter_map(|path| open(&path).ok())
}

/// Opens a folder of sockets, if only this user may enter it.
fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(CWD, folder, flags, Mode::empty())?;
    let found = fstat(&opened)?;
    match found.st_uid == geteuid().as_raw() && found.st_mode & 0o077 == 0 {
        true => Ok(opened),
        false => Err(io::Error::other("other users can access it")),
    }
}

/// Returns the address of the socket `name` in an opened folder. The address stays valid even if
/// the folder's path leads to another folder later.
pub fn address(folder: &OwnedFd, name: &str) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    Ok(SocketAddrUnix::new(path)?)
}

/// A socket at which this process listens. The socket's name is removed when this value is dropped.
pub struct ListeningSocket {
    /// The socket, which does not block.
    pub socket: OwnedFd,
    /// The socket's path, for processes that do not open the folder.
    pub path: PathBuf,
    folder: OwnedFd,
    name: String,
}

impl ListeningSocket {
    /// Makes a socket in the first usable folder, and listens at it.
    pub fn start(kind: SocketKind) -> io::Result<Self> {
        let mut refused = io::Error::from(io::ErrorKind::NotFound);
        for folder in paths() {
            match Self::start_in(&folder, kind) {
                Ok(listening) => return Ok(listening),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    fn start_in(path: &Path, kind: SocketKind) -> io::Result<Self> {
        match mkdirat(CWD, path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = open(path)?;
        kind.remove_stale(&folder);
        let name = format!("{}{}", kind.prefix, std::process::id());
        // Processes that do not open the folder need the whole path, so the path must not be too
        // long.
        SocketAddrUnix::new(path.join(&name))?;
        let listening = kind.socket(SocketFlags::NONBLOCK)?;
        bind(&listening, &address(&folder, &name)?)?;
        if kind.socket == SocketType::SEQPACKET {
            listen(&listening, 64)?;
        }
        Ok(Self {
            socket: listening,
            path: path.join(&name),
            folder,
            name,
        })
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        let _ = unlinkat(&self.folder, &self.name, AtFlags::empty());
    }
}
