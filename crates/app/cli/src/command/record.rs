//! `heapprof record`: runs a program with libheapprof.so in it, then symbolizes the profiles that
//! it left and prints where they are.

mod audit;
mod child;
mod ending;
mod executables;
mod files;
mod folder;
mod followed;
mod keeper;
mod kept;
mod line_output;
mod lines;
mod list;
mod live;
mod no_profile;
mod oom;
mod outcome;
mod program;
mod residents;
mod small_children;
mod tail;
mod unhooked;
mod unnamed;
mod words;
mod written;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use heapprof_abi::environment::{self as variable, EnvironmentVariable, VariableSetter};
use signal_hook::consts::SIGINT;
use signal_hook::low_level::emulate_default_handler;

use self::audit::ForkAuditor;
pub(super) use self::child::{ProgramExit, run_unrecorded};
use self::ending::ProcessEndings;
use self::keeper::{KeeperHandle, KeeperOutcome};
use self::kept::ProfileWriteOptions;
use self::lines::LineFollowThread;
use self::list::ProfileList;
use self::live::LiveView;
pub(super) use self::live::moments::ProcessMoments;
pub(super) use self::program::find as find_program;
use self::residents::ResidentReader;
pub(super) use self::residents::resident;
pub(super) use self::words::bytes;
use self::written::{PrivateLedger, UnrecordedProcess, WrittenProfile};
use super::forks::CHILDREN_SUFFIX;
use crate::args::record::{FrameSelection, YesOrNo};
use crate::args::size::size;
use crate::args::{ColorMode, FileMode, RecordArgs};
use crate::perl_offer::{self, ModuleUse};
use crate::{log, messages, perl_module, preload};
use heapprof_files::FileOwner;
use heapprof_recorder::outside::join_command_line;
use heapprof_recorder::rights::RightsLedger;

/// The error if there can be no folder in which the processes of a recording report.
const MISSING_FOLDER_TEXT: &str =
    "no temporary folder can be made; TMPDIR may name one that only this user may write to";

