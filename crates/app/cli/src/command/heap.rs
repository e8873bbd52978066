//! `heapprof heap`: reports what is in a heap: of a perl its values, of any other program the
//! blocks that leaked.

use anyhow::{Context, Result, bail};
use heapprof_inspect::{ProgramFile, has_perl};

use super::{heapwalk, perl_heap};
use crate::args::{Cli, CliCommand, HeapArgs, HeapCommand, parse};
use crate::context::CommandContext;
use crate::name;
use crate::process_choice;

pub(super) fn run(context: &CommandContext, args: &HeapArgs) -> Result<()> {
    let target = args
        .target
        .as_deref()
        .context("give a process or core:FILE")?;
    let path = name::path(target);
    let target = match ProgramFile::find(&path) {
        Some(ProgramFile::Core) => format!("core:{target}"),
        Some(ProgramFile::Program | ProgramFile::Script) => {
            format!("pid:{}", process_choice::running(target, &path)?)
        }
        None => target.to_string(),
    };
    let is_perl = match target.strip_prefix("core:") {
        Some(path) => has_perl::core(&name::path(path)),
        // Another file is one of Devel::MAT.
        None if path.is_file() && !target.starts_with("pid:") => true,
        None => has_perl::process(process_choice::find(&target)?),
    };
    let part = match is_perl {
        true => "values",
        false => "blocks",
    };
    let words = ["heapprof", "heap", part, "--", &target].map(Into::into);
    let Cli { command, .. } = parse(&words)?;
    match command {
        CliCommand::HeapPart(HeapCommand::Values(args)) => perl_heap::run(context, &args),
        CliCommand::HeapPart(HeapCommand::Blocks(args)) => heapwalk::run(context, &args),
        _ => bail!("{target}: is neither a process nor a core file"),
    }
}
