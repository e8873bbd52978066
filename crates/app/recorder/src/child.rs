//! Runs the recorded program as a child process: signals that are meant for the program reach it
//! once, the program and heapprof stop and continue together, and the program's end is reported as
//! a shell reports it.
//!
//! No thread is needed, so a program is recorded even if no thread can be made.

use std::io;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use heapprof_files::FileOwner;
use heapprof_process::job_control::{foreground_group, group_of, session_of};
use heapprof_process::run_state;
use rustix::io::Errno;
use rustix::process::{
    Pid, RawPid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    kill_process_group, waitid, waitpid,
};
use signal_hook::consts::{
    SIGALRM, SIGCHLD, SIGHUP, SIGINT, SIGIO, SIGPROF, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2,
    SIGVTALRM, SIGXCPU,
};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;
use signal_hook::low_level::signal_name;

use crate::inherited_state;
use crate::keeper::KeeperHandle;
use crate::live::LiveView;
use crate::rights::RightsLedger;

/// How the program ended.
pub struct ProgramExit {
    /// Exit code of the program, or 128 + N if signal N ended it.
    pub code: u8,
    /// The signal that ended the program.
    pub signal: Option<i32>,
    /// Whether the signal was Ctrl-C, which heapprof received too.
    pub by_key: bool,
    /// Process id of the program.
    pub process: u32,
}

impl ProgramExit {
    /// Describes how the program ended, in a few words.
    pub fn describe(&self) -> String {
        match self.signal {
            Some(signal) => match signal_name(signal) {
                Some(name) => format!("killed by {name}"),
                None => format!("killed by signal {signal}"),
            },
            None => format!("exit code {}", self.code),
        }
    }
}

/// Signals that end a process and may be meant for the program when heapprof receives them.
const FORWARDED_SIGNALS: [i32; 13] = [
    SIGINT,
    SIGQUIT,
    SIGTERM,
    SIGHUP,
    SIGUSR1,
    SIGUSR2,
    SIGALRM,
    SIGVTALRM,
    SIGPROF,
    SIGIO,
    SIGXCPU,
    libc::SIGSTKFLT,
    libc::SIGPWR,
];

/// The signals that tell daemons and their workers to end.
const TERMINATION_SIGNALS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// Runs a program to its end without recording it. `began` gets the program's process id.
pub fn run_unrecorded(command: &mut Command, began: impl FnOnce(u32)) -> io::Result<ProgramExit> {
    run(command, began, None, None, None, &RightsLedger::default())
}

/// Runs the program to its end. `began` gets the program's process id. The signal `more` is passed
/// on to the program in addition to [`FORWARDED_SIGNALS`]. `live` shows the program's memory, and
/// `keeper` starts once the program runs.
pub(crate) fn run(
    command: &mut Command,
    began: impl FnOnce(u32),
    more: Option<i32>,
    live: Option<&mut LiveView>,
    keeper: Option<&mut KeeperHandle>,
    rights: &RightsLedger,
) -> io::Result<ProgramExit> {
    // Ctrl-C is for the program, and heapprof waits for what the program does about it. A signal
    // that was ignored stays ignored, for the child too.
    let taken = FORWARDED_SIGNALS.into_iter().chain(more);
    let taken: Vec<i32> = taken.filter(|&s| !inherited_state::is_ignored(s)).collect();
    inherited_state::pass_on(command);
    let all = taken.iter().copied().chain([SIGCHLD]);
    let mut signals = SignalsInfo::<WithRawSiginfo>::new(all)?;
    let child = command.spawn()?;
    let (process, pid) = (child.id(), Pid::from_child(&child));
    rights.open(process, FileOwner::us());
    began(process);
    let mut keeper = keeper;
    if let Some(keeper) = &mut keeper {
        keeper.start(process);
    }
    let mut interrupted = false;
    let mut live = live;
    if let Some(live) = &mut live {
        live.start(process);
    }
    let status = loop {
        if let Some(status) = poll_end(pid, live.as_deref(), keeper.as_deref(), rights)? {
            break status;
        }
        for info in signals.wait().filter(|info| info.si_signo != SIGCHLD) {
            // A terminal sends the signal of a key to its whole process group, so the program has
            // got it already. The kernel sends a hangup only to the session's leader.
            let is_for_all = is_of_terminal(&info) && !(info.si_signo == SIGHUP && leads_session());
            let is_of_view =
                info.si_signo == SIGINT && live.as_ref().is_some_and(|live| live.has_interrupted());
            interrupted |= is_ctrl_c(&info) || is_of_view;
            if !(is_of_view || is_for_all && is_in_our_group(pid))
                && let Some(signal) = Signal::from_named_raw(info.si_signo)
            {
                if let Some(keeper) = &keeper
                    && TERMINATION_SIGNALS.contains(&info.si_signo)
                {
                    keeper.before_signal();
                }
                let _ = kill_process(pid, signal);
            }
        }
    };
    let signal = status.terminating_signal();
    let code = status.exit_status().or(signal.map(|s| 128 + s));
    let mut ended = ProgramExit {
        code: code.unwrap_or(1) as u8,
        signal,
        by_key: false,
        process,
    };
    if let Some(live) = live {
        live.finish(ended.code, signal);
    }
    // These signals came together with the program's end.
    interrupted |= signals.pending().any(|info| is_ctrl_c(&info));
    // A copy of the signal that ended the program may still be on its way to heapprof. A second one
    // is meant for heapprof.
    for signal in taken {
        let came = Arc::new(AtomicBool::new(false));
        if flag::register_conditional_default(signal, Arc::clone(&came)).is_ok() {
            flag::register(signal, came)?;
        }
    }
    ended.by_key = interrupted && signal == Some(SIGINT);
    Ok(ended)
}

