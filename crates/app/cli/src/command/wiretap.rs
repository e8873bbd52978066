//! `heapprof alive wiretap`: reports which code ran, and which code never ran.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use heapprof_analysis::store::ProfileStore;
use heapprof_report::ReportStyle;

use crate::args::WiretapArgs;
use crate::context::CommandContext;
use crate::output;
use heapprof_process::clock;

/// Largest file of names that is read, in bytes.
const MAX_FILE_BYTES: u64 = 64 << 20;

pub(super) fn run(context: &CommandContext, args: &WiretapArgs) -> Result<ExitCode> {
    let db = context.sources.db();
    let named = || db.display().to_string();
    if !db.exists() {
        bail!(
            "{}: there is no such database; heapprof alive listen creates it",
            db.display()
        );
    }
    let expected = args.expect.as_deref().map(names).transpose()?;
    let since_ms = match args.since {
        Some(time) => {
            clock::millis().saturating_sub(i64::try_from(time.as_millis()).unwrap_or(i64::MAX))
        }
        None => 0,
    };
    let by = args.by.into();
    let report = ProfileStore::open(db)
        .and_then(|store| store.wiretap(by, since_ms.max(0), expected.as_deref()))
        .with_context(named)?;
    let style = ReportStyle {
        format: args.format,
        ..ReportStyle::default()
    };
    let text = heapprof_report::wiretap(&report, by, &style)?;
    output::text(args.output.file(), &text)?;
    Ok(match args.fail_if_unseen && !report.unseen.is_empty() {
        true => ExitCode::from(1),
        false => ExitCode::SUCCESS,
    })
}

/// Reads the names in a file: one name on each line, without comments and surrounding blanks.
fn names(path: &Path) -> Result<Vec<String>> {
    let named = || format!("{}: the names cannot be read", path.display());
    let file = File::open(path).with_context(named)?;
    let mut text = String::new();
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(named)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        bail!(
            "{}: is longer than 64 MiB; give fewer names",
            path.display()
        );
    }
    let lines = text
        .lines()
        .map(|line| line.split_once('#').map_or(line, |(name, _)| name));
    let names = lines.map(str::trim).filter(|name| !name.is_empty());
    Ok(names.map(str::to_string).collect())
}
