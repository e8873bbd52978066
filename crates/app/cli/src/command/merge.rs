//! `heapprof convert merge`: adds up profiles into one file.

use anyhow::{Result, bail};
use heapprof_profile::encode;

use crate::args::MergeArgs;
use crate::context::CommandContext;
use crate::output;

pub(super) fn run(context: &CommandContext, args: &MergeArgs) -> Result<()> {
    let file = args.output.file();
    if output::is_terminal(file) {
        bail!(
            "a profile is binary and can't be shown on a terminal; write it to a file: heapprof \
             convert merge … -o sum.pb.gz"
        );
    }
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let source = context.sources.read(&names)?;
    output::profile(args.file_mode.mode()?, file, |writer| {
        Ok(encode(&source.profile, writer)?)
    })
}
