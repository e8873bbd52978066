//! `heapprof proc --recorded`: lists the recorded processes of this machine.

use anyhow::{Context, Result};
use heapprof_recorder::recorded_processes;
use heapprof_report::ReportStyle;

use crate::args::ProcessReportArgs;
use crate::{messages, output};

pub(super) fn run(args: &ProcessReportArgs) -> Result<()> {
    let rows = recorded_processes().context("/proc: the list of processes cannot be read")?;
    if rows.is_empty() {
        messages::note(
            "there is no recorded process that this user may read; start one with heapprof record \
             (root can read all; where kernel.yama.ptrace_scope is not 0, other users can read \
             only what heapprof record started)",
        );
    }
    let style = ReportStyle {
        format: args.format,
        color: false,
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let text = heapprof_report::recorded_processes(&rows, &style)?;
    output::text(args.output.file(), &text)
}
