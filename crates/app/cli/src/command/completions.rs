//! `heapprof setup completions SHELL`: prints completions for a shell.

use anyhow::Result;
use clap_complete::Shell;

use crate::args::visible_command;
use crate::output;

pub(super) fn run(shell: Shell) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut visible_command(), "heapprof", &mut script);
    output::write(None, |writer| Ok(writer.write_all(&script)?))
}
