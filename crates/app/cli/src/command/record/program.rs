//! Explains why nothing can be preloaded into the program, or why it could not be started.

use std::ffi::OsStr;
use std::io;
use std::path::Path;

use anyhow::{Result, bail};
use heapprof_recorder::{PreloadCheck, RaisedRights, find_program};
use heapprof_symbolize::program::{PreloadObstacle, inspect};

use crate::messages;

/// Prints the program's obstacles to preloading. Returns whether preloading is worth trying.
pub(super) fn check_preloading(program: &OsStr, path: &Path) -> Result<bool> {
    let check = PreloadCheck::new(program, path);
    report_preloading(&check);
    Ok(check.can_preload()?)
}

/// Prints the obstacles to preloading that a check found.
pub(super) fn report_preloading(check: &PreloadCheck) {
    let name = &check.name;
    for obstacle in &check.obstacles {
        match obstacle {
            PreloadObstacle::Static => messages::note(&format!(
                "{name}: is statically linked, so nothing can be preloaded into it; it runs \
                 unrecorded (a Rust program can use the crate heapprof-alloc; others can be \
                 linked dynamically)"
            )),
            PreloadObstacle::OtherLibc(loader) => messages::note(&format!(
                "{name}: is made for another C library ({}), and libheapprof.so is for glibc and \
                 musl; it runs unrecorded (a Rust program can use the crate heapprof-alloc)",
                loader.display()
            )),
            PreloadObstacle::OtherArchitecture(which) => messages::note(&format!(
                "{name}: is built for another architecture ({which}); it runs unrecorded"
            )),
            // This is the error of the recording.
            PreloadObstacle::Sanitizer(_) => return,
            // If it is not hooked, the last line says so.
            PreloadObstacle::OwnAllocator(_) => {}
        }
    }
    if let Some(raised) = check.raised_rights {
        let (what, remedy) = describe_rights(raised);
        messages::note(&format!(
            "{name}: {what}, so the loader preloads nothing; it runs unrecorded ({remedy})"
        ));
    }
}

/// Describes why a program has more rights than its user, and how it can be recorded nevertheless.
fn describe_rights(raised: RaisedRights) -> (&'static str, &'static str) {
    const RECORD_AS_OWNER_ADVICE: &str = "record it as its owner";
    const RECORD_COPY_ADVICE: &str = "record a copy of it, which has no such rights";
    match raised {
        RaisedRights::SetUser => ("is setuid", RECORD_AS_OWNER_ADVICE),
        RaisedRights::SetGroup => ("is setgid", RECORD_COPY_ADVICE),
        RaisedRights::Capabilities => ("has capabilities", RECORD_COPY_ADVICE),
    }
}

/// Fails if the user preloads a library that must be loaded before all others, such as the runtime
/// of a sanitizer.
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

/// Returns a hint for a program name that does not exist, if the name shows what the user probably
/// meant.
fn hint(program: &OsStr) -> Option<String> {
    let name = program.to_str()?;
    if let Some((first, _)) = name.split_once(' ')
        && find_program(OsStr::new(first)).is_some()
    {
        return Some(format!(
            "without quotes {name} is a program and its arguments"
        ));
    }
    if let Some((variable, _)) = name.split_once('=').filter(|(n, _)| !n.contains('/')) {
        return Some(format!("set {variable} in front of heapprof, or with env"));
    }
    let is_here = !name.contains('/') && Path::new(name).is_file();
    is_here.then(|| format!("./{name} is one in this folder"))
}

/// Explains why the program was not started. Also returns the exit code that a shell has in that
/// case.
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
