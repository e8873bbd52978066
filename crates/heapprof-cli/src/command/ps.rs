//! `heapprof ps`: the recorded processes of this machine.

use anyhow::{Context, Result};
use heapprof_report::{RecordedProcess, Style};

use super::record::resident;
use crate::args::PsArgs;
use crate::{messages, output, outside};

pub(super) fn run(args: &PsArgs) -> Result<()> {
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
            pid: found.pid,
            program: found.program,
            period: found.period,
            is_running: found.is_running,
            started: found.started,
            in_use: found.in_use,
            peak: found.peak,
        })
        .collect();
    let style = Style {
        format: args.format,
        color: false,
        unit: args.unit.clone(),
        ..Style::default()
    };
    let text = heapprof_report::recorded(&rows, &style)?;
    output::text(args.output.file(), &text)
}
