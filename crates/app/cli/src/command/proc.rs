//! `heapprof proc`: reports the memory of a process as the kernel counts it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_process::{
    Cgroup, MemoryBreakdown, MemoryUsage, ProcessIdentity, StatusCounters, all_processes, explain,
    machine_pressure, title,
};
use heapprof_report::{
    ListedProcess, ProcessOptions, ProcessParts, ProcessSnapshot, ReportFormat, ReportStyle,
};

use crate::args::{ProcArgs, ProcessReportArgs};
use crate::context::{CommandContext, row_limit};
use crate::{messages, named_process, now, output};

/// Longest command line that is shown, in bytes.
const MAX_TITLE_BYTES: usize = 4096;
/// Largest file of `heapprof proc` that is read, in bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

pub(super) fn run(context: &CommandContext, args: &ProcArgs) -> Result<()> {
    let style = style(context, &args.report);
    let file = args.report.output.file();
    let limit = row_limit(&args.limit, file);
    if args.process.is_some() && !args.maps && args.limit.limit.is_some() {
        bail!("-n: only a list of processes and --maps have rows to leave out");
    }
    let text = match &args.process {
        None => {
            let all = list().context("/proc: the list of processes cannot be read")?;
            heapprof_report::processes(&all, limit, &style)?
        }
        Some(process) => {
            let before = args.diff.as_deref().map(read).transpose()?;
            let now = snapshot(named_process::find(process)?)?;
            match before {
                Some(before) => heapprof_report::process_difference(&before, &now, &style)?,
                None => {
                    let options = ProcessOptions {
                        by_mapping: args.maps,
                        is_brief: args.brief,
                        limit,
                    };
                    if style.format == ReportFormat::Csv {
                        // A CSV table has no room for notes.
                        now.notes.iter().for_each(|note| messages::note(note));
                    }
                    heapprof_report::process(&now, options, &style)?
                }
            }
        }
    };
    output::text(file, &text)
}

/// Returns the style of a report about processes.
pub(super) fn style(context: &CommandContext, args: &ProcessReportArgs) -> ReportStyle {
    ReportStyle {
        format: args.format,
        color: context.is_coloured(args.output.file()),
        unit: args.unit.clone(),
        ..ReportStyle::default()
    }
}

/// Reads a snapshot of a process's memory, as far as this user may read it.
fn snapshot(pid: u32) -> Result<ProcessSnapshot> {
    let gone = |error: std::io::Error| match error.kind() {
        ErrorKind::NotFound => anyhow!("process {pid}: has ended"),
        _ if error.raw_os_error() == Some(libc::ESRCH) => anyhow!("process {pid}: has ended"),
        _ => anyhow!("process {pid}: {error}"),
    };
    let mut notes = Vec::new();
    let time_nanos = now::nanos();
    let (identity, counters, seen) = match explain(pid) {
        Ok(explained) => {
            if !explained.is_as_kernel_sums {
                notes.push(changed(&explained));
            }
            let seen = (!explained.mappings.is_empty()).then(|| ProcessParts::from(&explained));
            (explained.identity, explained.counters, seen)
        }
        Err(error) => {
            let is_refused = error.kind() == ErrorKind::PermissionDenied;
            if is_refused {
                notes.push(
                    "the parts of its memory (smaps) are not this user's to read: of another \
                     user's process only root may read them, with CAP_SYS_PTRACE"
                        .to_string(),
                );
            }
            // The kernel gives the same error for its own threads as for a process that is gone.
            let identity = ProcessIdentity::from_pid(pid).map_err(|_| gone(error))?;
            (identity, StatusCounters::from_pid(pid).map_err(gone)?, None)
        }
    };
    if identity.has_ended() {
        notes.push("it has ended, and its parent has not asked how (zombie)".to_string());
    } else if counters.get("VmRSS").is_none() {
        notes.push("it is a thread of the kernel's, which has no memory of its own".to_string());
    }
    let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let cgroup = Cgroup::from_pid(pid);
    if cgroup.is_none() {
        notes.push(
            "its limit is not known: the files of its control group are not here (in a container \
             they may not be mounted)"
                .to_string(),
        );
    }
    Ok(ProcessSnapshot {
        pid,
        title: title(pid, MAX_TITLE_BYTES),
        name: identity.name,
        began: (identity.began, boot_id.trim().to_string()),
        time_nanos,
        parts: seen,
        counters: counters
            .iter()
            .map(|(counter, bytes)| (counter.name.to_string(), bytes))
            .collect(),
        cgroup,
        pressure: machine_pressure(),
        notes,
    })
}

fn changed(explained: &MemoryBreakdown) -> String {
    match explained.mappings.is_empty() {
        true => "it has no mappings".to_string(),
        false => "it changed each time it was read, so the total is that of its mappings, and not \
                  that of smaps_rollup"
            .to_string(),
    }
}

/// Returns all processes that have private memory, the largest first.
fn list() -> std::io::Result<Vec<ListedProcess>> {
    let one = |pid: u32| {
        let rss = StatusCounters::from_pid(pid).ok()?.get("VmRSS")?;
        Some(ListedProcess {
            pid,
            name: heapprof_process::comm(pid),
            title: title(pid, MAX_TITLE_BYTES),
            rss,
            usage: MemoryUsage::from_pid(pid).ok(),
        })
    };
    let mut all: Vec<ListedProcess> = all_processes()?.into_iter().filter_map(one).collect();
    all.sort_by_key(|one| {
        let pss = one.usage.as_ref().map_or(0, |usage| usage.pss);
        (std::cmp::Reverse(pss), std::cmp::Reverse(one.rss), one.pid)
    });
    Ok(all)
}

/// Reads a snapshot from a file that `heapprof proc` wrote.
fn read(path: &Path) -> Result<ProcessSnapshot> {
    let named = || format!("{}: cannot be read", path.display());
    let mut text = String::new();
    let file = File::open(path).with_context(named)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(named)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!(
            "{}: is too long to be written by heapprof proc",
            path.display()
        );
    }
    ProcessSnapshot::parse(&text).map_err(|why| {
        anyhow!(
            "{}: is not what heapprof proc --format json -o FILE writes: {why}",
            path.display()
        )
    })
}
