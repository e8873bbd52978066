//! `heapprof record`: runs a program with libheapprof.so in it, then symbolizes what it left and says where it is.

mod child;
mod outcome;
mod program;
mod written;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use signal_hook::consts::SIGINT;
use signal_hook::low_level::emulate_default_handler;
use tempfile::{NamedTempFile, TempDir};

use crate::args::RecordArgs;
use crate::args::record::Answer;
use crate::{messages, preload};

pub(super) fn run(args: &RecordArgs) -> Result<ExitCode> {
    let program = &args.command[0];
    let found = program::find(program);
    let mut preloaded = true;
    if let Some(path) = &found {
        preloaded = program::look_at(program, path)?;
    }
    program::look_at_preloads()?;
    let library = preload::library()?;
    let pattern = pattern(args.output.as_deref())?;
    let mut list = List::new().context("no temporary file can be made")?;
    let start = |words: &[&OsStr], preloaded| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&args.command[1..]);
        if preloaded {
            environment(&mut command, args, &library, &pattern, list.file.path());
        }
        child::run(&mut command, args.on_signal)
    };
    let mut ended = start(&[program], preloaded);
    if let (Err(error), Some(script)) = (&ended, &found)
        && program::is_for_shell(error, script)
    {
        let shell = OsStr::new(program::SHELL);
        let preloaded = program::look_at(shell, Path::new(shell))?;
        ended = start(&[shell, script.as_os_str()], preloaded);
    }
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            let (text, code) = program::why_not(program, found.as_deref(), &error);
            messages::error(&anyhow::anyhow!(text));
            return Ok(ExitCode::from(code));
        }
    };
    let (written, failed) = written::read(&list.read().context("the list of profiles")?);
    if !list.file.path().exists() {
        messages::note(&format!(
            "{}: was taken away while the program ran: there may be profiles that are not told of here, without names",
            list.file.path().display()
        ));
    }
    outcome::report(written, &failed, &ended, !args.no_symbolize);
    drop(list);
    if ended.by_key {
        // A shell ends its loop or script where Ctrl-C ended the program, not where one exits with 130.
        let _ = emulate_default_handler(SIGINT);
    }
    Ok(ExitCode::from(ended.code))
}

/// The file that each process of the recording adds its profiles to.
struct List {
    file: NamedTempFile,
    /// The program may become another user, who may write to the file; others do not find it.
    _folder: TempDir,
}

impl List {
    fn new() -> std::io::Result<Self> {
        let only = std::fs::Permissions::from_mode;
        let folder = tempfile::Builder::new()
            .permissions(only(0o711))
            .tempdir()?;
        let file = NamedTempFile::new_in(folder.path())?;
        // Whatever the umask is.
        std::fs::set_permissions(folder.path(), only(0o711))?;
        file.as_file().set_permissions(only(0o666))?;
        Ok(Self {
            file,
            _folder: folder,
        })
    }

    /// What is in it, even if the program took its name away.
    fn read(&mut self) -> std::io::Result<Vec<u8>> {
        let mut content = Vec::new();
        self.file.as_file_mut().rewind()?;
        self.file.as_file_mut().read_to_end(&mut content)?;
        Ok(content)
    }
}

/// The file pattern that OUT stands for, absolute. Folders are made.
fn pattern(output: Option<&Path>) -> Result<OsString> {
    const DEFAULT: &str = "heapprof.%e.%p.pb.gz";
    let here = || std::env::current_dir().context("the current folder cannot be read");
    let Some(output) = output else {
        return Ok(escaped(&here()?).join(DEFAULT).into());
    };
    let bytes = output.as_os_str().as_bytes();
    if bytes == b"-" {
        bail!(
            "-o -: a recording writes files, not to standard output; name one that ends in .pb.gz, or a folder"
        );
    }
    let is_file = bytes.ends_with(b".pb.gz") || bytes.contains(&b'%');
    if !is_file || bytes.ends_with(b"/") || output.is_dir() {
        if output.exists() && !output.is_dir() {
            bail!(
                "{}: is there already and is no folder; name another folder, or a file that ends in .pb.gz",
                output.display()
            );
        }
        std::fs::create_dir_all(output)
            .with_context(|| format!("{}: cannot be made", output.display()))?;
        let folder =
            std::fs::canonicalize(output).with_context(|| format!("{}", output.display()))?;
        return Ok(escaped(&folder).join(DEFAULT).into());
    }
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty());
    let pattern = match (folder, output.file_name()) {
        // A folder that is there is itself, whatever it looks like.
        (Some(folder), Some(name)) if folder.is_dir() => escaped(folder).join(name),
        (Some(folder), _) if !folder.as_os_str().as_bytes().contains(&b'%') => bail!(
            "{}: there is no such folder; make it first",
            folder.display()
        ),
        _ => output.to_path_buf(),
    };
    Ok(match pattern.is_absolute() {
        true => pattern.into(),
        false => escaped(&here()?).join(pattern).into(),
    })
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
        .env(
            "HEAPPROF_RECORD",
            format!("{}:{:010}", std::process::id(), 0),
        )
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
    if let Some(signal) = args.on_signal {
        command.env("HEAPPROF_SIGNAL", signal.to_string());
    }
}
