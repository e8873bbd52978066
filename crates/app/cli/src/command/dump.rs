//! `heapprof dump`: writes a profile of a recorded process's live heap, read from outside.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_profile::{Profile, encode};

use crate::args::{DumpArgs, FileMode};
use crate::{messages, name, output, outside};

/// Maximum number of characters of the program's name in the profile's file name.
const MAX_PROGRAM_NAME_CHARS: usize = 40;
/// Maximum number of file names that are tried to find an unused one.
const MAX_NAME_ATTEMPTS: usize = 100_000;

pub(super) fn run(args: &DumpArgs) -> Result<()> {
    let mut watched = outside::find_for_reader(&args.process)?;
    let profile = watched
        .read()
        .with_context(|| format!("process {}", name::shown(&args.process)))?;
    let output = args.output.as_deref();
    refuse_terminal(output)?;
    let mode = args.file_mode.mode()?;
    if let Some(written) = write(&profile, watched.pid(), output, mode)? {
        messages::note(&written);
    }
    Ok(())
}

/// Fails if a profile would be written to a terminal: if `output` is `-`, and stdout is a terminal.
pub(super) fn refuse_terminal(output: Option<&Path>) -> Result<()> {
    if output.is_some_and(|path| path == "-") && output::is_terminal(None) {
        bail!("a profile is binary and can't be shown on a terminal; write it to a file with -o");
    }
    Ok(())
}

/// Writes the profile of a process to `output`, or under an unused name if `output` is `None`.
/// Returns a message for the user, or `None` if the profile went to stdout.
pub(super) fn write(
    profile: &Profile,
    pid: u32,
    output: Option<&Path>,
    mode: FileMode,
) -> Result<Option<String>> {
    let path = match output {
        Some(path) if path == "-" => None,
        Some(path) => Some(path.to_path_buf()),
        None => Some(free_name(profile, pid)?),
    };
    output::profile(mode, path.as_deref(), |writer| Ok(encode(profile, writer)?))?;
    Ok(path.map(|path| {
        let (shown, typed) = (path.display(), name::quoted(path.as_os_str()));
        format!("{shown}: written; next: heapprof top {typed}")
    }))
}

/// Returns an unused file name in the current folder.
fn free_name(profile: &Profile, pid: u32) -> Result<PathBuf> {
    let comments = profile.comment.iter().map(|&text| profile.text(text));
    let mut programs = comments.filter_map(|comment| comment.strip_prefix("program: "));
    let program: String = programs
        .next()
        .unwrap_or("unknown")
        .chars()
        .take(MAX_PROGRAM_NAME_CHARS)
        .map(|c| if c == '/' || c.is_control() { '_' } else { c })
        .collect();
    let named = |n: usize| PathBuf::from(format!("heapprof.{program}.{pid}.{n}.pb.gz"));
    let is_free = |path: &PathBuf| std::fs::symlink_metadata(Path::new(path)).is_err();
    let mut names = (1..=MAX_NAME_ATTEMPTS).map(named);
    names
        .find(is_free)
        .context("every default name for the profile is taken; give one with -o")
}
