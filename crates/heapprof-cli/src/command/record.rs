//! `heapprof record`: runs a program with libheapprof.so in it, then symbolizes what it left and says where it is.

mod child;
mod outcome;
mod written;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use heapprof_symbolize::program::{Obstacle, inspect};

use crate::args::RecordArgs;
use crate::args::record::Answer;
use crate::{messages, preload};

pub(super) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let program = &args.command[0];
    let found = find(program);
    let mut preloaded = true;
    if let Some(path) = &found {
        preloaded = look_at(program, path)?;
    }
    let library = preload::library()?;
    let pattern = pattern(args.output.as_deref())?;
    // Each process of the recording adds its profiles to this file.
    let list = tempfile::NamedTempFile::new().context("no temporary file can be made")?;
    // The program may become another user.
    list.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o666))
        .context("the list of profiles")?;
    let mut command = Command::new(program);
    command.args(&args.command[1..]);
    if preloaded {
        environment(&mut command, args, &library, &pattern, list.path());
    }
    let ended = match child::run(&mut command) {
        Ok(ended) => ended,
        Err(error) => {
            messages::error(&anyhow::anyhow!("{}: {error}", program.display()));
            let missing = error.kind() == std::io::ErrorKind::NotFound && found.is_none();
            return Ok(ExitCode::from(if missing { 127 } else { 126 }));
        }
    };
    let list = std::fs::read(list.path()).unwrap_or_default();
    let (written, failed) = written::read(&list);
    outcome::report(written, &failed, &ended, !args.no_symbolize);
    Ok(ExitCode::from(ended.code))
}

/// The file that will be run, as execvp finds it.
fn find(program: &OsStr) -> Option<PathBuf> {
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

/// Says what of the program stands in the way of preloading; whether it is worth trying.
fn look_at(program: &OsStr, path: &Path) -> Result<bool> {
    let looked = inspect(path);
    let name = if looked.file == path {
        program.display().to_string()
    } else {
        looked.file.display().to_string()
    };
    let mut preloaded = true;
    for obstacle in &looked.obstacles {
        match obstacle {
            Obstacle::Static => messages::note(&format!(
                "{name}: is statically linked, so nothing can be preloaded into it; it runs unrecorded (a Rust program \
                 can use the crate heapprof-alloc; others can be linked dynamically)"
            )),
            Obstacle::OtherArchitecture(which) => {
                preloaded = false;
                messages::note(&format!(
                    "{name}: is built for another architecture ({which}); it runs unrecorded"
                ));
            }
            Obstacle::Sanitizer(which) => bail!(
                "{name}: is built with {which}, which replaces malloc and must come first; record a build without it"
            ),
            Obstacle::OwnAllocator(function) => messages::note(&format!(
                "{name}: has an allocator of its own linked in ({function}); only what goes through the shared \
                 library's malloc is recorded (a Rust program can use the crate heapprof-alloc over it)"
            )),
        }
    }
    if let Ok(metadata) = looked.file.metadata() {
        let (mode, user) = (
            metadata.permissions().mode(),
            rustix::process::geteuid().as_raw(),
        );
        if mode & 0o4000 != 0 && metadata.uid() != user {
            messages::note(&format!(
                "{name}: is setuid, so the loader preloads nothing; it runs unrecorded (record it as its owner)"
            ));
        }
    }
    Ok(preloaded)
}

/// The file pattern that OUT stands for, absolute. Folders are made.
fn pattern(output: Option<&Path>) -> Result<OsString> {
    const DEFAULT: &str = "heapprof.%e.%p.pb.gz";
    let here = || std::env::current_dir().context("the current folder cannot be read");
    let Some(output) = output else {
        return Ok(escaped(&here()?).join(DEFAULT).into());
    };
    let bytes = output.as_os_str().as_bytes();
    if bytes.ends_with(b".pb.gz") || bytes.contains(&b'%') {
        let folder = output.parent().filter(|p| !p.as_os_str().is_empty());
        if let Some(folder) =
            folder.filter(|f| !f.as_os_str().as_bytes().contains(&b'%') && !f.is_dir())
        {
            bail!(
                "{}: there is no such folder; make it first",
                folder.display()
            );
        }
        return Ok(match output.is_absolute() {
            true => output.into(),
            false if bytes.contains(&b'%') => escaped(&here()?).join(output).into(),
            false => here()?.join(output).into(),
        });
    }
    std::fs::create_dir_all(output)
        .with_context(|| format!("{}: cannot be made", output.display()))?;
    let folder = std::fs::canonicalize(output).with_context(|| format!("{}", output.display()))?;
    Ok(escaped(&folder).join(DEFAULT).into())
}

/// A path that stays itself in a pattern.
fn escaped(path: &Path) -> PathBuf {
    let doubled = path.as_os_str().as_bytes().iter().flat_map(|&b| {
        let times = if b == b'%' { 2 } else { 1 };
        std::iter::repeat_n(b, times)
    });
    OsString::from_vec(doubled.collect()).into()
}

fn environment(
    command: &mut Command,
    args: &RecordArgs,
    library: &Path,
    pattern: &OsStr,
    list: &Path,
) {
    let mut preload = library.as_os_str().to_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|p| !p.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    // What an earlier setup left would mix with the options of this recording.
    for name in [
        "HEAPPROF_SIGNAL",
        "HEAPPROF_FORMAT",
        "HEAPPROF_START",
        "HEAPPROF_VERBOSE",
        "HEAPPROF_GROWTH",
    ] {
        command.env_remove(name);
    }
    let answer = |yes: bool| if yes { "yes" } else { "no" };
    command
        .env("LD_PRELOAD", preload)
        .env("HEAPPROF_OUTPUT", pattern)
        .env("HEAPPROF_LIST", list)
        .env("HEAPPROF_RECORD", std::process::id().to_string())
        .env(
            "HEAPPROF_MODE",
            if args.exact { "exact" } else { "sampled" },
        )
        .env("HEAPPROF_PERIOD", args.period.to_string())
        .env("HEAPPROF_PEAK", answer(args.on_peak))
        .env("HEAPPROF_MMAP", answer(args.mmap))
        .env(
            "HEAPPROF_FOLLOW",
            answer(args.follow_children == Answer::Yes),
        );
    match args.interval {
        Some(interval) => command.env("HEAPPROF_INTERVAL", format!("{}ms", interval.as_millis())),
        None => command.env_remove("HEAPPROF_INTERVAL"),
    };
    if let Some(growth) = args.on_growth {
        command.env("HEAPPROF_GROWTH", growth.to_string());
    }
    let _ = std::io::stderr().flush();
}
