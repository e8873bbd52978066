//! The wiretap's system calls. No function here waits or allocates.
//!
//! Functions of libc at which a thread can be cancelled are avoided by direct system calls, because
//! sending must not end a thread of the program.

use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use libc::{c_int, c_long};

/// Lowest descriptor for the socket. The program's own files keep the descriptors that they would
/// have without the socket.
const MIN_SOCKET_FD: c_int = 200;

/// Runs `work`, and restores errno.
pub fn keeping_errno<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the function has no precondition, and returns the place of this thread's errno.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the place stays as long as the thread, and nothing holds a reference to it.
    let before = unsafe { place.read() };
    let result = work();
    // SAFETY: as above; the work ran in this thread.
    unsafe { place.write(before) };
    result
}

/// Opens a socket for datagrams to an address. The socket is closed when the process executes
/// another program.
pub(crate) fn open_socket(to: &SocketAddr) -> Option<c_int> {
    let family = match to {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain numbers.
    let low = unsafe { libc::socket(family, kind, 0) };
    if low < 0 {
        return None;
    }
    // SAFETY: the descriptor was just opened; the others are plain numbers.
    let high = unsafe { libc::fcntl(low, libc::F_DUPFD_CLOEXEC, MIN_SOCKET_FD) };
    close(low);
    (high >= 0).then_some(high)
}

/// Closes the descriptor of a socket.
pub(crate) fn close(fd: c_int) {
    // SAFETY: plain numbers; the caller has opened the descriptor, and uses it no more.
    unsafe { libc::syscall(libc::SYS_close, c_long::from(fd)) };
}

/// Returns the kernel's number of the socket with this descriptor; `None` if it is no socket. Each
/// open socket has a different number. So if the program has closed the socket, a later file with
/// its descriptor is not mistaken for it.
pub(crate) fn socket_number(fd: c_int) -> Option<u32> {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: `found` has room for what is written.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call has filled it.
    let found = unsafe { found.assume_init() };
    let is_socket = found.st_mode & libc::S_IFMT == libc::S_IFSOCK;
    is_socket.then_some(found.st_ino as u32)
}

/// Sends a datagram. It may be lost; the caller is not informed.
pub(crate) fn send(fd: c_int, bytes: &[u8], to: &SocketAddr) {
    match to {
        SocketAddr::V4(to) => send_to(
            fd,
            bytes,
            &libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: to.port().to_be(),
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(to.ip().octets()),
                },
                sin_zero: [0; 8],
            },
        ),
        SocketAddr::V6(to) => send_to(
            fd,
            bytes,
            &libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: to.port().to_be(),
                sin6_flowinfo: to.flowinfo(),
                sin6_addr: libc::in6_addr {
                    s6_addr: to.ip().octets(),
                },
                sin6_scope_id: to.scope_id(),
            },
        ),
    }
}

fn send_to<A>(fd: c_int, bytes: &[u8], address: &A) {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the kernel reads the bytes and the address, which have these lengths.
    unsafe {
        libc::syscall(
            libc::SYS_sendto,
            c_long::from(fd),
            bytes.as_ptr(),
            bytes.len(),
            c_long::from(flags),
            std::ptr::from_ref(address),
            size_of::<A>(),
        )
    };
}

/// Returns a random number, which distinguishes a sender from all others.
pub(crate) fn random() -> u64 {
    let mut bytes = [0u8; 8];
    // SAFETY: the kernel writes at most as many bytes as there are.
    let got = unsafe {
        libc::syscall(
            libc::SYS_getrandom,
            bytes.as_mut_ptr(),
            bytes.len(),
            c_long::from(libc::GRND_NONBLOCK),
        )
    };
    if got == 8 {
        return u64::from_ne_bytes(bytes);
    }
    // The kernel has no random numbers yet. The time in nanoseconds and the process are not likely
    // to come together twice.
    let nanos = since_1970().map_or(0, |time| time.as_nanos() as u64);
    (nanos ^ (u64::from(std::process::id()) << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Returns the milliseconds since 1970 UTC.
pub(crate) fn now_ms() -> u64 {
    let since = since_1970().map(|time| u64::try_from(time.as_millis()));
    since.and_then(Result::ok).unwrap_or(0)
}

fn since_1970() -> Option<std::time::Duration> {
    SystemTime::now().duration_since(UNIX_EPOCH).ok()
}

/// Writes the name of this machine into `room`. Returns the number of bytes.
pub(crate) fn host_name(room: &mut [u8]) -> usize {
    // SAFETY: libc writes at most as many bytes as there are.
    let done = unsafe { libc::gethostname(room.as_mut_ptr().cast(), room.len()) };
    let end = room.iter().position(|&byte| byte == 0);
    // A name that fills the room has no zero at its end.
    match done {
        0 => end.unwrap_or(room.len()),
        _ => 0,
    }
}

/// Returns the effective user id of this process.
pub(crate) fn user() -> u32 {
    // SAFETY: the call has no precondition.
    unsafe { libc::geteuid() }
}
