//! The program that is to be recorded: finds its file, finds what prevents preloading, and explains
//! why it could not be started.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use heapprof_symbolize::program::{PreloadObstacle, inspect};
use rustix::process::{getegid, geteuid, getuid};

use crate::messages;

/// The shell that runs a script whose first line does not name an interpreter.
pub(super) const SHELL_PATH: &str = "/bin/sh";

/// Returns the file that will be run, as execvp finds it.
pub(in crate::command) fn find(program: &OsStr) -> Option<PathBuf> {
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

/// Prints what about the program prevents preloading. Returns whether preloading is worth trying.
pub(super) fn check_preloading(program: &OsStr, path: &Path) -> Result<bool> {
    if !path.is_file() {
        // Reading a pipe would wait for a writer. The user gets the error that it can't be run at
        // the start.
        return Ok(true);
    }
    let looked = inspect(path);
    let name = if looked.file == path {
        program.display().to_string()
    } else {
        looked.file.display().to_string()
    };
    let mut preloaded = true;
    for obstacle in &looked.obstacles {
        match obstacle {
            PreloadObstacle::Static => messages::note(&format!(
                "{name}: is statically linked, so nothing can be preloaded into it; it runs \
                 unrecorded (a Rust program can use the crate heapprof-alloc; others can be \
                 linked dynamically)"
            )),
            PreloadObstacle::OtherLibc(loader) => {
                preloaded = false;
                messages::note(&format!(
                    "{name}: is made for another C library ({}), whose loader can't load a \
                     library for glibc; it runs unrecorded (a Rust program can use the crate \
                     heapprof-alloc)",
                    loader.display()
                ));
            }
            PreloadObstacle::OtherArchitecture(which) => {
                preloaded = false;
                messages::note(&format!(
                    "{name}: is built for another architecture ({which}); it runs unrecorded"
                ));
            }
            PreloadObstacle::Sanitizer(which) => bail!(
                "{name}: is built with {which}, which replaces malloc and must come first; record \
                 a build without it"
            ),
            PreloadObstacle::OwnAllocator(function) => messages::note(&format!(
                "{name}: has an allocator of its own linked in ({function}); only what goes \
                 through the shared library's malloc is recorded (a Rust program can use the \
                 crate heapprof-alloc over it)"
            )),
        }
    }
    if let Some((what, remedy)) = rights(&looked.file) {
        messages::note(&format!(
            "{name}: {what}, so the loader preloads nothing; it runs unrecorded ({remedy})"
        ));
    }
    Ok(preloaded)
}

/// Fails if the user preloads a library that must come first itself.
pub(super) fn check_user_preloads() -> Result<()> {
    const SANITIZER_RUNTIMES: [&str; 5] = ["asan", "tsan", "lsan", "msan", "hwasan"];
    let preloads = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    let preloads = preloads.to_string_lossy();
    for library in preloads.split([':', ' ']) {
        let name = library.rsplit('/').next().unwrap_or_default();
        let is = |runtime: &&str| {
            name.starts_with(&format!("lib{runtime}."))
                || name.starts_with(&format!("libclang_rt.{runtime}"))
        };
        if SANITIZER_RUNTIMES.iter().any(is) {
            bail!(
                "LD_PRELOAD: {library} replaces malloc and must be the first library; record \
                 without it"
            );
        }
    }
    Ok(())
}

/// Returns what gives a program more rights than its user has, and how it can be recorded
/// nevertheless.
fn rights(file: &Path) -> Option<(&'static str, &'static str)> {
    const RECORD_AS_OWNER_ADVICE: &str = "record it as its owner";
    const RECORD_COPY_ADVICE: &str = "record a copy of it, which has no such rights";
    let metadata = file.metadata().ok()?;
    let has = |bits: u32| metadata.permissions().mode() & bits == bits;
    if has(0o4000) && metadata.uid() != geteuid().as_raw() {
        return Some(("is setuid", RECORD_AS_OWNER_ADVICE));
    }
    // Without the group's right to execute, the bit has another meaning.
    if has(0o2010) && metadata.gid() != getegid().as_raw() {
        return Some(("is setgid", RECORD_COPY_ADVICE));
    }
    // root has all capabilities anyway.
    let mut value = [0u8; 64];
    if !getuid().is_root()
        && rustix::fs::getxattr(file, "security.capability", &mut value[..]).is_ok()
    {
        return Some(("has capabilities", RECORD_COPY_ADVICE));
    }
    None
}

/// Whether a shell would run the file that the kernel did not run (`ENOEXEC`): its first line has
/// no zero byte, so it is a script and no damaged program.
pub(super) fn is_for_shell(error: &io::Error, file: &Path) -> bool {
    if error.raw_os_error() != Some(libc::ENOEXEC) {
        return false;
    }
    let mut start = Vec::new();
    let read = std::fs::File::open(file).and_then(|f| f.take(256).read_to_end(&mut start));
    // Shells distinguish a script from a damaged program in this way.
    let line = start.split(|&b| b == b'\n').next().unwrap_or_default();
    read.is_ok() && !line.contains(&0)
}

/// Returns a hint about what the user probably meant by a name that is not a program's.
fn hint(program: &OsStr) -> Option<String> {
    let name = program.to_str()?;
    if let Some((first, _)) = name.split_once(' ')
        && find(OsStr::new(first)).is_some()
    {
        return Some(format!(
            "without quotes {name} is a program and its arguments"
        ));
    }
    if let Some((variable, _)) = name.split_once('=').filter(|(n, _)| !n.contains('/')) {
        return Some(format!("set {variable} in front of heapprof, or by env"));
    }
    let is_here = !name.contains('/') && Path::new(name).is_file();
    is_here.then(|| format!("./{name} is one in this folder"))
}

/// Explains why the program was not started, and returns the exit code that a shell has for it.
pub(super) fn explain_start_failure(
    program: &OsStr,
    found: Option<&Path>,
    error: &io::Error,
) -> (String, u8) {
    let name = program.display();
    if error.kind() != io::ErrorKind::NotFound {
        return match Path::new(program).is_dir() {
            true => (format!("{name}: is a folder, not a program"), 126),
            false => (format!("{name}: {error}"), 126),
        };
    }
    if let Some(hint) = hint(program) {
        return (format!("{name}: there is no such program; {hint}"), 127);
    }
    let looked = found.map(inspect);
    let missing = looked.and_then(|l| {
        [Some(l.file), l.loader]
            .into_iter()
            .flatten()
            .find(|f| !f.exists())
    });
    let text = match missing {
        Some(file) => format!(
            "{name}: {}, which should run it, is not there: install it, or name another one in the \
             file",
            file.display()
        ),
        None => format!("{name}: {error}"),
    };
    (text, 127)
}
