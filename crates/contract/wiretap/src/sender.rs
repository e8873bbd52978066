//! The sender in a program. It numbers datagrams, and stores none of them.
//!
//! Each call makes a few system calls, none of which waits. It allocates nothing, takes no lock,
//! and preserves errno. So a call is safe in any thread, and in a signal handler.

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::datagram::ModuleOutcome;
use crate::encode::{EncodedDatagram, OutgoingEvent, SenderIdentity};
use crate::kernel;
use crate::route::WiretapRoute;

/// Maximum number of times that a call checks whether another thread has finished choosing this
/// process's random number.
const MAX_TRIES: u32 = 1000;

/// Sends datagrams, once it has a route. There is one sender in a process.
pub struct DatagramSender {
    route: OnceLock<WiretapRoute>,
    /// The id of the process to which the other fields belong, and whether a thread is changing
    /// these fields now.
    process: AtomicU64,
    parent: AtomicU32,
    id: AtomicU64,
    /// The number of the last datagram; 0 before the first one.
    last: AtomicU64,
    /// The count in the last `end` datagram.
    ended: AtomicU64,
    /// The socket: its descriptor plus 1, and its number in the kernel. 0 if there is none.
    socket: AtomicU64,
}

/// Returns the value of [`DatagramSender::process`] while the fields are valid.
fn settled_word(pid: u32) -> u64 {
    u64::from(pid) << 1
}

/// Returns the value of [`DatagramSender::process`] while a thread changes the fields.
fn changing_word(pid: u32) -> u64 {
    settled_word(pid) | 1
}

