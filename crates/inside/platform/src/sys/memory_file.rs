//! Makes and maps files in memory, and passes them to another process.

use std::ffi::CStr;

use super::file::{EngineFile, WaitTimeout};
use super::memory::PAGE_SIZE;
use super::{call, sleep};

/// Makes a file of `len` zeros that has memory only where something is written. The error is an
/// errno.
pub fn memory_file(len: usize) -> Result<EngineFile, i32> {
    let name = c"heapprof".as_ptr() as usize;
    let flags = (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) as usize;
    // SAFETY: the name ends in a zero byte.
    let made = unsafe { call(libc::SYS_memfd_create, [name, flags, 0, 0, 0, 0]) };
    let file = EngineFile::from_number(made)?;
    // SAFETY: takes no memory.
    match unsafe {
        call(
            libc::SYS_ftruncate,
            [file.number() as usize, len, 0, 0, 0, 0],
        )
    } {
        0 => Ok(file),
        error => Err(-error as i32),
    }
}

impl EngineFile {
    /// Prevents changes of the file's length. Also prevents writes, except through mappings that
    /// exist already. Returns whether the kernel supports this (Linux 5.1).
    pub fn seal(&self) -> bool {
        const FUTURE_WRITE: i32 = 0x10;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL | FUTURE_WRITE;
        let args = [
            self.number() as usize,
            libc::F_ADD_SEALS as usize,
            seals as usize,
            0,
            0,
            0,
        ];
        // SAFETY: takes no memory.
        unsafe { call(libc::SYS_fcntl, args) == 0 }
    }
}

/// Returns this process's soft limit for `resource`; `None` if the resource is not limited.
pub fn soft_limit(resource: usize) -> Option<u64> {
    let mut limits = [0u64; 2];
    let to = limits.as_mut_ptr() as usize;
    // SAFETY: the kernel writes two words.
    let asked = unsafe { call(libc::SYS_prlimit64, [0, resource, 0, to, 0, 0]) };
    (asked == 0 && limits[0] != u64::MAX).then_some(limits[0])
}

/// Maps a piece of a file as shared memory, so that writes to the memory go into the file. Returns
/// null if the kernel refuses.
pub fn map_file(file: &EngineFile, offset: usize, len: usize) -> *mut u8 {
    let prot = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize;
    let args = [0, len, prot, flags, file.number() as usize, offset];
    // SAFETY: a new mapping touches no memory that exists.
    match unsafe { call(libc::SYS_mmap, args) } {
        at if at > 0 => at as *mut u8,
        _ => std::ptr::null_mut(),
    }
}

/// Maps the `len` bytes of a file that follow a mapped page, without the file's descriptor. Returns
/// null if the kernel refuses.
pub fn map_behind(page: *const u8, len: usize) -> *mut u8 {
    // For a shared mapping, a length of zero makes the kernel create a second mapping (mremap(2)).
    let args = [
        page as usize,
        0,
        PAGE_SIZE + len,
        libc::MREMAP_MAYMOVE as usize,
        0,
        0,
    ];
    // SAFETY: the page stays as it is, and the new mapping touches no memory that exists.
    match unsafe { call(libc::SYS_mremap, args) } {
        at if at > 0 => {
            // SAFETY: the first page of the new mapping, of which no other code knows.
            unsafe {
                super::unmap(at as *mut u8, PAGE_SIZE);
                (at as *mut u8).add(PAGE_SIZE)
            }
        }
        _ => std::ptr::null_mut(),
    }
}

/// Moves a mapping to the addresses of another mapping, which is unmapped. Returns whether the
/// kernel did so.
///
/// # Safety
/// Both are mappings of the engine of this length, and no other code knows of the first one.
pub unsafe fn move_over(from: *mut u8, to: *mut u8, len: usize) -> bool {
    let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    let args = [from as usize, len, len, flags, to as usize, 0];
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_mremap, args) == to as isize }
}

/// Maximum number of times that a connect is repeated while the listener's queue is full.
const MAX_SEND_ATTEMPTS: u32 = 20;

/// Passes one to three files to the process that listens at a socket's path, without waiting for an
/// answer. The error is an errno.
pub fn hand_over(files: &[&EngineFile], path: &CStr, text: &[u8]) -> Result<(), i32> {
    send(
        connect(path, MAX_SEND_ATTEMPTS)?.number() as usize,
        files,
        text,
    )
}

