//! `heapprof mark`: tells a watch that something begins here, and waits until it has heard.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use heapprof_environment as variable;
use rustix::net::{
    RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, bind, connect, recv, send, sockopt,
};

use crate::args::MarkArgs;
use crate::named_process;
use crate::sockets::{Kind, address, folders};

/// So long a watch may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest answer.
const LONGEST: usize = 1024;

/// What a watch answers that has taken a mark. Another answer says why not.
pub(super) const TAKEN: &str = "taken";

pub(super) fn run(args: &MarkArgs) -> Result<()> {
    if args.text.is_empty() {
        bail!("TEXT is empty; say what begins here");
    }
    let of_process = args.pid.map(|pid| named_process::find(&pid.to_string()));
    let of_process = of_process.transpose()?;
    if let (None, Some(path)) = (of_process, watch_of_program()) {
        // A script calls this, so it is the script's mark.
        let script = std::os::unix::process::parent_id();
        let said = tell(
            &SocketAddrUnix::new(&path)?,
            &datagram(Some(script), &args.text),
        );
        return match said {
            Ok(answer) => taken(&answer),
            Err(error) => Err(unheard(&error, &path)),
        };
    }
    // The watches of this user. One that does not watch the process says so.
    let mut answers = Vec::new();
    let mut watches = 0;
    let folders: Vec<OwnedFd> = folders().collect();
    let names = folders.iter().flat_map(|folder| {
        Kind::WATCH
            .names(folder)
            .into_iter()
            .map(move |name| (folder, name))
    });
    let all: Vec<(&OwnedFd, String)> = names.collect();
    if of_process.is_none() && all.len() > 1 {
        bail!(
            "{} watches run; name a process of one with --pid",
            all.len()
        );
    }
    for (folder, name) in all {
        let datagram = datagram(of_process, &args.text);
        match address(folder, &name).and_then(|address| tell(&address, &datagram)) {
            Ok(answer) if answer == TAKEN => return Ok(()),
            Ok(answer) => answers.push(answer),
            // It has ended just now.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => answers.push(error.to_string()),
        }
        watches += 1;
    }
    match (watches, answers.into_iter().next()) {
        (_, Some(answer)) => taken(&answer),
        _ => bail!("no watch of this user runs; heapprof watch begins one"),
    }
}

/// The socket of the watch that runs the program which calls this.
fn watch_of_program() -> Option<std::path::PathBuf> {
    let path = std::env::var_os(variable::WATCH.name)?;
    (!path.is_empty()).then(|| path.into())
}

fn taken(answer: &str) -> Result<()> {
    match answer {
        TAKEN => Ok(()),
        why => Err(anyhow!(
            "the mark was not taken: {}",
            heapprof_text::printable(why)
        )),
    }
}

fn unheard(error: &io::Error, path: &Path) -> anyhow::Error {
    anyhow!(
        "{}: {}: the watch that ran this program does not answer: {error}",
        variable::WATCH.name,
        path.display()
    )
}

/// The datagram of a mark: of a process or of none, with what the process has in memory.
fn datagram(pid: Option<u32>, text: &str) -> Vec<u8> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = since.map_or(0, |time| time.as_millis());
    let statm = pid.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/statm")));
    let statm = statm.and_then(Result::ok).unwrap_or_default();
    let head = format!(
        "heapprof mark 1 {} {now}\n{}\n",
        pid.unwrap_or(0),
        statm.trim_end()
    );
    [head.as_bytes(), text.as_bytes()].concat()
}

/// Sends a datagram, and waits for the answer.
fn tell(to: &SocketAddrUnix, datagram: &[u8]) -> io::Result<String> {
    let socket = Kind::WATCH.socket(SocketFlags::empty())?;
    // An address of the kernel's choice, to which the answer can be sent.
    bind(&socket, &SocketAddrUnix::new_unnamed())?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    connect(&socket, to)?;
    send(&socket, datagram, SendFlags::NOSIGNAL)?;
    let mut answer = [0; LONGEST];
    let (length, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::watch::Mark;

    #[test]
    fn a_mark_is_read_as_it_was_sent() {
        let own = std::process::id();
        let mark = Mark::parse(&datagram(Some(own), "a\nb")).unwrap();
        assert_eq!((mark.pid, mark.text.as_str()), (Some(own), "a\nb"));
        assert!(mark.statm.is_some_and(|statm| statm.rss > 0));
        let mark = Mark::parse(&datagram(None, "x")).unwrap();
        assert_eq!((mark.pid, mark.statm), (None, None));
    }
}
