//! Files of the engine. Their descriptor numbers are separate from the program's numbers.

use std::ffi::CStr;

use super::call;

/// An open file that closes itself.
pub struct EngineFile(i32);

/// The remaining time that a thread may wait for a pipe's reader or for an answer. All waits
/// together share this time, so that a reader can't prolong it by reading a little at a time.
pub struct WaitTimeout(libc::timespec);

impl WaitTimeout {
    /// Returns a limit of ten seconds.
    pub const fn new() -> Self {
        Self::from_seconds(10)
    }

    /// Returns a limit of `seconds` seconds.
    pub const fn from_seconds(seconds: i64) -> Self {
        Self(libc::timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        })
    }
}

impl EngineFile {
    /// Opens `path`; the error is an errno.
    pub fn open(path: &CStr, flags: i32, mode: u32) -> Result<Self, i32> {
        Self::open_from(libc::AT_FDCWD, path, flags, mode)
    }

    /// Opens `name` in a folder; the error is an errno.
    pub fn open_in(folder: &Self, name: &CStr, flags: i32, mode: u32) -> Result<Self, i32> {
        Self::open_from(folder.0, name, flags, mode)
    }

    fn open_from(folder: i32, path: &CStr, flags: i32, mode: u32) -> Result<Self, i32> {
        let flags = (flags | libc::O_CLOEXEC) as usize;
        let at = folder as usize;
        // SAFETY: the path ends in a zero byte.
        let fd = unsafe {
            call(
                libc::SYS_openat,
                [at, path.as_ptr() as usize, flags, mode as usize, 0, 0],
            )
        };
        Self::from_number(fd)
    }

    /// Makes a file from a result of the kernel: a new descriptor number, or a negated errno.
    pub(super) fn from_number(number: isize) -> Result<Self, i32> {
        if number < 0 {
            Err(-number as i32)
        } else {
            Ok(Self(number as i32).move_out_of_the_way())
        }
    }

    /// Moves the file to a descriptor number that programs do not use. This is needed because a
    /// program may close all numbers that it does not know, or may go on using a number that it has
    /// closed.
    fn move_out_of_the_way(self) -> Self {
        const FIRST_FILE_NUMBER: usize = 200;
        let args = [
            self.0 as usize,
            libc::F_DUPFD_CLOEXEC as usize,
            FIRST_FILE_NUMBER,
            0,
            0,
            0,
        ];
        // SAFETY: the file is the engine's. The kernel refuses a number above the process's limit.
        match unsafe { call(libc::SYS_fcntl, args) } {
            high if high >= 0 => Self(high as i32),
            _ => self,
        }
    }

    /// Returns the file's descriptor number.
    pub fn number(&self) -> i32 {
        self.0
    }

    /// Returns the kernel's data about the file.
    pub fn stat(&self) -> Option<libc::stat> {
        stat_from(self.0, c"", libc::AT_EMPTY_PATH)
    }

