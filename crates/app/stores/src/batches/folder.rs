//! Batches in a folder, each a subfolder of files. The subfolder of a batch gets its final name
//! when all of its files are written.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use anyhow::{Context, Result};
use heapprof_analysis::{
    portable::parquet::{read_parquet, write_parquet},
    portable::{ColumnValues, PORTABLE_TABLES, PortableBatch, TableForm},
};
use heapprof_files::{FileAccess, FilePlace, PathTrust, make_folder, open_folder};
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, openat, statat, unlinkat};
use rustix::io::Errno;

use super::{file_of, is_batch, last_table};

pub(super) fn names(folder: &Path) -> Result<Vec<String>> {
    let named = || format!("{}: cannot be read", folder.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(named)? {
        let path = entry.with_context(named)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let name = name.filter(|name| is_batch(name));
        if let Some(name) = name
            && path.join(file_of(last_table())).is_file()
        {
            found.push(name.to_string());
        }
    }
    Ok(found)
}

pub(super) fn table(file: &Path, form: &TableForm) -> Result<Vec<ColumnValues>> {
    Ok(read_parquet(form, File::open(file)?)?)
}

/// Returns the `file://` URL of a file.
#[cfg(feature = "datafusion")]
pub(super) fn address(file: &Path) -> String {
    use std::os::unix::ffi::OsStrExt;

    let mut address = "file://".to_string();
    let absolute = std::path::absolute(file).unwrap_or_else(|_| file.to_path_buf());
    for &byte in absolute.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => address.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
            _ => address.push_str(&format!("%{byte:02X}")),
        }
    }
    address
}

pub(super) fn make(folder: &Path) -> Result<()> {
    make_folder(folder, PathTrust::Any)
        .with_context(|| format!("{}: cannot be created", folder.display()))?;
    Ok(())
}

pub(super) fn write(folder: &Path, mode: u32, name: &str, batch: &PortableBatch) -> Result<()> {
    let named = || format!("{}: cannot be written", folder.display());
    let at = open_folder(folder, PathTrust::Any).with_context(named)?;
    if statat(&at, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
        return Ok(());
    }
    let draft = format!(".new-{}-{}", batch.name(), std::process::id());
    mkdirat(&at, &draft, Mode::RWXU).with_context(named)?;
    let shown = folder.join(&draft).display().to_string();
    let written = write_into(&at, &draft, &shown, mode, batch);
    let rename = || heapprof_files::rename_folder((at.as_fd(), &*draft), (at.as_fd(), name));
    let named_now = written.map(|()| rename());
    if !matches!(named_now, Ok(Ok(()))) {
        remove(&at, &draft);
    }
    match named_now? {
        // Another export wrote the same batch in the meantime.
        Err(Errno::EXIST) => Ok(()),
        named_now => named_now.with_context(named),
    }
}

fn inside(at: &OwnedFd, draft: &str) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(at, draft, flags, Mode::empty())
}

/// Writes the tables of a batch into its new draft folder. Users who may read the files also get
/// the right to enter the folder.
fn write_into(
    at: &OwnedFd,
    draft: &str,
    shown: &str,
    mode: u32,
    batch: &PortableBatch,
) -> Result<()> {
    let inside = inside(at, draft).with_context(|| shown.to_string())?;
    let readers = mode & 0o044;
    fchmod(&inside, Mode::from_raw_mode(0o700 | readers | readers >> 2))?;
    batch.sorted_tables().try_for_each(|(form, columns)| {
        let file = file_of(form);
        let mut bytes = Vec::new();
        write_parquet(form, &columns, &mut bytes)?;
        let place = FilePlace::in_folder(inside.try_clone()?, &file);
        let named = || format!("{shown}/{file}: cannot be written");
        let mut draft = place.draft(FileAccess::Exactly(mode)).with_context(named)?;
        draft.file().write_all(&bytes).with_context(named)?;
        draft.finish().with_context(named)
    })
}

/// Removes the draft folder of a batch that was not completed.
fn remove(at: &OwnedFd, draft: &str) {
    if let Ok(inside) = inside(at, draft) {
        for form in &PORTABLE_TABLES {
            let _ = unlinkat(&inside, file_of(form), AtFlags::empty());
        }
    }
    let _ = unlinkat(at, draft, AtFlags::REMOVEDIR);
}
