//! Batches in a folder, each a folder of files. A batch gets its name when all of its files are
//! there.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use heapprof_analysis::{Batch, Cells, TABLES, TableForm, read_parquet, write_parquet};
use rustix::fs::{AtFlags, Mode, RenameFlags, mkdirat, renameat_with, unlinkat};
use rustix::io::Errno;

use super::{file_of, is_batch, last_table};
use crate::args::FileMode;
use crate::output;
use crate::place::{Access, Place, Trust, make_folder, open_folder};

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

pub(super) fn table(file: &Path, form: &TableForm) -> Result<Vec<Cells>> {
    Ok(read_parquet(form, File::open(file)?)?)
}

/// The address of a file.
#[cfg(feature = "datafusion")]
pub(super) fn address(file: &Path) -> Result<String> {
    use std::fmt::Write;
    use std::os::unix::ffi::OsStrExt;

    let mut address = "file://".to_string();
    for &byte in std::path::absolute(file)?.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'_' | b'.' | b'~' => address.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => address.push(char::from(byte)),
            _ => write!(address, "%{byte:02X}")?,
        }
    }
    Ok(address)
}

pub(super) fn make(folder: &Path) -> Result<()> {
    make_folder(folder, Trust::Any)
        .with_context(|| format!("{}: cannot be made", folder.display()))?;
    Ok(())
}

pub(super) fn write(folder: &Path, mode: FileMode, name: &str, batch: &Batch) -> Result<()> {
    if folder.join(name).exists() {
        return Ok(());
    }
    let named = || format!("{}: cannot be written", folder.display());
    let at = open_folder(folder, Trust::Any).with_context(named)?;
    let draft = format!(".new-{}-{}", batch.name(), std::process::id());
    let rights = Mode::from_raw_mode(0o700 | (mode.0 & 0o044) | ((mode.0 & 0o044) >> 2));
    mkdirat(&at, &draft, rights).with_context(named)?;
    let inside = open_folder(&folder.join(&draft), Trust::Any).with_context(named)?;
    let written = batch.sorted().try_for_each(|(form, columns)| {
        let file = file_of(form);
        let mut bytes = Vec::new();
        write_parquet(form, &columns, &mut bytes)?;
        let place = Place::in_folder(inside.try_clone()?, &file);
        let shown = folder.join(&draft).join(&file).display().to_string();
        output::replace(&place, &shown, Access::Exactly(mode.0), |out| {
            Ok(std::io::Write::write_all(out, &bytes)?)
        })
    });
    let named_now = written.map(|()| renameat_with(&at, &draft, &at, name, RenameFlags::NOREPLACE));
    if !matches!(named_now, Ok(Ok(()))) {
        for form in &TABLES {
            let _ = unlinkat(&inside, file_of(form), AtFlags::empty());
        }
        let _ = unlinkat(&at, &draft, AtFlags::REMOVEDIR);
    }
    match named_now? {
        // Another export wrote the same batch in the meantime.
        Err(Errno::EXIST) => Ok(()),
        named_now => named_now.with_context(named),
    }
}
