//! `heapprof watch mark`: sends a mark to a running watch, and waits for the answer. The mark names
//! what begins at this moment.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use heapprof_abi::environment as variable;
use heapprof_recorder::sockets::{SocketKind, address, folders};
use heapprof_watch::{ACCEPTED_ANSWER, MarkScope, make_mark};
use rustix::net::{
    RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, bind, connect, recv, send, sockopt,
};

use crate::args::MarkArgs;
use heapprof_process::clock;

use crate::process_choice;

/// Longest time that a watch may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer of a watch, in bytes.
const MAX_ANSWER_BYTES: usize = 1024;

pub(super) fn run(args: &MarkArgs) -> Result<()> {
    if args.text.is_empty() {
        bail!("TEXT is empty; say what begins here");
    }
    let of_process = args.pid.map(|pid| process_choice::find(&pid.to_string()));
    let of_process = of_process.transpose()?;
    if let (None, Some(path)) = (of_process, watch_of_program()) {
        // A script calls this command, and the memory of a script is mostly that of the programs
        // that it runs.
        let address =
            SocketAddrUnix::new(&path).map_err(|error| unanswered_error(&error.into(), &path))?;
        let said = send_datagram(
            &address,
            &make_mark(MarkScope::AllOthers, &args.text, clock::millis()),
        );
        return match said {
            Ok(answer) => check_answer(&answer),
            Err(error) => Err(unanswered_error(&error, &path)),
        };
    }
    let folders: Vec<OwnedFd> = folders().collect();
    let watches: Vec<SocketAddrUnix> = folders.iter().flat_map(watches_in).collect();
    match (watches.as_slice(), of_process) {
        ([], _) => bail!("this user has no watch running; heapprof watch starts one"),
        ([_, _, ..], None) => bail!(
            "{} watches are running; choose one with --pid and a process that it watches",
            watches.len()
        ),
        _ => {}
    }
    // A watch that does not watch the process answers that it does not.
    let datagram = make_mark(
        of_process.map_or(MarkScope::UnknownProcess, MarkScope::Process),
        &args.text,
        clock::millis(),
    );
    let mut last = Ok(String::new());
    for address in &watches {
        last = send_datagram(address, &datagram);
        if last.as_ref().is_ok_and(|answer| answer == ACCEPTED_ANSWER) {
            return Ok(());
        }
    }
    match last {
        Ok(answer) => check_answer(&answer),
        Err(error) => Err(anyhow!(
            "the watch does not answer: {}",
            explain_failure(&error)
        )),
    }
}

/// Returns the addresses of the watches that listen in a folder.
fn watches_in(folder: &OwnedFd) -> Vec<SocketAddrUnix> {
    let is_heard = |address: &SocketAddrUnix| {
        let socket = SocketKind::WATCH.socket(SocketFlags::empty());
        socket.is_ok_and(|socket| connect(&socket, address).is_ok())
    };
    let names = SocketKind::WATCH.names(folder).into_iter();
    names
        .filter_map(|name| address(folder, &name).ok())
        .filter(is_heard)
        .collect()
}

/// Explains why a watch has not answered.
fn explain_failure(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("waited {} s for it", ANSWER_TIMEOUT.as_secs())
        }
        _ => error.to_string(),
    }
}

/// Returns the socket of the watch under which this command runs, from the environment.
fn watch_of_program() -> Option<std::path::PathBuf> {
    let path = std::env::var_os(variable::WATCH.name)?;
    (!path.is_empty()).then(|| path.into())
}

fn check_answer(answer: &str) -> Result<()> {
    match answer {
        ACCEPTED_ANSWER => Ok(()),
        why => Err(anyhow!(
            "the mark was not accepted: {}",
            heapprof_text::printable(why)
        )),
    }
}

fn unanswered_error(error: &io::Error, path: &Path) -> anyhow::Error {
    anyhow!(
        "{}: {}: the watch that ran this program does not answer: {}",
        variable::WATCH.name,
        path.display(),
        explain_failure(error)
    )
}

/// Sends a datagram, and waits for the answer.
fn send_datagram(to: &SocketAddrUnix, datagram: &[u8]) -> io::Result<String> {
    let socket = SocketKind::WATCH.socket(SocketFlags::empty())?;
    // The kernel chooses an address, to which the answer can be sent.
    bind(&socket, &SocketAddrUnix::new_unnamed())?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(ANSWER_TIMEOUT))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(ANSWER_TIMEOUT))?;
    connect(&socket, to)?;
    send(&socket, datagram, SendFlags::NOSIGNAL)?;
    let mut answer = [0; MAX_ANSWER_BYTES];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}
