//! The program that is to be recorded: finds its file, and the obstacles to preloading into it.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use heapprof_symbolize::program::{PreloadObstacle, inspect};
use rustix::process::{getegid, geteuid, getuid};

/// The shell that runs a script whose first line does not name an interpreter.
pub(crate) const SHELL_PATH: &str = "/bin/sh";

/// Returns the file that will be run, as execvp finds it.
pub fn find_program(program: &OsStr) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|p| p.exists());
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
    let folders = std::env::split_paths(&path).map(|folder| folder.join(program));
    folders.into_iter().find(|file| {
        file.metadata()
            .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    })
}

/// The result of a check whether a library can be preloaded into a program.
#[derive(Debug)]
pub struct PreloadCheck {
    /// The program as the user named it, or the path of the interpreter that the kernel runs for
    /// it.
    pub name: String,
    /// Obstacles that prevent preloading, or make it of little use.
    pub obstacles: Vec<PreloadObstacle>,
    /// The reason why the program has more rights than its user, if it has more. The loader then
    /// preloads nothing.
    pub raised_rights: Option<RaisedRights>,
}

/// The reason why a program has more rights than its user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RaisedRights {
    /// The file is setuid.
    SetUser,
    /// The file is setgid.
    SetGroup,
    /// The file has capabilities.
    Capabilities,
}

/// The error for a program that is built with a sanitizer. Such a program can't be recorded,
/// because the sanitizer's library must be loaded before all others.
#[derive(Debug, thiserror::Error)]
#[error(
    "{name}: is built with {sanitizer}, which replaces malloc and must be loaded first; record a \
     build without it"
)]
pub struct SanitizerError {
    name: String,
    sanitizer: &'static str,
}

impl PreloadCheck {
    /// Checks whether the library can be preloaded into the program whose file is `path`.
    pub fn new(program: &OsStr, path: &Path) -> Self {
        if !path.is_file() {
            // Reading a pipe would wait for a writer. The user gets an error when the pipe is to be
            // run.
            return Self {
                name: program.display().to_string(),
                obstacles: Vec::new(),
                raised_rights: None,
            };
        }
        let looked = inspect(path);
        let name = if looked.file == path {
            program.display().to_string()
        } else {
            looked.file.display().to_string()
        };
        Self {
            name,
            raised_rights: raised_rights(&looked.file),
            obstacles: looked.obstacles,
        }
    }

    /// Whether preloading is worth trying.
    ///
    /// # Errors
    /// The program is built with a sanitizer.
    pub fn can_preload(&self) -> Result<bool, SanitizerError> {
        let mut can_preload = true;
        for obstacle in &self.obstacles {
            match obstacle {
                PreloadObstacle::OtherLibc(_) | PreloadObstacle::OtherArchitecture(_) => {
                    can_preload = false;
                }
                PreloadObstacle::Sanitizer(sanitizer) => {
                    return Err(SanitizerError {
                        name: self.name.clone(),
                        sanitizer,
                    });
                }
                PreloadObstacle::Static | PreloadObstacle::OwnAllocator(_) => {}
            }
        }
        Ok(can_preload)
    }
}

/// Returns the reason why a program has more rights than its user, if it has more.
fn raised_rights(file: &Path) -> Option<RaisedRights> {
    let metadata = file.metadata().ok()?;
    let has = |bits: u32| metadata.permissions().mode() & bits == bits;
    if has(0o4000) && metadata.uid() != geteuid().as_raw() {
        return Some(RaisedRights::SetUser);
    }
    // Without the group's right to execute, the bit has another meaning.
    if has(0o2010) && metadata.gid() != getegid().as_raw() {
        return Some(RaisedRights::SetGroup);
    }
    // root has all capabilities anyway.
    let mut value = [0u8; 64];
    if !getuid().is_root()
        && rustix::fs::getxattr(file, "security.capability", &mut value[..]).is_ok()
    {
        return Some(RaisedRights::Capabilities);
    }
    None
}

/// Whether a shell would run a file that the kernel refused (`ENOEXEC`). A shell runs the file if
/// its first line has no zero byte: the file is then a script, and not a damaged program.
pub(crate) fn is_for_shell(error: &io::Error, file: &Path) -> bool {
    if error.raw_os_error() != Some(libc::ENOEXEC) {
        return false;
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(file).and_then(|f| f.take(256).read_to_end(&mut start));
    // Shells distinguish a script from a damaged program in this way.
    let line = start.split(|&b| b == b'\n').next().unwrap_or_default();
    read.is_ok() && !line.contains(&0)
}