    /// Returns the target of a link that was opened with `O_PATH` and `O_NOFOLLOW`. The target is
    /// cut off if `buf` is too small, and empty if the file is no link.
    pub fn read_link<'a>(&self, buf: &'a mut [u8]) -> &'a [u8] {
        read_link_from(self.0, c"", buf)
    }

    /// Sets the file's mode, if it has another mode.
    pub fn set_mode(&self, mode: u32) {
        if self
            .stat()
            .is_none_or(|found| found.st_mode & 0o7777 == mode)
        {
            return;
        }
        // SAFETY: takes no memory.
        unsafe {
            call(
                libc::SYS_fchmod,
                [self.0 as usize, mode as usize, 0, 0, 0, 0],
            )
        };
    }

    /// Waits until a pipe can take more data. Its reader may be suspended, so this returns false
    /// once `patience` is used up.
    pub fn has_room(&self, patience: &mut WaitTimeout) -> bool {
        self.is_ready(libc::POLLOUT, patience)
    }

    /// Waits for an answer, or for the end of the process that should send it. Returns false once
    /// `patience` is used up.
    pub fn is_answered(&self, patience: &mut WaitTimeout) -> bool {
        self.is_ready(libc::POLLIN, patience)
    }

    fn is_ready(&self, events: i16, patience: &mut WaitTimeout) -> bool {
        let mut poll = libc::pollfd {
            fd: self.0,
            events,
            revents: 0,
        };
        let left = &raw mut patience.0;
        let args = [&raw mut poll as usize, 1, left as usize, 0, 0, 0];
        loop {
            // SAFETY: one structure of each kind; the kernel counts the time down.
            match unsafe { call(libc::SYS_ppoll, args) } {
                n if n == -libc::EINTR as isize => {}
                n => return n > 0,
            }
        }
    }

    /// Reads the next bytes. Returns the number of bytes that were read; 0 at the end and on
    /// errors.
    pub fn read(&self, buf: &mut [u8]) -> usize {
        loop {
            // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
            let n = unsafe {
                let args = [
                    self.0 as usize,
                    buf.as_mut_ptr() as usize,
                    buf.len(),
                    0,
                    0,
                    0,
                ];
                call(libc::SYS_read, args)
            };
            if n != -libc::EINTR as isize {
                return n.max(0) as usize;
            }
        }
    }

    /// Reads the bytes at `offset`. Returns the number of bytes that were read; 0 at the end and on
    /// errors.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> usize {
        loop {
            let at = buf.as_mut_ptr() as usize;
            let args = [self.0 as usize, at, buf.len(), offset as usize, 0, 0];
            // SAFETY: the kernel writes at most `buf.len()` bytes into `buf`.
            let n = unsafe { call(libc::SYS_pread64, args) };
            if n != -libc::EINTR as isize {
                return n.max(0) as usize;
            }
        }
    }

    /// Writes all of `bytes` at `offset`. Returns false if the kernel refuses.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> bool {
        let at = bytes.as_ptr() as usize;
        let args = [self.0 as usize, at, bytes.len(), offset as usize, 0, 0];
        // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
        let n = unsafe { call(libc::SYS_pwrite64, args) };
        usize::try_from(n) == Ok(bytes.len())
    }

    /// Writes all of `bytes`. The error is an errno. If a pipe was opened as non-blocking, this
    /// waits for its reader for at most ten seconds in all.
    pub fn write_all(&self, bytes: &[u8]) -> Result<(), i32> {
        self.write_with_timeout(bytes, &mut WaitTimeout::new())
    }

    /// Writes all of `bytes` as [`write_all`](Self::write_all) does, but waits for at most the
    /// remaining time of `patience`.
    pub fn write_with_timeout(
        &self,
        mut bytes: &[u8],
        patience: &mut WaitTimeout,
    ) -> Result<(), i32> {
        while !bytes.is_empty() {
            // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
            let n = unsafe {
                let args = [
                    self.0 as usize,
                    bytes.as_ptr() as usize,
                    bytes.len(),
                    0,
                    0,
                    0,
                ];
                call(libc::SYS_write, args)
            };
            match n {
                0 => return Err(libc::EIO),
                n if n > 0 => bytes = &bytes[n as usize..],
                n if n == -libc::EINTR as isize => {}
                n if n == -libc::EAGAIN as isize => {
                    if !self.has_room(patience) {
                        return Err(libc::ETIMEDOUT);
                    }
                }
                n => {
                    take_back_signal(-n as i32);
                    return Err(-n as i32);
                }
            }
        }
        Ok(())
    }
}

/// Removes the pending signal (SIGPIPE) that a failed write of the engine has caused. The signal is
/// blocked meanwhile.
pub fn take_back_signal(errno: i32) {
    let signal = match errno {
        libc::EFBIG => libc::SIGXFSZ,
        libc::EPIPE => libc::SIGPIPE,
        _ => return,
    };
    let (set, no_wait) = (1u64 << (signal - 1), [0u64; 2]);
    let args = [
        &raw const set as usize,
        0,
        no_wait.as_ptr() as usize,
        8,
        0,
        0,
    ];
    // SAFETY: set and time are valid; without a pending signal it answers EAGAIN at once.
    unsafe { call(libc::SYS_rt_sigtimedwait, args) };
}

/// Writes once to a file descriptor of the program.
pub fn write_to(fd: i32, bytes: &[u8]) {
    // SAFETY: the kernel reads at most `bytes.len()` bytes of `bytes`.
    unsafe {
        call(
            libc::SYS_write,
            [fd as usize, bytes.as_ptr() as usize, bytes.len(), 0, 0, 0],
        )
    };
}

impl Drop for EngineFile {
    fn drop(&mut self) {
        // SAFETY: the descriptor is the engine's.
        unsafe { call(libc::SYS_close, [self.0 as usize, 0, 0, 0, 0, 0]) };
    }
}

