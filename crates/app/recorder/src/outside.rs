//! Reads the ledger of a recorded process from outside, or from a core file, and names the code in
//! it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use heapprof_files::FileOwner;
use heapprof_live::{CoreLedger, LiveError, LiveProcess, LiveProcessSummary, SharedLedger};
use heapprof_profile::{Profile, recording_texts};
use heapprof_symbolize::SymbolizeOptions;
use heapprof_text::printable;
use rustix::fs::fstat;
use rustix::process::geteuid;

use crate::hooked_allocators::describe_hooked;
use crate::records;
use crate::rights::{ProcessNamer, ProcessRights, RightsLedger};
use crate::root_folder::{FileId, other_root};

/// Longest time for reading the files that a process of another user names.
const FILE_READ_TIMEOUT: Duration = Duration::from_secs(10);

/// The source from which a process's ledger is read.
enum LedgerSource {
    /// The memory of the process.
    Process(LiveProcess),
    /// The file in which the process keeps its ledger. A `record` handed it over, because the
    /// kernel does not let this user read the process.
    File(SharedLedger, u32),
}

/// Why a recorded process can't be found.
#[derive(Debug, thiserror::Error)]
pub enum ProcessFindError {
    /// The name is empty.
    #[error("pid: does not name a process")]
    NoName,
    /// No process with this name is recorded, or none that this user may see.
    #[error("{0}: no process with this name is recorded, or this user may not read it")]
    NotRecorded(String),
    /// Several processes of one name are recorded.
    #[error(
        "{program}: {} processes with this name are recorded; give one by its number: {}",
        pids.len(),
        pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
    )]
    Several {
        /// The name of the program.
        program: String,
        /// The process ids of the processes with this name.
        pids: Vec<u32>,
    },
    /// The process with this number can't be read.
    #[error("process {which}: {error}")]
    Unreadable {
        /// The process id, as text.
        which: String,
        /// The reason why the process can't be read.
        error: LiveError,
    },
    /// The processes can't be listed.
    #[error("/proc")]
    Unlisted(#[source] io::Error),
}

/// A recorded process that can be read repeatedly.
pub struct OutsideProcess {
    ledger: LedgerSource,
    rights: RightsLedger,
    namer: ProcessNamer,
    /// The open executable of the process, which names its code even after the process has ended.
    _executable: Option<File>,
}

/// Opens a core file. Also returns the user whose rights are needed for files that the core file
/// names. A core file may name any files, so root reads them with the rights of the core file's
/// owner.
pub fn open_core(path: &Path) -> io::Result<(File, FileOwner)> {
    // Opening a pipe would wait for its writer.
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other(
            "is not a core file: it is not a regular file",
        ));
    }
    let file = File::open(path)?;
    let owner = match geteuid().is_root() {
        true => FileOwner::from_stat(&fstat(&file)?),
        false => FileOwner::us(),
    };
    Ok((file, owner))
}

/// Reads the profile of a process from its core file, and names its code.
pub fn read_core(path: &Path) -> Result<Profile> {
    let (file, owner) = open_core(path).context("cannot be read")?;
    let mut profile = CoreLedger::open(file)?.snapshot()?;
    namer(None)
        .symbolize(&mut profile, ProcessRights::User(owner))
        .context("the files that it names cannot be read")?;
    Ok(profile)
}

/// Returns the folder below which the files lie that `/proc/PID/maps` names, if it is not `/`: the
/// root folder of a process that has other mounts than heapprof. If such a process has changed its
/// root folder by chroot alone, the names begin outside that folder.
pub fn root_of(pid: u32) -> Option<PathBuf> {
    let mounts = |of: &str| std::fs::read_link(format!("/proc/{of}/ns/mnt")).ok();
    let (own, its) = (mounts("self"), mounts(&pid.to_string()));
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let is_executable = |path: &Path| FileId::at_path(path) == FileId::at_path(&executable_of(pid));
    let is_outside = || {
        let name = std::fs::read_link(executable_of(pid)).ok()?;
        let below = root.join(name.strip_prefix("/").ok()?);
        Some(!is_executable(&below) && is_executable(&name))
    };
    let is_other = its.is_some() && own != its && is_outside() != Some(true);
    is_other.then_some(root)
}

/// Makes a namer of code that finds the code's files below the folder `root`.
pub fn namer(root: Option<PathBuf>) -> ProcessNamer {
    ProcessNamer::new(SymbolizeOptions {
        number_functions: true,
        root,
        ..SymbolizeOptions::default()
    })
}

/// Makes a namer of a process's code. The namer has the executable open, because the file's name
/// may lead to another file by now.
pub fn namer_of(pid: u32) -> ProcessNamer {
    // A process in another root folder names its files as it sees them.
    let mut namer = namer(other_root(pid).or_else(|| root_of(pid)));
    namer.set_opened(vec![executable_of(pid)]);
    namer
}

/// Returns a path that opens the executable of a process even if the file was moved or removed.
pub fn executable_of(pid: u32) -> PathBuf {
    format!("/proc/{pid}/exe").into()
}

