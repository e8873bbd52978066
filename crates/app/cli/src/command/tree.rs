//! `heapprof tree`: prints the call tree.

use anyhow::Result;
use heapprof_analysis::{TreeOptions, TypeSelection, tree};

use super::CommandContext;
use crate::args::TreeArgs;

pub(super) fn run(shared: &CommandContext, args: &TreeArgs) -> Result<()> {
    let query = args.question.query();
    let names = shared.sources.or_newest(&args.profiles.profiles)?;
    let options = TreeOptions {
        reverse: args.reverse,
        least: args.min_percent / 100.0,
        most: None,
    };
    let sources = vec![shared.sources.read(&names)?];
    let session = shared.session(sources, &query, TypeSelection::Requested, |q| {
        q.with_tree(options)
    })?;
    let report = tree(&session, &query)?;
    shared.finish_into(&args.report, &session, |style, out| {
        Ok(heapprof_report::tree(&report, args.full, style, out)?)
    })
}