impl DatagramSender {
    /// Creates a sender without a route, which sends nothing.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> Self {
        Self {
            route: OnceLock::new(),
            process: AtomicU64::new(0),
            parent: AtomicU32::new(0),
            id: AtomicU64::new(0),
            last: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            socket: AtomicU64::new(0),
        }
    }

    /// Sets the route, unless there is one already.
    pub fn set(&self, route: WiretapRoute) {
        if self.route.set(route).is_ok() {
            self.note_fork();
        }
    }

    /// Whether there is a route, so that datagrams are sent.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.route.get().is_some()
    }

    /// Records that this process was forked. A forked child should call this before it starts a
    /// thread. Otherwise the sender notices the fork by the new process id.
    pub fn note_fork(&self) {
        if self.is_set() {
            kernel::keeping_errno(|| {
                // Threads of the parent that were changing the numbers are not here.
                let pid = std::process::id();
                self.process.store(changing_word(pid), Ordering::Relaxed);
                self.renew(pid);
            });
        }
    }

    /// Reports that the code `code` has run.
    pub fn alive(&self, code: &[u8], site: &[u8]) {
        // The code needs a name. An empty one would not be understood.
        if !code.is_empty() {
            self.say(&OutgoingEvent::Alive { code, site });
        }
    }

    /// Reports the outcome of loading a module, and the microseconds that it took.
    pub fn load(&self, code: &[u8], site: &[u8], outcome: ModuleOutcome, us: u64) {
        let us = us.min(crate::datagram::MAX_LOAD_US);
        if !code.is_empty() {
            self.say(&OutgoingEvent::Load {
                code,
                site,
                outcome,
                us,
            });
        }
    }

    /// Reports how many datagrams this process has sent, if there are any. If other threads send
    /// more datagrams later, the next call reports them.
    pub fn end(&self) {
        let Some(route) = self.route.get() else {
            return;
        };
        let pid = std::process::id();
        // The numbers may be another process's, whose memory this one shares or has a copy of.
        if self.process.load(Ordering::Acquire) != settled_word(pid) {
            return;
        }
        let count = self.last.load(Ordering::Relaxed);
        if count == 0 || self.ended.swap(count, Ordering::Relaxed) == count {
            return;
        }
        let id = self.id.load(Ordering::Relaxed);
        kernel::keeping_errno(|| self.send(route, (pid, id), count, &OutgoingEvent::End { count }));
    }

    fn say(&self, said: &OutgoingEvent<'_>) {
        let Some(route) = self.route.get() else {
            return;
        };
        kernel::keeping_errno(|| {
            let Some(origin) = self.origin() else {
                return;
            };
            let seq = self.last.fetch_add(1, Ordering::Relaxed) + 1;
            self.send(route, origin, seq, said);
        });
    }

    /// Returns the id of this process and its random number. `None` if a signal handler calls this
    /// while the interrupted thread chooses the random number. Then the datagram is not sent, and
    /// gets no sequence number.
    fn origin(&self) -> Option<(u32, u64)> {
        let pid = std::process::id();
        for _ in 0..MAX_TRIES {
            let found = self.process.load(Ordering::Acquire);
            if found == settled_word(pid) {
                return Some((pid, self.id.load(Ordering::Relaxed)));
            }
            let new = changing_word(pid);
            let is_mine = found != new
                && self
                    .process
                    .compare_exchange(found, new, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok();
            if is_mine {
                self.renew(pid);
            } else {
                std::thread::yield_now();
            }
        }
        None
    }

    /// Chooses a new random number for the process, and counts datagrams from 1 again. Only one
    /// thread may call this at a time.
    fn renew(&self, pid: u32) {
        let parent = std::os::unix::process::parent_id();
        self.parent.store(parent, Ordering::Relaxed);
        self.id.store(kernel::random(), Ordering::Relaxed);
        self.last.store(0, Ordering::Relaxed);
        self.ended.store(0, Ordering::Relaxed);
        self.process.store(settled_word(pid), Ordering::Release);
    }

    /// Sends a datagram. If the kernel refuses it, it still counts as sent, so that the listener
    /// counts it as lost.
    fn send(
        &self,
        route: &WiretapRoute,
        (pid, sender): (u32, u64),
        seq: u64,
        said: &OutgoingEvent<'_>,
    ) {
        let origin = SenderIdentity {
            host: route.host(),
            sender,
            pid,
            parent: self.parent.load(Ordering::Relaxed),
        };
        let made = EncodedDatagram::new(&origin, seq, kernel::now_ms(), said, route.key.as_ref());
        if let Some(socket) = self.socket(&route.to) {
            kernel::send(socket, made.bytes(), &route.to);
        }
    }

    /// Returns the socket, and opens a new one if the program has closed it. If the program reuses
    /// the socket's descriptor for a file of its own, that file is left alone.
    fn socket(&self, to: &SocketAddr) -> Option<i32> {
        let descriptor = |kept: u64| (kept >> 32) as i32 - 1;
        let kept = self.socket.load(Ordering::Acquire);
        if kept != 0 && kernel::socket_number(descriptor(kept)) == Some(kept as u32) {
            return Some(descriptor(kept));
        }
        let opened = kernel::open_socket(to)?;
        let Some(number) = kernel::socket_number(opened) else {
            kernel::close(opened);
            return None;
        };
        let new = ((opened as u64 + 1) << 32) | u64::from(number);
        let mine = self
            .socket
            .compare_exchange(kept, new, Ordering::AcqRel, Ordering::Acquire);
        match mine {
            Ok(_) => Some(opened),
            // Another thread was faster.
            Err(other) => {
                kernel::close(opened);
                Some(descriptor(other))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;
    use crate::{MAX_DATAGRAM_BYTES, WiretapDatagram, WiretapEvent, decode};

    fn received(socket: &UdpSocket) -> WiretapDatagram {
        let mut bytes = [0; MAX_DATAGRAM_BYTES];
        let length = socket.recv(&mut bytes).unwrap();
        decode(&bytes[..length], None).unwrap()
    }

    fn listening() -> (UdpSocket, DatagramSender) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).unwrap();
        let sender = DatagramSender::new();
        let address = socket.local_addr().unwrap().to_string();
        sender.set(WiretapRoute::new(address.as_bytes(), None).unwrap());
        (socket, sender)
    }

    #[test]
    fn datagrams_are_numbered_and_the_end_counts_them() {
        let (socket, sender) = listening();
        sender.end();
        sender.alive(b"a", b"main.c:1");
        sender.alive(b"", b"");
        sender.load(b"/lib/b.so", b"", ModuleOutcome::Failed, u64::MAX);
        sender.end();
        sender.end();
        sender.alive(b"c", b"");
        sender.end();
        let all: Vec<WiretapDatagram> = (0..5).map(|_| received(&socket)).collect();
        assert_eq!(
            all.iter().map(|d| d.seq).collect::<Vec<_>>(),
            [1, 2, 2, 3, 3]
        );
        assert_eq!(all[2].event, WiretapEvent::End { count: 2 });
        assert_eq!(all[4].event, WiretapEvent::End { count: 3 });
        assert!(all.iter().all(|d| d.pid == std::process::id()));
        assert!(all.iter().all(|d| d.sender == all[0].sender));
        assert!(matches!(
            &all[1].event,
            WiretapEvent::Load {
                us: 3_600_000_000,
                ..
            }
        ));
        sender.note_fork();
        sender.alive(b"d", b"");
        let child = received(&socket);
        assert_eq!(child.seq, 1);
        assert_ne!(child.sender, all[0].sender);
    }

    #[test]
    fn nobody_has_to_listen() {
        let (socket, sender) = listening();
        drop(socket);
        for _ in 0..1000 {
            sender.alive(b"a", b"");
        }
        sender.end();
        // Without a route nothing happens.
        let sender = DatagramSender::new();
        sender.alive(b"a", b"");
        sender.end();
        assert!(!sender.is_set());
    }

    #[test]
    fn a_socket_that_was_closed_is_opened_again() {
        let (socket, sender) = listening();
        sender.alive(b"a", b"");
        let first = sender.socket(&socket.local_addr().unwrap()).unwrap();
        kernel::close(first);
        sender.alive(b"b", b"");
        assert_eq!([received(&socket).seq, received(&socket).seq], [1, 2]);
    }

    #[test]
    fn threads_share_the_numbers() {
        let (socket, sender) = listening();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| sender.alive(b"a", b"")));
            }
        });
        let mut numbers: Vec<u64> = (0..40).map(|_| received(&socket).seq).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (1..=40).collect::<Vec<_>>());
    }
}
