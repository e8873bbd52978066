//! Saves a copy of a profile that was fetched from a server, so that the user can examine it again.

use std::env;
use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use crate::graph::base;
use anyhow::{Context, Result, bail};
use heapprof_profile::{Profile, encode};

use crate::host::DropinHost;

/// Saves the profile in the first usable folder: PPROF_TMPDIR, the folder `pprof` in the user's
/// home, or the system's folder for temporary files. Returns the file; `None`, with a note, if the
/// profile can't be saved.
pub(super) fn save(host: &dyn DropinHost, profile: &Profile) -> Option<PathBuf> {
    match save_to_folder(host, profile) {
        Ok(path) => {
            host.note(&format!("Saved profile in {}", path.display()));
            Some(path)
        }
        Err(error) => {
            host.note(&format!("Could not save profile: {error:#}"));
            None
        }
    }
}

fn save_to_folder(host: &dyn DropinHost, profile: &Profile) -> Result<PathBuf> {
    let mut name = "pprof.".to_string();
    let main = profile.mapping.first();
    let file = main.map_or("", |m| profile.text(m.filename));
    if !file.is_empty() {
        name += &format!("{}.", base(file));
    }
    for r#type in &profile.sample_type {
        name += &format!("{}.", profile.text(r#type.r#type));
    }
    let (path, file) = create_numbered(&folder(host)?, &name, ".pb.gz", FileReaders::Umask)?;
    let body = |writer: &mut dyn Write| Ok(encode(profile, writer)?);
    host.write_into(&path.display().to_string(), file, Box::new(body))?;
    Ok(path)
}

fn folder(host: &dyn DropinHost) -> Result<PathBuf> {
    let given = |name| env::var_os(name).filter(|value| !value.is_empty());
    let wanted = given("PPROF_TMPDIR").map(PathBuf::from);
    let home = given("HOME").map(|home| PathBuf::from(home).join("pprof"));
    let folders = [wanted, home, Some(env::temp_dir())];
    for folder in folders.into_iter().flatten() {
        match DirBuilder::new().recursive(true).create(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) => host.note(&format!(
                "Could not use temp dir {}: {error}",
                folder.display()
            )),
        }
    }
    bail!("failed to identify temp dir")
}

/// The users who may read a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileReaders {
    /// The umask decides.
    Umask,
    /// Only the user who makes the file.
    Owner,
}

/// Creates a file whose name consists of `name`, the lowest free number and `end`.
pub(super) fn create_numbered(
    folder: &std::path::Path,
    name: &str,
    end: &str,
    readers: FileReaders,
) -> Result<(PathBuf, std::fs::File)> {
    let mode = match readers {
        FileReaders::Umask => 0o666,
        FileReaders::Owner => 0o600,
    };
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(mode);
    for number in 1..10_000 {
        // The folder is not made absolute, so that a file in the current folder is named without
        // it.
        let path = folder.join(format!("{name}{number:03}{end}"));
        match options.open(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error)
                    .with_context(|| format!("{}: cannot be written", path.display()));
            }
        }
    }
    bail!("could not create file of the form {name}001{end}")
}
