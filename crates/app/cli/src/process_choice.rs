//! Finds the process that an argument names. If several have the name, the user chooses at the
//! terminal; without a terminal, they are listed.

use std::path::Path;

use anyhow::{Result, anyhow, bail};
use heapprof_inspect::named_process::{self, candidates};
use heapprof_terminal::ask_line;
use heapprof_text::printable;

/// Maximum number of processes that are listed.
const MAX_LISTED: usize = 40;

/// Returns the process that an argument names.
pub(crate) fn find(argument: &str) -> Result<u32> {
    choose(argument, &candidates(argument)?)
}

/// Returns the process of this user that runs the program `file`.
pub(crate) fn running(name: &str, file: &Path) -> Result<u32> {
    match named_process::running(file).as_slice() {
        [] => {
            bail!("{name}: no process of yours runs it; heapprof why -- COMMAND records a command")
        }
        all => choose(name, all),
    }
}

/// Returns the one of several processes, which have a name, that the user chooses.
pub(crate) fn choose(name: &str, pids: &[u32]) -> Result<u32> {
    if let [pid] = pids {
        return Ok(*pid);
    }
    let line = |&pid: &u32| printable(&named_process::line(pid)).into_owned();
    let mut listed: Vec<String> = pids.iter().take(MAX_LISTED).map(line).collect();
    if pids.len() > MAX_LISTED {
        listed.push(format!("{:>9}", "…"));
    }
    let question = format!(
        "{} processes are called {}:\n{}\nWhich one? ",
        pids.len(),
        printable(name),
        listed.join("\n")
    );
    let answer = ask_line(&question);
    let Some(answer) = answer.filter(|answer| !answer.is_empty()) else {
        return Err(named_process::several(name, pids));
    };
    let chosen = pids.iter().find(|pid| pid.to_string() == answer);
    chosen
        .copied()
        .ok_or_else(|| anyhow!("{answer}: is not one of these processes"))
}
