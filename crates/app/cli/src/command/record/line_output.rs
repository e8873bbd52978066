//! Opens the file or pipe of `--follow-output`.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::args::FileMode;
use crate::{messages, output};

/// Opens the file or pipe at `path`, before the program starts.
pub(super) fn open(path: &Path, mode: FileMode) -> Result<(File, PathBuf)> {
    let writer = reader_of(path);
    let file = output::open(mode, path)?;
    drop(writer);
    Ok((file, path.to_path_buf()))
}

/// Opens a pipe for writing if it has a reader, and prints a note if it has none. Returns `None`
/// for anything but a pipe. The caller must keep the returned descriptor open until it has opened
/// the pipe again. Otherwise, the reader would see the end of the pipe.
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