impl OutsideProcess {
    /// Finds a recorded process by its number or its name.
    pub fn find(which: &str) -> Result<Self, ProcessFindError> {
        let ledger = match which.parse::<u32>() {
            Ok(pid) => LedgerSource::open(pid).map_err(|error| ProcessFindError::Unreadable {
                which: which.to_string(),
                error,
            })?,
            Err(_) => find_by_program(which)?,
        };
        let rights = RightsLedger::default();
        rights.open(ledger.pid(), FileOwner::us());
        Ok(Self::new(ledger, rights))
    }

    /// Makes a process from its ledger file, and from the known rights of the process.
    pub fn from_ledger_file(kept: SharedLedger, pid: u32, rights: RightsLedger) -> Self {
        Self::new(LedgerSource::File(kept, pid), rights)
    }

    fn new(ledger: LedgerSource, rights: RightsLedger) -> Self {
        let mut namer = namer_of(ledger.pid());
        let path = executable_of(ledger.pid());
        let executable = match rights.least(ledger.pid()) {
            least @ ProcessRights::User(_) => least.acting(|| File::open(path).ok()).ok(),
            ProcessRights::Public => None,
        };
        let executable = executable.flatten();
        if let Some(executable) = &executable {
            let number = executable.as_raw_fd();
            namer.set_opened(vec![format!("/proc/self/fd/{number}").into()]);
        }
        Self {
            ledger,
            rights,
            namer,
            _executable: executable,
        }
    }

    /// Returns the file in which the process keeps its ledger; `None` if the ledger is read from
    /// the process's memory.
    pub fn ledger_file(&self) -> Option<&SharedLedger> {
        match &self.ledger {
            LedgerSource::Process(_) => None,
            LedgerSource::File(kept, _) => Some(kept),
        }
    }

    /// Whether the recording of the process is known to have ended.
    pub fn has_stopped_recording(&self) -> bool {
        self.ledger.summary().is_ok_and(|found| !found.is_running)
    }

    /// Returns the number of the process.
    pub fn pid(&self) -> u32 {
        self.ledger.pid()
    }

    /// Whether the process still runs the same program.
    pub fn is_there(&self) -> bool {
        match &self.ledger {
            LedgerSource::Process(process) => process.is_there(),
            LedgerSource::File(kept, pid) => kept.belongs_to(*pid),
        }
    }

    /// Reads a profile of the current moment, and names its code.
    pub fn read(&mut self) -> Result<Profile> {
        let mut profile = match &self.ledger {
            LedgerSource::Process(process) => match process.snapshot() {
                Err(LiveError::LedgerSwapped) => read_ledger_file(process.pid())?,
                made => made?,
            },
            LedgerSource::File(kept, pid) => {
                kept.read("read from record's file", *pid, "")?.profile
            }
        };
        if self.is_there() {
            add_title_comments(&mut profile, &command_line(self.pid()));
        }
        // The profile has what the process wrote until now, so the rights are the least until now.
        let rights = self.rights.least(self.pid());
        give_names(&mut profile, &mut self.namer, rights)?;
        Ok(profile)
    }
}

/// Reads the command line of a process, up to a limit.
pub fn command_line(pid: u32) -> Vec<u8> {
    // One additional byte shows that there is more.
    const MAX_LENGTH: u64 = recording_texts::MAX_COMMAND_LINE as u64 + 1;
    let mut command_line = Vec::new();
    if heapprof_process::is_proc_ours()
        && let Ok(file) = File::open(format!("/proc/{pid}/cmdline"))
    {
        let _ = file.take(MAX_LENGTH).read_to_end(&mut command_line);
    }
    command_line
}

/// Joins a command line in the kernel's form: each word ends with a zero byte.
pub fn join_command_line(words: &[OsString]) -> Vec<u8> {
    let words = words.iter().flat_map(|word| [word.as_bytes(), b"\0"]);
    words.collect::<Vec<_>>().concat()
}

/// Returns the text that distinguishes a process from other processes of the same program: the
/// script that it runs, or the title that it has set.
pub fn process_title(program: &str, pid: u32) -> Option<String> {
    title_from_command_line(program, &command_line(pid))
}

/// Returns the text that distinguishes a process, as [`process_title`] does, from a command line
/// with zero bytes between its words.
pub fn title_from_command_line(program: &str, command_line: &[u8]) -> Option<String> {
    let comment = recording_texts::process_name_comments(program, command_line).next()?;
    Some(comment.split_once(": ")?.1.to_string())
}

/// Adds comments about the process's script or title, as the library does.
pub fn add_title_comments(profile: &mut Profile, command_line: &[u8]) {
    let called: Vec<String> =
        recording_texts::process_name_comments(&program(profile), command_line).collect();
    add_comments(profile, called);
}

/// Adds a comment about the script that a process was started with. The process's title is left
/// out, because the process may have got it from its parent.
pub fn add_script_comment(profile: &mut Profile, command_line: &[u8]) {
    let program = program(profile);
    let mut called = recording_texts::process_name_comments(&program, command_line);
    let script = called.find(|text| text.starts_with("script: "));
    add_comments(profile, script);
}

