//! The recorded processes of this machine, with the memory that they have in use.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use heapprof_abi::environment as variable;
use heapprof_process::own_memory;
use heapprof_report::RecordedProcess;

use crate::names::ProfileNamePatterns;
use crate::outside;
use crate::residents::resident;

/// Returns the recorded processes whose ledgers this user may read.
///
/// # Errors
/// The list of processes may not be readable.
pub fn recorded_processes() -> io::Result<Vec<RecordedProcess>> {
    let found = outside::list()?;
    let rows = found
        .into_iter()
        .map(|found| RecordedProcess {
            rss: resident(found.pid),
            own: own_memory(found.pid).and_then(|bytes| i64::try_from(bytes).ok()),
            file: file_of(found.pid, &found.program),
            script_or_title: outside::process_title(&found.program, found.pid),
            pid: found.pid,
            program: found.program,
            period: found.period,
            is_running: found.is_running,
            started: found.started,
            in_use: found.in_use,
            peak: found.peak,
        })
        .collect();
    Ok(rows)
}

/// Returns the path of a process's last profile, computed from the environment that the process
/// began with.
fn file_of(pid: u32, program: &str) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |name: &str| {
        let mut all = environment.split(|&byte| byte == 0);
        let found = all.find_map(|one| one.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        found.map(|value| OsStr::from_bytes(value).to_os_string())
    };
    let output = value(variable::OUTPUT.name)?;
    // The process id of the program, which the process has filled in itself.
    let program_s = value(variable::RECORD.name)
        .and_then(|both| both.to_str()?.split_once(':')?.1.parse::<u32>().ok());
    let is_main = program_s == Some(pid);
    let names = ProfileNamePatterns::from_patterns(output, value(variable::CHILDREN.name));
    let (path, _) = names.last_profile_path(program_s.unwrap_or(0), is_main, pid, program);
    Some(heapprof_text::printable(&path.to_string_lossy()).into_owned())
}
