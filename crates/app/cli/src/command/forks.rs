//! Computes the audit of forked children, for `fork-audit` and for `report`.

use anyhow::Result;
use heapprof_analysis::{
    AnalysisSession, Granularity, Query, TypeSelection,
    fork_audit::{ForkAudit, fork_audit},
};

use crate::context::CommandContext;

/// The ending of the file name of a child's audit.
pub(super) const AUDIT_SUFFIX: &str = ".fork.pb.gz";

/// Computes the fork audit of profiles. Also returns the session that ran the audit's statements.
pub(super) fn ask(
    context: &CommandContext,
    names: &[String],
    limit: Option<usize>,
) -> Result<(ForkAudit, AnalysisSession)> {
    let query = Query {
        granularity: Granularity::Lines,
        ..Query::default()
    };
    let sources = context.sources.read_each(names)?;
    let session = context.session(sources, &query, TypeSelection::Requested, |question| {
        question
    })?;
    Ok((fork_audit(&session, limit)?, session))
}
