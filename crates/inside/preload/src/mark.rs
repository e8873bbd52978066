//! `heapprof_mark`, by which a program that runs under `heapprof watch` reports that a section
//! begins, and how much memory the program has. The functions here neither wait nor allocate.
//!
//! libc functions at which a thread may be cancelled are replaced by direct system calls, as in the
//! wiretap.

use std::ffi::{c_char, c_int};
use std::fmt::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use heapprof_engine::ENGINE;
use heapprof_wiretap::keeping_errno;

use crate::environment;
use crate::messages::text;

/// Maximum length of a datagram in bytes. A longer text is cut.
const MAX_DATAGRAM_LEN: usize = 1200;
/// Maximum length in bytes of the line from /proc/self/statm, which precedes the text.
const MAX_STATM_LEN: usize = 160;

/// Number of marks that could not be sent since the last sent mark.
static LOST_MARKS: AtomicU32 = AtomicU32::new(0);

/// Socket address of the `heapprof watch` that runs this program.
static WATCH_ADDRESS: OnceLock<libc::sockaddr_un> = OnceLock::new();

/// Stores the socket address of the `heapprof watch` that runs this program, if there is one.
pub fn prepare() {
    let Some(path) = environment::watch() else {
        return;
    };
    // SAFETY: numbers and an array of them alone.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    // A zero must follow the path.
    if path.len() >= address.sun_path.len() {
        return;
    }
    for (to, byte) in address.sun_path.iter_mut().zip(path) {
        *to = byte.cast_signed();
    }
    let _ = WATCH_ADDRESS.set(address);
}

/// Reports to `heapprof watch` that the section `name` of the program begins. May be called in any
/// thread, and in a signal handler.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn heapprof_mark(name: *const c_char) {
    let Some(watch) = WATCH_ADDRESS.get() else {
        return;
    };
    if ENGINE.lifecycle().is_sandboxed() {
        return;
    }
    // SAFETY: the caller's contract: a string, or null.
    let name = unsafe { text(name) }.unwrap_or_default();
    keeping_errno(|| send(watch, name));
}

/// A datagram under construction. Text beyond its maximum length is cut.
struct MarkDatagram {
    bytes: [u8; MAX_DATAGRAM_LEN],
    len: usize,
}

impl MarkDatagram {
    fn push(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.len..];
        let fits = bytes.len().min(room.len());
        room[..fits].copy_from_slice(&bytes[..fits]);
        self.len += fits;
    }
}

impl Write for MarkDatagram {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

fn send(watch: &libc::sockaddr_un, name: &[u8]) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |time| time.as_millis());
    let mut datagram = MarkDatagram {
        bytes: [0; MAX_DATAGRAM_LEN],
        len: 0,
    };
    let lost = LOST_MARKS.swap(0, Ordering::Relaxed);
    let _ = writeln!(
        datagram,
        "heapprof mark 1 {} {now} lost {lost}",
        std::process::id()
    );
    push_statm(&mut datagram);
    datagram.push(name);
    // SAFETY: plain numbers.
    let socket = unsafe {
        libc::syscall(
            libc::SYS_socket,
            libc::AF_UNIX,
            libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    if socket < 0 {
        LOST_MARKS.fetch_add(lost + 1, Ordering::Relaxed);
        return;
    }
    // SAFETY: the kernel reads the bytes and the address, which have these lengths.
    let sent = unsafe {
        libc::syscall(
            libc::SYS_sendto,
            socket,
            datagram.bytes.as_ptr(),
            datagram.len,
            libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            std::ptr::from_ref(watch),
            size_of::<libc::sockaddr_un>(),
        )
    };
    if sent < 0 {
        LOST_MARKS.fetch_add(lost + 1, Ordering::Relaxed);
    }
    close(socket as c_int);
}

/// Appends the kernel's line about this process's memory; an empty line if it can't be read.
fn push_statm(datagram: &mut MarkDatagram) {
    let path = c"/proc/self/statm";
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the path is a string.
    let opened =
        unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0) };
    let mut line = [0u8; MAX_STATM_LEN];
    let mut len = 0;
    if opened >= 0 {
        // SAFETY: the kernel writes at most as many bytes as there are.
        let got = unsafe { libc::syscall(libc::SYS_read, opened, line.as_mut_ptr(), line.len()) };
        len = usize::try_from(got).unwrap_or(0).min(line.len());
        close(opened as c_int);
    }
    let end = line[..len].iter().position(|&byte| byte == b'\n');
    datagram.push(&line[..end.unwrap_or(0)]);
    datagram.push(b"\n");
}