/// Sends a text to the process that listens at a socket's path, and waits for no answer. The error
/// is an errno.
pub fn send_message(path: &CStr, text: &[u8], tries: u32) -> Result<(), i32> {
    send(connect(path, tries)?.number() as usize, &[], text)
}

/// Sends a text to the process that listens at a socket's path, and waits up to `seconds` for an
/// answer. If no answer came and `goes_on` returns true, waits for another `seconds`. Returns
/// whether there was an answer. The error is an errno, and means that the text was not sent.
pub fn send_request(
    path: &CStr,
    text: &[u8],
    tries: u32,
    seconds: i64,
    mut goes_on: impl FnMut() -> bool,
) -> Result<bool, i32> {
    let socket = connect(path, tries)?;
    send(socket.number() as usize, &[], text)?;
    while !socket.is_answered(&mut WaitTimeout::from_seconds(seconds)) {
        if !goes_on() {
            return Ok(false);
        }
    }
    // A process that closes the connection sends no answer.
    Ok(socket.read(&mut [0; 8]) > 0)
}

/// Connects to the process that listens at a socket's path. While that process's queue is full,
/// this tries again every millisecond, up to `tries` times. The error is an errno.
fn connect(path: &CStr, tries: u32) -> Result<EngineFile, i32> {
    const SOCKET_KIND: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes no memory.
    let socket = unsafe {
        let args = [libc::AF_UNIX as usize, SOCKET_KIND as usize, 0, 0, 0, 0];
        EngineFile::from_number(call(libc::SYS_socket, args))?
    };
    // SAFETY: zeros are a valid address, whose path ends with a zero.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    let path = path.to_bytes();
    if path.len() >= address.sun_path.len() {
        return Err(libc::ENAMETOOLONG);
    }
    for (to, &byte) in address.sun_path.iter_mut().zip(path) {
        *to = byte as libc::c_char;
    }
    let to = &raw const address as usize;
    let number = socket.number() as usize;
    let mut tried = 0;
    loop {
        let args = [number, to, size_of::<libc::sockaddr_un>(), 0, 0, 0];
        // SAFETY: the kernel reads the address.
        match unsafe { call(libc::SYS_connect, args) } {
            0 => return Ok(socket),
            // The queue of connections that were not accepted yet is full.
            error if error == -libc::EAGAIN as isize && tried < tries => sleep(1_000_000),
            error => return Err(-error as i32),
        }
        tried += 1;
    }
}

/// Makes the system call by which [`hand_over`] sends a file, but without a socket, so that nothing
/// is sent.
pub fn try_to_send(file: &EngineFile) {
    let _ = send(usize::MAX, &[file], b"");
}

/// Sends a text, with up to three files. The error is an errno.
fn send(socket: usize, files: &[&EngineFile], text: &[u8]) -> Result<(), i32> {
    #[repr(C)]
    struct FileRights {
        head: libc::cmsghdr,
        numbers: [i32; 3],
    }
    // SAFETY: zeros are valid in both.
    let (mut rights, mut message): (FileRights, libc::msghdr) = unsafe { std::mem::zeroed() };
    let count = files.len().min(rights.numbers.len());
    let len = std::mem::offset_of!(FileRights, numbers) + count * size_of::<i32>();
    rights.head.cmsg_len = len as _;
    rights.head.cmsg_level = libc::SOL_SOCKET;
    rights.head.cmsg_type = libc::SCM_RIGHTS;
    for (number, file) in rights.numbers.iter_mut().zip(files) {
        *number = file.number();
    }
    let mut part = libc::iovec {
        iov_base: text.as_ptr().cast_mut().cast(),
        iov_len: text.len(),
    };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if count > 0 {
        message.msg_control = (&raw mut rights).cast();
        message.msg_controllen = size_of::<FileRights>() as _;
    }
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    let args = [socket, &raw const message as usize, flags, 0, 0, 0];
    // SAFETY: the kernel reads the message and what it leads to.
    match unsafe { call(libc::SYS_sendmsg, args) } {
        sent if sent >= 0 => Ok(()),
        error => Err(-error as i32),
    }
}