/// Reads all of a small file such as those under /proc.
pub fn read_file(path: &CStr) -> Vec<u8> {
    let mut all = Vec::new();
    let Ok(file) = EngineFile::open(path, libc::O_RDONLY, 0) else {
        return all;
    };
    // Memory that is not needed is not touched, because most of these files are short.
    const FIRST_READ_LEN: usize = 2048;
    loop {
        let len = all.len();
        all.resize(2 * len.max(FIRST_READ_LEN / 2), 0);
        let n = file.read(&mut all[len..]);
        all.truncate(len + n);
        if n == 0 {
            return all;
        }
    }
}

/// Opens a regular file for reading. Returns `None` if the file is of another kind, or can't be
/// opened. A pipe or a device is not opened at all, because that may have an effect.
pub fn open_regular(path: &CStr) -> Option<EngineFile> {
    let found = EngineFile::open(path, libc::O_PATH, 0).ok()?.stat()?;
    let is_regular = found.st_mode & libc::S_IFMT == libc::S_IFREG;
    let how = libc::O_RDONLY | libc::O_NONBLOCK;
    is_regular
        .then(|| EngineFile::open(path, how, 0).ok())
        .flatten()
}

/// Whether this process may execute a file.
pub fn is_executable(path: &CStr) -> bool {
    let (at, mode) = (libc::AT_FDCWD as usize, libc::X_OK as usize);
    let args = [at, path.as_ptr() as usize, mode, 0, 0, 0];
    // SAFETY: the path ends in a zero byte.
    unsafe { call(libc::SYS_faccessat, args) == 0 }
}

/// Whether the process has fewer free file descriptors than a dump uses at a time.
pub fn is_short_of_files() -> bool {
    let taken: [_; 4] = std::array::from_fn(|_| EngineFile::open(c"/", libc::O_PATH, 0));
    let is_full = |file: &Result<EngineFile, i32>| matches!(file, Err(libc::EMFILE | libc::ENFILE));
    taken.iter().any(is_full)
}

/// Closes the `count` open files with the highest descriptor numbers. This is for a child with its
/// own file descriptor table, which needs free descriptors.
pub fn close_last(mut count: u32) {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: `limit` is valid to write.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return;
    }
    // The standard files stay. The table is full, so the first numbers that are tried are open.
    for fd in (3..limit.rlim_cur.min(1 << 20) as usize).rev() {
        if count == 0 {
            break;
        }
        // SAFETY: only the caller uses this table.
        if unsafe { call(libc::SYS_close, [fd, 0, 0, 0, 0, 0]) } == 0 {
            count -= 1;
        }
    }
}

/// Gives the calling thread its own file descriptor table, and closes all files in it except
/// stderr. On kernels before 5.9, nothing changes.
pub fn leave_files() {
    const CLOSE_RANGE_UNSHARE: usize = 1 << 1;
    let behind = [3, u32::MAX as usize, CLOSE_RANGE_UNSHARE, 0, 0, 0];
    // SAFETY: the table that is emptied is a new one that only this thread has.
    unsafe {
        if call(libc::SYS_close_range, behind) == 0 {
            call(libc::SYS_close_range, [0, 1, 0, 0, 0, 0]);
        }
    }
}

/// Returns the kernel's path of the working folder; empty if there is none.
pub fn working_folder(buf: &mut [u8]) -> &[u8] {
    let args = [buf.as_mut_ptr() as usize, buf.len(), 0, 0, 0, 0];
    // SAFETY: the kernel writes no more than `buf.len()` bytes.
    let n = unsafe { call(libc::SYS_getcwd, args) };
    // The length includes the final zero.
    let path = &buf[..(n.max(1) - 1) as usize];
    if path.starts_with(b"/") { path } else { &[] }
}

/// Returns a link's target, as far as `buf` has room; empty if there is no link.
pub fn read_link<'a>(path: &CStr, buf: &'a mut [u8]) -> &'a [u8] {
    read_link_from(libc::AT_FDCWD, path, buf)
}

