//! `heapprof proc --recorded`: lists the recorded processes of this machine.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result};
use heapprof_abi::environment as variable;
use heapprof_process::own_memory;
use heapprof_recorder::{ProfileNamePatterns, outside, resident};
use heapprof_report::{RecordedProcess, ReportStyle};

use crate::args::ProcessReportArgs;
use crate::{messages, output};

pub(super) fn run(args: &ProcessReportArgs) -> Result<()> {
    let found = outside::list().context("/proc: the list of processes cannot be read")?;
    if found.is_empty() {
        messages::note(
            "no process that this user may read is recorded; start one with heapprof record (root \
             reads all; where kernel.yama.ptrace_scope is not 0, others read what heapprof record \
             started)",
        );
    }
    let rows: Vec<RecordedProcess> = found
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
    let style = ReportStyle {
        format: args.format,
        color: false,
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let text = heapprof_report::recorded_processes(&rows, &style)?;
    output::text(args.output.file(), &text)
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
