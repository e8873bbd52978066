//! `heapprof db ls`: lists the profiles of the database.

use std::path::Path;

use anyhow::{Context, Result};
use heapprof_analysis::{store::StoredProfile, stored_moment::StoredMoment};
use heapprof_report::ReportStyle;
use heapprof_stores::{StoreBackend, open_database};

use crate::args::LsArgs;
use crate::context::CommandContext;
use crate::output;

pub(super) fn run(context: &CommandContext, args: &LsArgs) -> Result<()> {
    let profiles = match context.sources.backend() {
        StoreBackend::Database(db) => list_database(db)?,
        backend => list_moments(heapprof_stores::open(backend)?.1),
    };
    let style = ReportStyle {
        format: args.format,
        color: false,
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let text = heapprof_report::stored_profiles(&profiles, &style)?;
    output::text(args.output.file(), &text)
}

fn list_database(db: &Path) -> Result<Vec<StoredProfile>> {
    let profiles = open_database(db)?.profiles();
    profiles.with_context(|| db.display().to_string())
}

fn list_moments(moments: Vec<StoredMoment>) -> Vec<StoredProfile> {
    let each = moments.into_iter().map(|moment| {
        let (name, unit) = moment
            .types
            .get(moment.default_type)
            .cloned()
            .unwrap_or_default();
        let total = moment
            .totals
            .get(moment.default_type)
            .copied()
            .unwrap_or_default();
        StoredProfile {
            name: moment.name,
            time_nanos: moment.time_nanos,
            snapshot: None,
            samples: moment.samples,
            total: (name, unit, total),
            program: None,
            script_or_title: None,
        }
    });
    each.collect()
}