fn read_link_from<'a>(folder: i32, path: &CStr, buf: &'a mut [u8]) -> &'a [u8] {
    let (at, to) = (folder as usize, buf.as_mut_ptr() as usize);
    let args = [at, path.as_ptr() as usize, to, buf.len(), 0, 0];
    // SAFETY: the path ends in a zero byte, and the kernel writes no more than `buf.len()` bytes.
    let n = unsafe { call(libc::SYS_readlinkat, args) };
    &buf[..n.max(0) as usize]
}

/// Whether two paths lead to the same file.
pub fn is_same_file(one: &CStr, other: &CStr) -> bool {
    let id = |path| {
        let found = stat_from(libc::AT_FDCWD, path, 0);
        found.map(|found| (found.st_dev, found.st_ino))
    };
    id(one).is_some_and(|one| id(other) == Some(one))
}

/// Returns the id of the user who owns a file; `None` if there is no such file.
pub fn file_owner(path: &CStr) -> Option<u32> {
    stat_from(libc::AT_FDCWD, path, 0).map(|found| found.st_uid)
}

/// Returns the kernel's data about the file with a name in a folder. If the file is a link and
/// `follow` is true, the data are about the link's target.
pub fn stat_in(folder: &EngineFile, name: &CStr, follow: bool) -> Option<libc::stat> {
    let flags = if follow { 0 } else { libc::AT_SYMLINK_NOFOLLOW };
    stat_from(folder.0, name, flags)
}

fn stat_from(folder: i32, path: &CStr, flags: i32) -> Option<libc::stat> {
    // SAFETY: the path ends in a zero byte, and the kernel writes no more than its structure.
    unsafe {
        let mut found: libc::stat = std::mem::zeroed();
        let (at, to) = (folder as usize, &raw mut found as usize);
        let args = [at, path.as_ptr() as usize, to, flags as usize, 0, 0];
        (call(libc::SYS_newfstatat, args) == 0).then_some(found)
    }
}

/// Renames a file in its folder; the error is an errno.
pub fn rename_in(folder: &EngineFile, from: &CStr, to: &CStr) -> Result<(), i32> {
    let at = folder.0 as usize;
    // SAFETY: both names end in a zero byte.
    let n = unsafe {
        let args = [at, from.as_ptr() as usize, at, to.as_ptr() as usize, 0, 0];
        call(libc::SYS_renameat, args)
    };
    if n < 0 { Err(-n as i32) } else { Ok(()) }
}

/// Removes a file from a folder. Returns whether the file was there.
pub fn unlink_in(folder: &EngineFile, name: &CStr) -> bool {
    let args = [folder.0 as usize, name.as_ptr() as usize, 0, 0, 0, 0];
    // SAFETY: the name ends in a zero byte.
    unsafe { call(libc::SYS_unlinkat, args) == 0 }
}

/// Makes a folder in another folder. The error is an errno.
pub fn make_folder_in(folder: &EngineFile, called: &CStr) -> Result<(), i32> {
    /// Rights of a new folder, whatever the umask is: its user may write to it, all others only
    /// read it.
    const FOLDER_MODE: usize = 0o755;
    let (at, name) = (folder.0 as usize, called.as_ptr() as usize);
    // SAFETY: the name ends in a zero byte.
    let n = unsafe { call(libc::SYS_mkdirat, [at, name, FOLDER_MODE, 0, 0, 0]) };
    if n < 0 {
        return Err(-n as i32);
    }
    set_mode_in(folder, called, FOLDER_MODE);
    Ok(())
}

/// Sets the mode of a file in a folder.
pub fn set_mode_in(folder: &EngineFile, name: &CStr, mode: usize) {
    let args = [folder.0 as usize, name.as_ptr() as usize, mode, 0, 0, 0];
    // SAFETY: the name ends in a zero byte.
    unsafe { call(libc::SYS_fchmodat, args) };
}

/// Returns a text for an errno of a failed write to a file.
pub fn error_text(errno: i32) -> &'static str {
    match errno {
        libc::EACCES | libc::EPERM => "not permitted",
        libc::EDQUOT | libc::ENOSPC => "no space left",
        libc::EFBIG => "file too large",
        libc::EISDIR => "is a folder",
        libc::EMFILE | libc::ENFILE => "too many open files",
        libc::ENAMETOOLONG => "name too long",
        libc::ENOENT => "no such folder",
        libc::ENOTDIR => "not a folder",
        libc::EROFS => "read-only file system",
        libc::ETIMEDOUT => "nothing reads from it, or its reader is too slow",
        _ => "cannot be written",
    }
}
