//! Runs programs that may hang, with a time limit. At the limit, the error shows what the threads
//! of the program are doing.

use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::harness::Run;

/// Returns a command whose signals have the effects that they have in a terminal. A shell starts
/// background programs with SIGINT and SIGQUIT ignored, and nohup starts programs with SIGHUP
/// ignored. A recorded program would inherit this.
pub fn with_default_signals(command: &Command) -> Command {
    let mut whole = Command::new("env");
    whole.arg("--default-signal=INT,QUIT,HUP");
    whole.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        whole.current_dir(folder);
    }
    whole
}

/// Returns the state of each thread of a process group. The state shows whether a thread waits for
/// a lock (S, futex) or gets no processor (R).
fn states(group: u32) -> String {
    let mut reported = String::new();
    let folders = |path: &Path| {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.map(|e| e.path()).collect::<Vec<_>>()
    };
    for process in folders(Path::new("/proc")) {
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default();
        let stat = read(process.join("stat"));
        // The fields are: pid (name) state ppid pgrp.
        let of_group = stat.rsplit(") ").next().and_then(|s| s.split(' ').nth(2));
        if of_group != Some(&group.to_string()) {
            continue;
        }
        for task in folders(&process.join("task")) {
            let stat = read(task.join("stat"));
            let state = stat.rsplit(") ").next().and_then(|s| s.split(' ').next());
            reported += &format!(
                "\n{} {} in {}, system call {}",
                task.display(),
                state.unwrap_or("?"),
                read(task.join("wchan")),
                read(task.join("syscall")).trim()
            );
        }
    }
    reported
}

/// Runs a command in its own process group, and kills the whole group if it takes too long.
pub fn run(command: Command, folder: &Path, patience: Duration) -> Result<Run, String> {
    let mut command = with_default_signals(&command);
    // These are files and not pipes, so a process that is left behind does not block the test.
    let path = |name: &str| folder.join(name);
    let file = |name: &str| File::create(path(name)).unwrap();
    let mut child = command
        .env("HEAPPROF_TEST_EXPECT", path("expect"))
        .stdin(File::open("/dev/null").unwrap())
        .stdout(file("stdout"))
        .stderr(file("stderr"))
        .process_group(0)
        .spawn()
        .map_err(|e| format!("{command:?}: {e}"))?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if start.elapsed() > patience {
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut hanging = String::new();
    if status.is_none() {
        hanging = states(child.id());
        let group = format!("-{}", child.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).status();
        let _ = child.kill();
        child.wait().unwrap();
    }
    let read =
        |name: &str| String::from_utf8_lossy(&std::fs::read(path(name)).unwrap()).into_owned();
    let Some(status) = status else {
        return Err(format!(
            "hangs: nothing after {patience:?}; stderr: {}{hanging}",
            read("stderr")
        ));
    };
    let signal = || 128 + status.signal().unwrap_or_default();
    Ok(Run {
        code: status.code().unwrap_or_else(signal),
        out: read("stdout"),
        err: read("stderr"),
    })
}
