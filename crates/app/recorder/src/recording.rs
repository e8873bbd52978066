//! Runs a program with the library in it, keeps the ledgers of its processes, and finishes their
//! files.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result};
use heapprof_abi::environment as variable;
use heapprof_files::FileOwner;

use crate::audit::ForkAuditor;
use crate::child::{self, ProgramExit};
use crate::ending::ProcessEndings;
use crate::environment::ProgramEnvironment;
use crate::keeper::{KeeperHandle, KeeperOutcome, ProcessInspections};
use crate::kept_ledger::ProfileWriteOptions;
use crate::lines::LineFollowThread;
use crate::list::ProfileList;
use crate::live::LiveView;
use crate::log::EventLogWriter;
use crate::observer::{RecordingEvent, RecordingObserver};
use crate::outcome::{RecordingOutcome, SettleOptions, settle};
use crate::outside::join_command_line;
use crate::peak_divisions::{PeakDivisions, SharedPeakDivisions};
use crate::profile_entries::{
    self, ListContents, PrivateLedger, UnrecordedProcess, WrittenProfile,
};
use crate::program::{PreloadCheck, SHELL_PATH, is_for_shell};
use crate::residents::ResidentReader;
use crate::rights::RightsLedger;
use crate::settings::RecordingSettings;
use crate::start_error::RecordingStartError;

/// A recording that is prepared and can be run.
pub struct Recording {
    wanted: RecordingSettings,
    observer: Arc<dyn RecordingObserver>,
    environment: ProgramEnvironment,
    list: ProfileList,
    rights: RightsLedger,
    follower: Option<LineFollowThread>,
    keeper: io::Result<KeeperHandle>,
    /// How the memory of each process was divided at its peak, if that is wanted.
    divisions: Option<SharedPeakDivisions>,
    view: Option<LiveView>,
}

/// The end of a recording.
pub enum RecordingEnd {
    /// The program could not be started.
    NotStarted(io::Error),
    /// The program has ended.
    Ended(Box<RecordingOutcome>),
}

impl Recording {
    /// Makes the files with which the processes of a recording report.
    ///
    /// # Errors
    /// A folder, a file or a thread can't be made.
    pub fn prepare(
        mut wanted: RecordingSettings,
        observer: Arc<dyn RecordingObserver>,
    ) -> Result<Self> {
        let list = ProfileList::new().map_err(RecordingStartError::NoFolder)?;
        let rights = RightsLedger::default();
        let environment = ProgramEnvironment::new(&wanted, list.path());
        let follow = |options| {
            LineFollowThread::start(list.path(), options, Arc::clone(&observer), rights.clone())
        };
        let follower = wanted.lines.take().map(follow).transpose()?;
        let written = ProfileWriteOptions {
            names: wanted.names.clone(),
            mode: wanted.file_mode,
            wrappers: wanted.wrappers.clone().unwrap_or_default(),
            command_line: wanted.keeps_command_line,
            typed: join_command_line(&wanted.command),
            least: wanted.least_of_child(),
        };
        let log = wanted.log.take();
        let log = log.map(|(file, limit)| EventLogWriter::new(file, limit));
        let audit = wanted.audits_forks.then(ForkAuditor::default);
        let divisions = wanted.divides_peaks.then(SharedPeakDivisions::new);
        let inspections = ProcessInspections {
            audit,
            divisions: divisions.clone(),
        };
        let keeper = KeeperHandle::new(
            list.path(),
            written,
            log.transpose()?,
            inspections,
            rights.clone(),
        );
        let program = wanted.command[0].to_string_lossy().into_owned();
        let show = |options| {
            let observer = Arc::clone(&observer);
            LiveView::new(
                options,
                observer,
                program,
                wanted.symbolizes,
                &list,
                rights.clone(),
            )
        };
        let view = wanted.view.take().map(show).transpose();
        let view = view.map_err(RecordingStartError::NoFile)?;
        Ok(Self {
            wanted,
            observer,
            environment,
            list,
            rights,
            follower,
            keeper,
            divisions,
            view,
        })
    }