/// Adds a comment with a process's whole command line, as the library does.
pub fn add_command_line_comment(profile: &mut Profile, command_line: &[u8]) {
    let whole = recording_texts::command_line(&program(profile), command_line);
    add_comments(profile, whole);
}

/// Adds the comments about a recording of a program that ran already: how long ago it began, and
/// the allocators inside files that the library has found there, as comments.
pub fn add_attachment_comments(profile: &mut Profile, since: Duration, allocators: &[String]) {
    let since = format!("{:.1} s", since.as_secs_f64());
    let own = [
        format!("attached: {since} before the end, while the program ran"),
        "attached: blocks allocated before are not in it, nor are their frees".to_string(),
    ];
    let allocators = allocators
        .iter()
        .map(|comment| printable(comment).into_owned());
    add_comments(profile, own.into_iter().chain(allocators));
}

/// Describes the allocators inside files that a profile has the blocks of; `None` if there are
/// none.
pub fn describe_allocators(profile: &Profile) -> Option<String> {
    let comments = profile.comment.iter().map(|&text| profile.text(text));
    describe_hooked(&comments.map(str::to_string).collect::<Vec<_>>())
}

/// Returns the program of a profile, from the profile's comments.
fn program(profile: &Profile) -> String {
    let mut comments = profile.comment.iter().map(|&text| profile.text(text));
    let program = comments.find_map(|comment| comment.strip_prefix("program: "));
    program.unwrap_or_default().to_string()
}

fn add_comments(profile: &mut Profile, comments: impl IntoIterator<Item = String>) {
    for comment in comments {
        let comment = profile.strings.intern(&comment);
        profile.comment.push(comment);
    }
}

/// Names the code in a profile. The process chose which files the profile names, so they are read
/// with the rights of the process.
pub fn give_names(
    profile: &mut Profile,
    namer: &mut ProcessNamer,
    rights: ProcessRights,
) -> Result<()> {
    let named = namer.symbolize_within(profile, rights, FILE_READ_TIMEOUT);
    named.map(drop).context("its files cannot be read")
}

impl LedgerSource {
    /// Opens the ledger of a process: in its memory, or else in the file that a `record` has.
    fn open(pid: u32) -> Result<Self, LiveError> {
        match LiveProcess::open(pid) {
            Ok(process) => Ok(Self::Process(process)),
            Err(LiveError::NotAllowed) => match records::file_of(pid) {
                Some(kept) => Ok(Self::File(kept, pid)),
                None => Err(LiveError::NotAllowed),
            },
            Err(error) => Err(error),
        }
    }

    fn pid(&self) -> u32 {
        match self {
            Self::Process(process) => process.pid(),
            Self::File(_, pid) => *pid,
        }
    }

    fn summary(&self) -> Result<LiveProcessSummary, LiveError> {
        match self {
            Self::Process(process) => process.summary(),
            Self::File(kept, pid) => kept.summary(*pid),
        }
    }
}

/// Returns the recorded processes, in the order of their numbers: the processes that this user may
/// read, and the processes to which a `record` of this user gives access.
fn find_recorded() -> io::Result<Vec<LedgerSource>> {
    let read = heapprof_live::recorded_processes()?;
    let has = |pid: u32| read.iter().any(|process| process.pid() == pid);
    let asked = records::processes().into_iter().filter(|&pid| !has(pid));
    let asked: Vec<LedgerSource> = asked
        .filter_map(|pid| Some(LedgerSource::File(records::file_of(pid)?, pid)))
        .collect();
    let mut all: Vec<LedgerSource> = read.into_iter().map(LedgerSource::Process).collect();
    all.extend(asked);
    all.sort_by_key(LedgerSource::pid);
    Ok(all)
}

/// Reads a profile of a process from the process's ledger file, instead of its memory.
fn read_ledger_file(pid: u32) -> Result<Profile> {
    let kept = records::file_of(pid).ok_or(LiveError::LedgerSwapped)?;
    Ok(kept.read("read from record's file", pid, "")?.profile)
}

/// Returns the only recorded process of this name. Fails if there are several.
fn find_by_program(program: &str) -> Result<LedgerSource, ProcessFindError> {
    if program.is_empty() {
        return Err(ProcessFindError::NoName);
    }
    let all = find_recorded().map_err(ProcessFindError::Unlisted)?;
    let is_named = |ledger: &LedgerSource| {
        let summary = ledger.summary();
        summary.is_ok_and(|found| found.program == program)
    };
    let mut all: Vec<LedgerSource> = all.into_iter().filter(is_named).collect();
    match all.len() {
        0 => Err(ProcessFindError::NotRecorded(program.to_string())),
        1 => Ok(all.remove(0)),
        _ => Err(ProcessFindError::Several {
            program: program.to_string(),
            pids: all.iter().map(LedgerSource::pid).collect(),
        }),
    }
}

/// Returns a summary of each recorded process.
pub fn list() -> io::Result<Vec<LiveProcessSummary>> {
    let all = find_recorded()?;
    Ok(all
        .iter()
        .filter_map(|ledger| ledger.summary().ok())
        .collect())
}