fn close(fd: c_int) {
    // SAFETY: the caller has opened the descriptor, and does not use it any more.
    unsafe { libc::syscall(libc::SYS_close, fd) };
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixDatagram;

    use super::*;

    fn empty() -> MarkDatagram {
        MarkDatagram {
            bytes: [0; MAX_DATAGRAM_LEN],
            len: 0,
        }
    }

    #[test]
    fn what_does_not_fit_is_cut() {
        let mut datagram = empty();
        datagram.push(b"one ");
        assert!(write!(datagram, "{}", 2).is_ok());
        assert_eq!(&datagram.bytes[..datagram.len], b"one 2");
        datagram.push(&[b'x'; 2 * MAX_DATAGRAM_LEN]);
        assert_eq!(datagram.len, MAX_DATAGRAM_LEN);
        datagram.push(b"more");
        assert!(datagram.bytes.ends_with(b"xxxx"));
    }

    #[test]
    fn the_kernel_s_line_about_memory_is_one_line() {
        let mut datagram = empty();
        push_statm(&mut datagram);
        let text = std::str::from_utf8(&datagram.bytes[..datagram.len]).unwrap();
        let numbers: Vec<u64> = text
            .split_whitespace()
            .map(|n| n.parse().unwrap())
            .collect();
        assert_eq!(numbers.len(), 7, "{text}");
        assert!(numbers[0] >= numbers[1] && numbers[1] > 0, "{text}");
        assert!(
            text.ends_with('\n') && text.matches('\n').count() == 1,
            "{text}"
        );
    }

    /// Checks the three parts of a mark: the sender and the time, the memory, and the text, which
    /// may hold any bytes.
    #[test]
    fn a_watch_receives_marks_and_how_many_were_lost() {
        let path = std::env::temp_dir().join(format!("heapprof-mark-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        // SAFETY: numbers and an array of them alone.
        let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        address.sun_family = libc::AF_UNIX as libc::sa_family_t;
        let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
        for (to, byte) in address.sun_path.iter_mut().zip(bytes) {
            *to = byte.cast_signed();
        }
        // Nobody listens yet.
        send(&address, b"first");
        let watch = UnixDatagram::bind(&path).unwrap();
        let receive = |name: &[u8]| {
            send(&address, name);
            let mut buffer = [0; 2 * MAX_DATAGRAM_LEN];
            let len = watch.recv(&mut buffer).unwrap();
            let lines = buffer[..len].splitn(3, |&byte| byte == b'\n');
            let lines = lines.map(|line| String::from_utf8_lossy(line).into_owned());
            lines.collect::<Vec<String>>()
        };
        let second = receive(b"a\nb");
        let third = receive(&[b'x'; 2 * MAX_DATAGRAM_LEN]);
        std::fs::remove_file(&path).unwrap();
        let head = format!("heapprof mark 1 {} ", std::process::id());
        assert!(
            second[0].starts_with(&head) && second[0].ends_with(" lost 1"),
            "{second:?}"
        );
        assert_eq!(second[2], "a\nb");
        assert!(third[0].ends_with(" lost 0"), "{third:?}");
        let len: usize = third.iter().map(|line| line.len() + 1).sum();
        assert_eq!(len - 1, MAX_DATAGRAM_LEN);
    }
}
