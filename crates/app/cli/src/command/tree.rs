//! `heapprof tree`: prints the call tree.

use anyhow::Result;
use heapprof_analysis::{TreeOptions, TypeSelection, tree};

use crate::args::TreeArgs;
use crate::context::CommandContext;

pub(super) fn run(context: &CommandContext, args: &TreeArgs) -> Result<()> {
    let query = args.question.query();
    let names = context.sources.or_newest(&args.profiles.profiles)?;
    let options = TreeOptions {
        reverse: args.reverse,
        least: args.min_percent / 100.0,
        most: None,
    };
    let sources = vec![context.sources.read(&names)?];
    let session = context.session(sources, &query, TypeSelection::Requested, |q| {
        q.with_tree(options)
    })?;
    let report = tree(&session, &query)?;
    context.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::tree(&report, args.full, style, out)?)
    })
}
