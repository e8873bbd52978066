//! Reads the audit of forked children from a folder, for `fork-audit` and for `report`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_analysis::{
    AnalysisSession, Granularity, Query, TypeSelection,
    fork_audit::{ForkAudit, fork_audit},
};
use heapprof_recorder::CHILDREN_SUFFIX;

use crate::context::CommandContext;
use crate::name;

/// The ending of the file name of a child's audit.
pub(super) const AUDIT_SUFFIX: &str = ".fork.pb.gz";
/// The ending of a profile's file name.
pub(super) const PROFILE_SUFFIX: &str = ".pb.gz";

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

/// Returns the profiles that a name stands for. A folder stands for the profiles in it, and in the
/// children's folders inside it. A profile stands for itself and for the profiles of its children,
/// which are in a folder beside it.
pub(super) fn profiles_of(name: &str) -> Result<Vec<String>> {
    let path = name::path(name);
    let mut found = Vec::new();
    if path.is_dir() {
        add_folder(&path, true, &mut found)?;
        must_have_some(name, &found)?;
    } else {
        found.push(name.to_string());
        let children = name.strip_suffix(PROFILE_SUFFIX);
        let children = children.map(|stem| format!("{stem}{}", CHILDREN_SUFFIX));
        if let Some(children) = children.filter(|children| Path::new(children).is_dir()) {
            add_folder(Path::new(&children), false, &mut found)?;
        }
    }
    Ok(found)
}

/// Fails if a folder has no profiles.
pub(super) fn must_have_some<T>(folder: &str, found: &[T]) -> Result<()> {
    if found.is_empty() {
        bail!("{folder}: there is no profile ({PROFILE_SUFFIX}) in this folder");
    }
    Ok(())
}

/// Returns the paths in a folder, sorted by name.
pub(super) fn list_folder(folder: &Path) -> Result<Vec<PathBuf>> {
    let named = || format!("{}: cannot be read", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        paths.push(entry.with_context(named)?.path());
    }
    paths.sort();
    Ok(paths)
}

/// Adds the profiles in a folder, sorted by name. If `with_children` is true, also adds the
/// profiles in the children's folders inside it.
fn add_folder(folder: &Path, with_children: bool, to: &mut Vec<String>) -> Result<()> {
    for path in list_folder(folder)? {
        let text = path.to_string_lossy();
        if text.ends_with(PROFILE_SUFFIX) && path.is_file() {
            to.push(text.into_owned());
        } else if with_children && text.ends_with(CHILDREN_SUFFIX) && path.is_dir() {
            add_folder(&path, false, to)?;
        }
    }
    Ok(())
}
