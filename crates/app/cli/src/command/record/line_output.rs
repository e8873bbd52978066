//! Opens the file or pipe of `--follow-output`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::args::FileMode;
use crate::{messages, output};

/// Opens what `--follow-output` names, before the program starts.
pub(super) fn open(path: &Path, mode: FileMode) -> Result<(File, PathBuf)> {
    let writer = reader_of(path);
    let file = output::open(mode, path)?;
    drop(writer);
    Ok((file, path.to_path_buf()))
}

/// Prints a note if `path` is a pipe that no process reads from yet. Returns a writer of a pipe
/// that has a reader: the reader would see an end if this writer was closed before there is another
/// one.
fn reader_of(path: &Path) -> Option<OwnedFd> {
    use std::os::unix::fs::FileTypeExt;
    let is_pipe = path
        .metadata()
        .is_ok_and(|found| found.file_type().is_fifo());
    if !is_pipe {
        return None;
    }
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path, flags, Mode::empty()) {
        Err(Errno::NXIO) => {
            let path = path.display();
            messages::note(&format!("{path}: waiting for a reader of this pipe"));
            None
        }
        opened => opened.ok(),
    }
}