    /// Runs the program to its end, and finishes the files that its processes left.
    ///
    /// # Errors
    /// The shell that is to run the program is built with a sanitizer, or the list of profiles
    /// can't be read.
    pub fn run(mut self) -> Result<RecordingEnd> {
        let mut reader = None;
        let (program, preloads) = (self.wanted.command[0].clone(), self.wanted.preloads);
        let mut ended = self.start(&[&program], preloads, &mut reader);
        if let Err(error) = &ended
            && let Some(script) = self.wanted.program_file.clone()
            && is_for_shell(error, &script)
        {
            let shell = OsStr::new(SHELL_PATH);
            let check = PreloadCheck::new(shell, Path::new(shell));
            self.observer.event(RecordingEvent::ShellNeeded(&check));
            let preloads = check.can_preload()?;
            ended = self.start(&[shell, script.as_os_str()], preloads, &mut reader);
        }
        let residents = reader.map(ResidentReader::end).unwrap_or_default();
        drop(self.view);
        if let Some(follower) = self.follower {
            follower.end();
        }
        let was_killed = ended.as_ref().is_ok_and(|ended| ended.signal.is_some());
        let saved = self.keeper.map(|keeper| keeper.end(was_killed));
        if let Some(end) = saved.as_ref().ok().and_then(|saved| saved.log.as_ref()) {
            self.observer.event(RecordingEvent::LogEnded(end));
        }
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => return Ok(RecordingEnd::NotStarted(error)),
        };
        let is_settled = |process| {
            let saved = saved.as_ref().ok();
            saved.is_some_and(|saved| saved.settled.contains(&process))
        };
        let entries = self.list.read().context("the list of profiles")?;
        let mut said = profile_entries::read(&entries, is_settled);
        for one in &mut said.written {
            one.rights = one.rights.with(self.rights.least_observed(one.process));
        }
        let mut ending = add_saved(&mut said, saved, &ended, &*self.observer);
        ending.residents = residents;
        ending.divisions = self
            .divisions
            .map_or_else(PeakDivisions::default, |all| all.take());
        let list = self.list.path();
        if !list.exists() {
            self.observer.event(RecordingEvent::ListRemoved(list));
        }
        let options = SettleOptions {
            names: &self.wanted.names,
            least: self.wanted.least_of_child(),
            symbolizes: self.wanted.symbolizes,
        };
        let outcome = settle(said, ended, ending, self.list, &options, &*self.observer);
        Ok(RecordingEnd::Ended(Box::new(outcome)))
    }

    /// Runs the program to its end. `words` replace the program's name at the start of its command
    /// line.
    fn start(
        &mut self,
        words: &[&OsStr],
        preloads: bool,
        reader: &mut Option<ResidentReader>,
    ) -> io::Result<ProgramExit> {
        let divisions = self.divisions.clone();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(&self.wanted.command[1..]);
        if preloads {
            self.environment.put_into(&mut command);
            if let Ok(keeper) = &self.keeper {
                // A separate ledger file would cost each child more memory than its parent's
                // tables: child and parent share the tables until one of them writes to them.
                let what = match self.wanted.audits_forks {
                    true => variable::FORK_AUDIT,
                    false => variable::KEEP,
                };
                command.env(what.name, keeper.path());
            }
        }
        if let Some(view) = &self.view {
            view.redirect(&mut command).map_err(io::Error::other)?;
        }
        child::run(
            &mut command,
            |process| *reader = Some(ResidentReader::start(process, divisions)),
            self.wanted.on_signal,
            self.view.as_mut(),
            self.keeper.as_mut().ok(),
            &self.rights,
        )
    }
}

/// Adds the keeper's profiles to the profiles that processes reported. The keeper writes profiles
/// for processes that ended without reporting.
fn add_saved(
    said: &mut ListContents,
    saved: io::Result<KeeperOutcome>,
    ended: &ProgramExit,
    observer: &dyn RecordingObserver,
) -> ProcessEndings {
    let mut unrecorded = std::mem::take(&mut said.unrecorded);
    let mut private = std::mem::take(&mut said.private);
    let saved = saved.unwrap_or_else(|error| {
        private.push(PrivateLedger {
            process: ended.process,
            why: format!("it could not be handed over: {error}"),
            owner: FileOwner::us(),
        });
        KeeperOutcome::default()
    });
    for note in &saved.notes {
        observer.event(RecordingEvent::Note(note));
    }
    // A profile that was written before under the same name is gone.
    let is_new = |one: &WrittenProfile| saved.written.iter().all(|new| new.path != one.path);
    said.written.retain(is_new);
    // A program may have got the library in another way, and may have been killed.
    let was_recorded = |one: &UnrecordedProcess| {
        let mut last = saved.written.iter().filter(|new| new.is_last);
        !one.lacks_library && last.any(|new| new.process == one.process)
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
        hooked: std::mem::take(&mut said.hooked),
        executables: saved.executables,
        ..ProcessEndings::default()
    }
}