pub(super) fn run(args: &RecordArgs, color: ColorMode) -> Result<ExitCode> {
    let program = &args.command[0];
    let found = program::find(program);
    let mut preloaded = true;
    if let Some(path) = &found {
        preloaded = program::check_preloading(program, path)?;
    }
    program::check_user_preloads()?;
    let library = preload::library()?;
    let used_for = match (args.perl_values, args.fork_audit) {
        (true, _) => Some(ModuleUse::Values),
        (false, true) => Some(ModuleUse::Audit),
        (false, false) => None,
    };
    if let (Some(used_for), Some(path), true) =
        (used_for, &found, args.frames != FrameSelection::Native)
    {
        perl_offer::offer(path, used_for, args.perl_install)?;
    }
    if args.perl_values {
        check_perl_module(args.frames)?;
    }
    let mode = args.file_mode.mode()?;
    let names = ProfileNamePatterns::new(args.output.as_deref(), program)?;
    let said = line_output::open(args)?;
    let mut list = ProfileList::new().context(MISSING_FOLDER_TEXT)?;
    let rights = RightsLedger::default();
    let follow = |least| LineFollowThread::start(list.path(), least, args, said, rights.clone());
    let follower = args.follow_lines.map(follow).transpose()?;
    let wanted = ProfileWriteOptions {
        names: names.clone(),
        mode,
        wrappers: args.wrappers.clone().unwrap_or_default(),
        command_line: args.command_line,
        typed: join_command_line(&args.command),
        least: small_children::least_of_child(args),
    };
    let log = log::open(&args.log, mode, args.output.as_deref())?;
    let audit = args.fork_audit.then(ForkAuditor::default);
    let mut keeper = KeeperHandle::new(list.path(), wanted, log, audit, rights.clone());
    let live = args
        .live
        .then(|| LiveView::new(args, &list, color, rights.clone()));
    let mut live = live.transpose()?;
    let mut reader = None;
    let mut start = |words: &[&OsStr], preloaded| {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&args.command[1..]);
        if preloaded {
            environment(&mut command, args, mode, &library, &names, list.path());
            if let Ok(keeper) = &keeper {
                // A ledger file of its own would cost each child more memory than its parent's
                // tables, which both share until one of them writes to them.
                let what = match args.fork_audit {
                    true => variable::FORK_AUDIT,
                    false => variable::KEEP,
                };
                command.env(what.name, keeper.path());
            }
        }
        if let Some(live) = &live {
            live.redirect(&mut command).map_err(std::io::Error::other)?;
        }
        child::run(
            &mut command,
            |process| reader = Some(ResidentReader::start(process)),
            args.on_signal,
            live.as_mut(),
            keeper.as_mut().ok(),
            &rights,
        )
    };
    let mut ended = start(&[program], preloaded);
    if let (Err(error), Some(script)) = (&ended, &found)
        && program::is_for_shell(error, script)
    {
        let shell = OsStr::new(program::SHELL_PATH);
        let preloaded = program::check_preloading(shell, Path::new(shell))?;
        ended = start(&[shell, script.as_os_str()], preloaded);
    }
    let residents = reader.map(ResidentReader::end).unwrap_or_default();
    drop(live);
    if let Some(follower) = follower {
        follower.end();
    }
    let was_killed = ended.as_ref().is_ok_and(|ended| ended.signal.is_some());
    let saved = keeper.map(|keeper| keeper.end(was_killed));
    if let Some(end) = saved.as_ref().ok().and_then(|saved| saved.log.as_ref()) {
        log::report(&args.log, end);
    }
    let ended = match ended {
        Ok(ended) => ended,
        Err(error) => {
            let (mut text, code) =
                program::explain_start_failure(program, found.as_deref(), &error);
            let is_size = |text: &OsStr| text.to_str().is_some_and(|t| size(t).is_ok());
            if args.follow_lines.is_some() && is_size(program) {
                text += &format!("; --follow-lines={} is one word", program.display());
            }
            messages::error(&anyhow::anyhow!(text));
            return Ok(ExitCode::from(code));
        }
    };
    let is_settled = |process| {
        let saved = saved.as_ref().ok();
        saved.is_some_and(|saved| saved.settled.contains(&process))
    };
    let mut said = written::read(&list.read().context("the list of profiles")?, is_settled);
    for one in &mut said.written {
        one.rights = one.rights.with(rights.least_observed(one.process));
    }
    let mut ending = add_saved(&mut said, saved, &ended);
    ending.residents = residents;
    if !list.path().exists() {
        messages::note(&format!(
            "{}: was removed while the program ran: there may be more profiles, which are not \
             listed here and have no names",
            list.path().display()
        ));
    }
    let has_all = outcome::report(said, &ended, &ending, &names, args);
    drop(list);
    if ended.by_key {
        // If Ctrl-C ended the program, a shell ends its loop or script. If a program exits with
        // 130, the shell goes on.
        let _ = emulate_default_handler(SIGINT);
    }
    Ok(match (ended.code, has_all) {
        (0, false) => ExitCode::from(2),
        (code, _) => ExitCode::from(code),
    })
}