/// Whether a terminal sent the signal, because of a key or because the terminal was closed.
fn is_of_terminal(info: &libc::siginfo_t) -> bool {
    matches!(info.si_signo, SIGINT | SIGQUIT | SIGHUP) && info.si_code == libc::SI_KERNEL
}

fn is_ctrl_c(info: &libc::siginfo_t) -> bool {
    info.si_signo == SIGINT && is_of_terminal(info)
}

/// Returns how the program ended, if it has ended. Also reaps other children, which heapprof gets
/// if it is the first process of a pid namespace.
///
/// The rights that the kernel shows for ended processes are noted before the processes are reaped.
fn poll_end(
    program: Pid,
    live: Option<&LiveView>,
    keeper: Option<&KeeperHandle>,
    rights: &RightsLedger,
) -> io::Result<Option<WaitStatus>> {
    let whom = (!getpid().is_init()).then_some(program);
    loop {
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(_)) = waitid(WaitId::Pid(program), look) {
            if let Some(keeper) = keeper {
                keeper.before_reaping();
            }
            rights.close(program.as_raw_nonzero().get().unsigned_abs());
        }
        if whom.is_none() {
            rights.close_ended();
        }
        match waitpid(whom, WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((process, _))) if process != program => {}
            Ok(Some((_, status))) if status.stopped() => stop_with_program(program, live),
            Ok(Some((_, status))) => return Ok(Some(status)),
            Ok(None) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Stops heapprof after the program was stopped: a shell that started heapprof waits for heapprof,
/// not for the program.
fn stop_with_program(program: Pid, live: Option<&LiveView>) {
    // Ctrl-Z stops heapprof too. A shell that continues the program continues heapprof too, and may
    // have done so by now.
    std::thread::sleep(Duration::from_millis(20));
    let number = program.as_raw_nonzero().get().unsigned_abs();
    if run_state(number) != Some('T') {
        return;
    }
    let (Ok(group), Ok(own)) = (group_of(Some(program)), group_of(None)) else {
        return;
    };
    let foreground = std::fs::File::open("/dev/tty").map(foreground_group);
    let ours = [group, own];
    if !leads_job() || !matches!(foreground, Ok(Ok(group)) if ours.contains(&group)) {
        return;
    }
    if let Some(live) = live {
        live.release_terminal();
    }
    let _ = kill_process(getpid(), Signal::STOP);
    if let Some(live) = live {
        live.resume_terminal();
    }
    if group != own
        && let Some(group) = Pid::from_raw(group)
    {
        let _ = kill_process_group(group, Signal::CONT);
    }
}

/// Whether a shell made heapprof a separate job, which the shell waits for and continues as a
/// whole. Inside a script, heapprof is in the process group of the script instead.
fn leads_job() -> bool {
    group_of(None).is_ok_and(is_own_number)
}

fn leads_session() -> bool {
    session_of(None).is_ok_and(is_own_number)
}

fn is_own_number(number: RawPid) -> bool {
    Pid::from_raw(number) == Some(getpid())
}

fn is_in_our_group(process: Pid) -> bool {
    group_of(Some(process)).is_ok_and(|group| group_of(None).is_ok_and(|own| own == group))
}
