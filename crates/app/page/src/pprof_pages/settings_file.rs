//! The file in which pprof's page keeps its saved configurations.

use std::fs::{DirBuilder, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};
use heapprof_files::{FileAccess, FileOwner, PathTrust, TypedPath, replace_file, resolve_typed};

/// Largest file that is read. A configuration has less than 10 kB.
const MAX_BYTES: u64 = 4 << 20;

/// Returns the path of the file: `pprof/settings.json` in the folder for the user's settings.
pub(super) fn path() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let folder = match (variable("XDG_CONFIG_HOME"), variable("HOME")) {
        (Some(folder), _) => PathBuf::from(folder),
        (None, Some(home)) => PathBuf::from(home).join(".config"),
        (None, None) => bail!("there is no folder for settings: HOME is not set"),
    };
    match folder.is_absolute() {
        true => Ok(folder.join("pprof/settings.json")),
        false => bail!(
            "{}: the folder for settings is not absolute; set XDG_CONFIG_HOME to an absolute one",
            folder.display()
        ),
    }
}

/// Returns the content of the file; `None` if there is no file.
pub(super) fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    let unreadable = || format!("{}: could not read settings", path.display());
    let kind = match std::fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(unreadable),
    };
    if !kind.is_file() {
        bail!("{}: the settings are no regular file", path.display());
    }
    let mut content = Vec::new();
    let file = File::open(path).with_context(unreadable)?;
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut content);
    read.with_context(unreadable)?;
    match content.len() as u64 > MAX_BYTES {
        true => bail!("{}: the settings are larger than 4 MiB", path.display()),
        false => Ok(Some(content)),
    }
}

/// Writes the file, and makes its folder if there is none. The user's own links are followed.
pub(super) fn write(path: &Path, content: &[u8]) -> Result<()> {
    let unwritable = || format!("{}: could not write settings", path.display());
    if let Some(folder) = path.parent() {
        let mut builder = DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(unwritable)?;
    }
    match resolve_typed(path, PathTrust::OwnLinks)? {
        TypedPath::Open(_) => bail!("{}: the settings are no regular file", path.display()),
        TypedPath::Place(place, found) => {
            let kept = found.filter(|found| FileOwner::from_stat(found).is_us());
            let access = kept.map_or(FileAccess::Exactly(0o600), |found| {
                FileAccess::Exactly(found.st_mode & 0o777)
            });
            let body = |out: &mut dyn Write| Ok::<_, Error>(out.write_all(content)?);
            replace_file(&place, &path.display().to_string(), access, body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_as_a_whole() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("settings/pprof/settings.json");
        assert_eq!(read(&path).unwrap(), None);
        for content in [&b"{}"[..], b"[]"] {
            write(&path, content).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
        }
        let folder = read(path.parent().unwrap()).unwrap_err();
        assert!(folder.to_string().contains("no regular file"), "{folder}");
    }
}