/// Adds the profiles of processes that ended without reporting to the profiles that processes
/// reported.
fn add_saved(
    said: &mut written::ListContents,
    saved: std::io::Result<KeeperOutcome>,
    ended: &ProgramExit,
) -> ProcessEndings {
    let mut unrecorded = std::mem::take(&mut said.unrecorded);
    let mut private = std::mem::take(&mut said.private);
    let saved = saved.unwrap_or_else(|error| {
        private.push(PrivateLedger {
            process: ended.process,
            why: format!("nobody could be told of them: {error}"),
            owner: FileOwner::us(),
        });
        KeeperOutcome::default()
    });
    for note in &saved.notes {
        messages::note(note);
    }
    // A profile that was written before under the same name is gone.
    let is_new = |one: &WrittenProfile| saved.written.iter().all(|new| new.path != one.path);
    said.written.retain(is_new);
    // A program may have got the library in another way, and may have been killed.
    let was_recorded = |one: &UnrecordedProcess| {
        let mut last = saved.written.iter().filter(|new| new.is_last);
        last.any(|new| new.process == one.process)
    };
    unrecorded.retain(|one| !was_recorded(one));
    said.written.extend(saved.written);
    said.small.extend(saved.small);
    ProcessEndings {
        unwritten: saved.unwritten,
        died: saved.died,
        unread: saved.unread,
        private,
        unrecorded,
        executables: saved.executables,
        ..ProcessEndings::default()
    }
}

/// Checks that Perl's values can be traced, as far as this is known before the program runs.
fn check_perl_module(frames: FrameSelection) -> Result<()> {
    if frames == FrameSelection::Native {
        bail!("--perl-values: values have Perl's frames, which --frames native leaves out");
    }
    if perl_module::options().is_none() {
        bail!(
            "--perl-values: the Perl module that traces values was not built for any perl; run \
             'heapprof perl-install' first (or 'heapprof perl-install --perl PATH'), or add \
             --perl-install"
        );
    }
    Ok(())
}

/// The patterns of the names that the profiles of a recording get.
#[derive(Clone)]
pub(super) struct ProfileNamePatterns {
    /// The pattern of the program's profiles.
    pattern: OsString,
    /// The pattern of the children's profiles; `None` if it is the program's.
    children: Option<OsString>,
}

const PROFILE_SUFFIX: &[u8] = b".pb.gz";

impl ProfileNamePatterns {
    fn new(output: Option<&Path>, program: &OsStr) -> Result<Self> {
        let pattern = pattern(output)?;
        let own = Path::new(program).file_name().unwrap_or(program);
        let children = stem_of_children(pattern.as_bytes(), own).map(|mut stem| {
            stem.extend_from_slice(CHILDREN_SUFFIX.as_bytes());
            stem.extend_from_slice(b"/%e.%p.pb.gz");
            OsString::from_vec(stem)
        });
        Ok(Self { pattern, children })
    }

    /// Makes the names of a recording from their patterns.
    pub(super) fn from_patterns(pattern: OsString, children: Option<OsString>) -> Self {
        Self { pattern, children }
    }

    /// Returns the folder that the children of a program with this process id write to.
    pub(super) fn folder_of_children(&self, process: u32) -> Option<PathBuf> {
        let path = Path::new(self.children.as_ref()?).parent()?;
        let text = path.as_os_str().as_bytes();
        let made = expand_pattern(text, |letter| match letter {
            b'r' => process.to_string().into_bytes(),
            other => vec![other],
        });
        Some(OsString::from_vec(made).into())
    }

    /// Returns the path of a process's last profile, and whether it replaces a file that exists.
    /// `main` is the process that `record` started. `own` and `program` are the number and the name
    /// that the process reports; they lead to no other folder.
    pub(super) fn last_profile_path(
        &self,
        main: u32,
        is_main: bool,
        own: u32,
        program: &str,
    ) -> (PathBuf, bool) {
        let program = match Path::new(program).file_name() {
            Some(name) if name == program => program,
            _ => "unknown",
        };
        let (pattern, is_ours) = match &self.children {
            Some(children) if !is_main => (children, true),
            _ => (&self.pattern, false),
        };
        let mut is_named = false;
        let mut made = expand_pattern(pattern.as_bytes(), |letter| {
            is_named |= matches!(letter, b'p' | b'e' | b'n');
            match letter {
                b'p' => own.to_string().into_bytes(),
                b'e' => program.as_bytes().to_vec(),
                b'n' => b"0001".to_vec(),
                b'r' if is_ours => main.to_string().into_bytes(),
                b'%' => vec![b'%'],
                other => vec![b'%', other],
            }
        });
        if !is_named && !is_main {
            let end = made
                .strip_suffix(PROFILE_SUFFIX)
                .map_or(made.len(), <[u8]>::len);
            made.splice(end..end, format!(".{own}").into_bytes());
        }
        (OsString::from_vec(made).into(), is_main && !is_named)
    }

