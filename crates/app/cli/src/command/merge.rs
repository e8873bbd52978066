//! `heapprof merge`: adds up profiles into one file.

use anyhow::{Result, bail};
use heapprof_profile::encode;

use super::CommandContext;
use crate::args::MergeArgs;
use crate::output;

pub(super) fn run(shared: &CommandContext, args: &MergeArgs) -> Result<()> {
    let file = args.output.file();
    if output::is_terminal(file) {
        bail!(
            "a profile is not text for a terminal; write it to a file: heapprof merge … -o \
             sum.pb.gz"
        );
    }
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let source = shared.sources.read(&names)?;
    output::profile(args.file_mode.mode()?, file, |writer| {
        Ok(encode(&source.profile, writer)?)
    })
}
