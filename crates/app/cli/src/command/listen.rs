//! `heapprof alive listen`: stores datagrams of the wiretap in the database.
//!
//! One thread only reads datagrams from the socket, so that few are lost while the database is
//! written. The datagrams wait in a bounded queue. If the queue is full, the kernel drops
//! datagrams, and the gaps in their numbers show this.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use heapprof_analysis::store::ProfileStore;
use heapprof_recorder::inherited_state;
use heapprof_stores::{DatagramCounts, make_database};
use heapprof_wiretap::{MAX_DATAGRAM_BYTES, SigningKey};
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::ListenArgs;
use crate::context::CommandContext;
use heapprof_process::clock;

use crate::messages;

/// Size of the kernel's buffer for datagrams that were not read yet, if the kernel allows it.
const SOCKET_BUFFER_BYTES: usize = 16 << 20;
/// Maximum number of datagrams that wait to be counted.
const MAX_QUEUED_DATAGRAMS: usize = 1 << 16;
/// Time between two checks whether the listener should end.
const END_CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// How often the database is written.
const STORE_INTERVAL: Duration = Duration::from_millis(500);
/// Longest time for emptying the socket at the end.
const FINAL_DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The bytes of a received datagram.
type RawDatagram = Box<[u8]>;

pub(super) fn run(context: &CommandContext, args: &ListenArgs) -> Result<()> {
    let key = match &args.key_file {
        Some(path) => Some(SigningKey::read(path).with_context(|| path.display().to_string())?),
        None => None,
    };
    if key.is_none() && !args.udp.ip().is_loopback() {
        bail!(
            "--udp {}: anyone can send there; give a key with --key-file, or listen on 127.0.0.1",
            args.udp
        );
    }
    let mode = args.file_mode.mode()?;
    let socket = UdpSocket::bind(args.udp).with_context(|| format!("--udp {}", args.udp))?;
    let address = socket.local_addr().context("the socket")?;
    socket
        .set_read_timeout(Some(END_CHECK_INTERVAL))
        .context("the socket")?;
    // Only root may exceed the system's limit. A smaller buffer is no error.
    if set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER_BYTES).is_err() {
        let _ = set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
    }
    let db = context.sources.db();
    let named = || db.display().to_string();
    make_database(db, mode.0)?;
    let mut store = ProfileStore::open_or_create(db).with_context(named)?;
    let mut collected = DatagramCounts::new(key);
    collected.load_senders(&mut store).with_context(named)?;
    let ending = [SIGINT, SIGTERM, SIGHUP]
        .into_iter()
        .filter(|&signal| signal != SIGHUP || !inherited_state::is_ignored(signal));
    let mut signals = Signals::new(ending).context("signals")?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (sender, receiver) = sync_channel(MAX_QUEUED_DATAGRAMS);
    let reader = std::thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || read(&socket, &sender, &is_over)
    });
    let until = match args.time {
        Some(time) => format!("for {} s", time.as_secs_f64()),
        None => "until Ctrl-C".to_string(),
    };
    messages::note(&format!(
        "listening on {address} {until}, storing into {}",
        db.display()
    ));
    let began = Instant::now();
    let ends = || {
        signals.pending().next().is_some() || args.time.is_some_and(|time| began.elapsed() >= time)
    };
    let stored = count(&receiver, &mut collected, &mut store, &is_over, ends);
    // If the database can't be written, the reader ends as well.
    is_over.store(true, Ordering::Relaxed);
    drop(receiver);
    let read = reader.join();
    stored.with_context(named)?;
    messages::note(&collected.summary());
    match read {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error).with_context(|| format!("--udp {address}")),
        Err(_) => Err(anyhow!(
            "--udp {address}: the receiving thread has failed; start heapprof alive listen again"
        )),
    }
}

/// Reads datagrams from the socket until the listener ends and the socket is empty.
fn read(
    socket: &UdpSocket,
    sender: &SyncSender<RawDatagram>,
    is_over: &AtomicBool,
) -> std::io::Result<()> {
    // One additional byte shows that a datagram is too long.
    let mut bytes = [0; MAX_DATAGRAM_BYTES + 1];
    let mut last = None;
    loop {
        if last.is_none() && is_over.load(Ordering::Relaxed) {
            socket.set_nonblocking(true)?;
            last = Some(Instant::now());
        }
        if last.is_some_and(|last| last.elapsed() > FINAL_DRAIN_TIMEOUT) {
            return Ok(());
        }
        match socket.recv(&mut bytes) {
            Ok(length) => {
                if sender.send(Box::from(&bytes[..length])).is_err() {
                    return Ok(());
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                if last.is_some() {
                    return Ok(());
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Counts datagrams and stores the counts, until no more datagrams come.
fn count(
    receiver: &Receiver<RawDatagram>,
    collected: &mut DatagramCounts,
    store: &mut ProfileStore,
    is_over: &AtomicBool,
    mut ends: impl FnMut() -> bool,
) -> Result<(), heapprof_analysis::AnalysisError> {
    let (mut looked, mut stored) = (Instant::now(), Instant::now());
    loop {
        match receiver.recv_timeout(END_CHECK_INTERVAL) {
            Ok(datagram) => collected.take(&datagram, now_ms()),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        if looked.elapsed() >= END_CHECK_INTERVAL {
            looked = Instant::now();
            if !is_over.load(Ordering::Relaxed) && ends() {
                is_over.store(true, Ordering::Relaxed);
            }
        }
        if stored.elapsed() >= STORE_INTERVAL || collected.is_full() {
            collected.store(store, now_ms())?;
            stored = Instant::now();
        }
    }
    collected.store_last(store)
}

/// Returns the present time in milliseconds since 1970 UTC.
fn now_ms() -> u64 {
    clock::millis().unsigned_abs()
}