    /// Returns the path of a process's last profile if it must not be in the folder of the
    /// children: beside the program's profile.
    pub(super) fn path_beside_program(&self, main: u32, own: u32, program: &str) -> PathBuf {
        let all = Self {
            pattern: self.pattern.clone(),
            children: None,
        };
        all.last_profile_path(main, false, own, program).0
    }
}

/// Expands a pattern. `of` returns the text for the letter behind a percent sign.
fn expand_pattern(pattern: &[u8], mut of: impl FnMut(u8) -> Vec<u8>) -> Vec<u8> {
    let mut made = Vec::with_capacity(pattern.len());
    let mut bytes = pattern.iter();
    while let Some(&byte) = bytes.next() {
        match bytes.as_slice().first() {
            Some(&letter) if byte == b'%' => {
                made.extend(of(letter));
                bytes.next();
            }
            _ => made.push(byte),
        }
    }
    made
}

/// Returns a pattern without its ending, after which the folder of the children is named. Returns
/// `None` if the user's pattern has `%p`, `%e` or `%n`, because it then names the children's
/// profiles too.
fn stem_of_children(pattern: &[u8], program: &OsStr) -> Option<Vec<u8>> {
    let stem = pattern.strip_suffix(PROFILE_SUFFIX).unwrap_or(pattern);
    if let Some(folder) = pattern.strip_suffix(DEFAULT_PATTERN.as_bytes()) {
        let program = escape_pattern(Path::new(program))
            .into_os_string()
            .into_vec();
        return Some([folder, b"heapprof.", &program, b".%r"].concat());
    }
    let mut bytes = stem.iter();
    while let Some(&byte) = bytes.next() {
        if byte == b'%' && matches!(bytes.next(), Some(b'p' | b'e' | b'n')) {
            return None;
        }
    }
    Some(stem.to_vec())
}

const DEFAULT_PATTERN: &str = "heapprof.%e.%p.pb.gz";

/// Returns the absolute file pattern that OUT stands for. If OUT is a folder, it is made.
fn pattern(output: Option<&Path>) -> Result<OsString> {
    let here = || std::env::current_dir().context("the current folder cannot be read");
    let Some(output) = output else {
        return Ok(escape_pattern(&here()?).join(DEFAULT_PATTERN).into());
    };
    let bytes = output.as_os_str().as_bytes();
    if bytes == b"-" {
        bail!(
            "-o -: a recording writes files, not to standard output; name one that ends in \
             .pb.gz, or a folder"
        );
    }
    let is_file = bytes.ends_with(b".pb.gz") || bytes.contains(&b'%');
    if !is_file || bytes.ends_with(b"/") || output.is_dir() {
        if output.exists() && !output.is_dir() {
            bail!(
                "{}: is there already and is no folder; name another folder, or a file that ends \
                 in .pb.gz",
                output.display()
            );
        }
        std::fs::create_dir_all(output)
            .with_context(|| format!("{}: cannot be made", output.display()))?;
        let folder =
            std::fs::canonicalize(output).with_context(|| format!("{}", output.display()))?;
        return Ok(escape_pattern(&folder).join(DEFAULT_PATTERN).into());
    }
    let folder = output.parent().filter(|p| !p.as_os_str().is_empty());
    let pattern = match (folder, output.file_name()) {
        // A folder that exists is taken as it is, whatever its name looks like.
        (Some(folder), Some(name)) if folder.is_dir() => escape_pattern(folder).join(name),
        (Some(folder), _) if !folder.as_os_str().as_bytes().contains(&b'%') => bail!(
            "{}: there is no such folder; make it first",
            folder.display()
        ),
        _ => output.to_path_buf(),
    };
    Ok(match pattern.is_absolute() {
        true => pattern.into(),
        false => escape_pattern(&here()?).join(pattern).into(),
    })
}

