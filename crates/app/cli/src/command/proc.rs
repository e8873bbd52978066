//! `heapprof proc`: reports the memory of a process as the kernel counts it.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_report::{ProcessOptions, ProcessSnapshot, ReportFormat, ReportStyle};
use heapprof_watch::{list_processes, read_snapshot};

use crate::args::{ProcArgs, ProcessReportArgs};
use crate::context::{CommandContext, row_limit, screen_width};
use crate::{messages, output, process_choice};
use heapprof_process::clock;

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
            let all = list_processes().context("/proc: the list of processes cannot be read")?;
            heapprof_report::processes(&all, limit, &style)?
        }
        Some(process) => {
            let before = args.diff.as_deref().map(read).transpose()?;
            let now = snapshot(process_choice::find(process)?)?;
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
        width: screen_width(args.output.file()),
        ..ReportStyle::default()
    }
}

/// Reads a snapshot of a process's memory, as far as this user may read it.
fn snapshot(pid: u32) -> Result<ProcessSnapshot> {
    read_snapshot(pid, clock::nanos()).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow!("process {pid}: has ended"),
        _ if error.raw_os_error() == Some(libc::ESRCH) => anyhow!("process {pid}: has ended"),
        _ => anyhow!("process {pid}: {error}"),
    })
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
            "{}: is too long to have been written by heapprof proc",
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
