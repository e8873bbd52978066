//! `heapprof dump`: a profile of what a recorded process holds now, read from outside.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_profile::{Profile, encode};

use crate::args::DumpArgs;
use crate::outside::Watched;
use crate::{messages, name, output};

/// So many characters of the program's name are in the file's.
const LONGEST: usize = 40;
/// So many names are tried.
const MOST: usize = 100_000;

pub(super) fn run(args: &DumpArgs) -> Result<()> {
    let mut watched = Watched::find(&args.process)?;
    let profile = watched
        .read()
        .with_context(|| format!("process {}", name::shown(&args.process)))?;
    let path = match &args.output {
        Some(path) if path == "-" => None,
        Some(path) => Some(path.clone()),
        None => Some(free_name(&profile, watched.pid())?),
    };
    if output::is_terminal(path.as_deref()) {
        bail!("a profile is not text for a terminal; write it to a file with -o");
    }
    output::profile(args.file_mode.mode()?, path.as_deref(), |writer| {
        Ok(encode(&profile, writer)?)
    })?;
    if let Some(path) = path {
        let (shown, typed) = (path.display(), name::quoted(path.as_os_str()));
        messages::note(&format!("{shown}: written; next: heapprof top {typed}"));
    }
    Ok(())
}

/// A name in this folder that no file has.
pub(super) fn free_name(profile: &Profile, pid: u32) -> Result<PathBuf> {
    let comments = profile.comment.iter().map(|&text| profile.text(text));
    let mut programs = comments.filter_map(|comment| comment.strip_prefix("program: "));
    let program: String = programs
        .next()
        .unwrap_or("unknown")
        .chars()
        .take(LONGEST)
        .map(|c| if c == '/' || c.is_control() { '_' } else { c })
        .collect();
    let named = |n: usize| PathBuf::from(format!("heapprof.{program}.{pid}.{n}.pb.gz"));
    let is_free = |path: &PathBuf| std::fs::symlink_metadata(Path::new(path)).is_err();
    let mut names = (1..=MOST).map(named);
    names
        .find(is_free)
        .context("every name for the profile is taken; say one with -o")
}