/// Returns a pattern that stands for the path itself.
fn escape_pattern(path: &Path) -> PathBuf {
    let doubled = path.as_os_str().as_bytes().iter().flat_map(|&b| {
        let times = if b == b'%' { 2 } else { 1 };
        std::iter::repeat_n(b, times)
    });
    OsString::from_vec(doubled.collect()).into()
}

fn environment(
    command: &mut Command,
    args: &RecordArgs,
    mode: FileMode,
    library: &Path,
    names: &ProfileNamePatterns,
    list: &Path,
) {
    let mut preload = library.as_os_str().to_os_string();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|p| !p.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    // Variables that an earlier setup left would mix with the options of this recording.
    let ours = |variable: &&EnvironmentVariable| {
        !matches!(
            variable.setter,
            VariableSetter::Gperftools | VariableSetter::UserPassthrough | VariableSetter::Watch
        )
    };
    for variable in variable::ALL.iter().filter(ours) {
        command.env_remove(variable.name);
    }
    let answer = |yes: bool| if yes { "yes" } else { "no" };
    command
        .env("LD_PRELOAD", preload)
        .env(variable::OUTPUT.name, &names.pattern)
        .env(variable::FILE_MODE.name, format!("{:o}", mode.0))
        .env(variable::LIST.name, list)
        .env(
            variable::RECORD.name,
            format!("{}:{:010}", std::process::id(), 0),
        )
        .env(
            variable::MODE.name,
            if args.is_exact() { "exact" } else { "sampled" },
        )
        .env(variable::PERIOD.name, args.period().to_string())
        .env(variable::PEAK.name, answer(args.on_peak))
        .env(variable::MMAP.name, answer(args.mmap))
        .env(
            variable::FOLLOW.name,
            answer(args.follow_children == YesOrNo::Yes),
        );
    if let Some(interval) = args.interval {
        command.env(
            variable::INTERVAL.name,
            format!("{}ms", interval.as_millis()),
        );
    }
    if let Some(least) = small_children::least_of_child(args) {
        command.env(variable::LEAST.name, least.to_string());
    }
    if let Some(pattern) = &names.children {
        command.env(variable::CHILDREN.name, pattern);
    }
    if args.frames != FrameSelection::Native
        && let Some(options) = perl_module::options()
    {
        let mut all = std::env::var_os("PERL5OPT").unwrap_or_default();
        all.push(if all.is_empty() { "" } else { " " });
        all.push(options);
        command.env("PERL5OPT", all);
    }
    command.env(variable::FRAMES.name, args.frames.name());
    command.env(
        variable::THREADS.name,
        answer(args.threads || args.fork_audit),
    );
    command.env(variable::COMMAND_LINE.name, answer(args.command_line));
    command.env(variable::PERL_EVALS.name, args.perl_evals.name());
    command.env(variable::PERL_VALUES.name, answer(args.perl_values));
    if let Some(objects) = args.python_objects {
        command.env(
            variable::PYTHON_OBJECTS.name,
            answer(objects == YesOrNo::Yes),
        );
    }
    if let Some(wrappers) = &args.wrappers {
        command.env(variable::WRAPPERS.name, wrappers);
    }
    command.env(variable::LIVE.name, answer(args.live));
    command.env(variable::LOG.name, answer(args.log.log.is_some()));
    if let Some(growth) = args.on_growth {
        command.env(variable::GROWTH.name, growth.to_string());
    }
    if let Some(least) = args.follow_lines {
        command.env(variable::LINES.name, least.to_string());
    }
    if let Some(signal) = args.on_signal {
        command.env(variable::SIGNAL.name, signal.to_string());
    }
}
