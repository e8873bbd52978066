//! Audits the forked children of a recording: inspects each child when it begins, at intervals, and
//! before it ends, and writes the results beside its profile.
//!
//! A child waits during its first and its last inspection. The last inspection of a killed child
//! takes place before the kill.
//!
//! * A forked child begins with its parent's table of blocks, so the address and the stack of each
//!   inherited block are known. The number of a thread also identifies the thread's process, and so
//!   the generation of each stack. Events need no additional field for this.
//! * A child waits without any of the engine's locks. It sends a message to `record`. Only `record`
//!   reads pages, and it does so from outside.
//! * The kernel shows which pages are shared (`heapprof-process`), and the ledger shows the stacks
//!   that allocated the blocks on them (`heapprof-fork`). The bytes of all stacks, known or not,
//!   add up to the size of the pages.
//! * The results go into a separate profile, beside the child's profile. `heapprof fork-audit`
//!   joins the two profiles.

mod child;
mod child_messages;

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use heapprof_process::{is_there, status};
use heapprof_profile::fork::ChildEnding;
use heapprof_symbolize::SymbolizeOptions;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use self::child::{AuditedChild, ChildProfile, EndedChild, INSPECTION_TIME_DIVISOR};
use self::child_messages::ChildEvent;
pub(crate) use self::child_messages::ChildMessage;
use crate::kept_ledger::{ProfileWriteOptions, ReplacePolicy, put};
use crate::note::{AuditLimit, RecordingNote};
use crate::rights::{ProcessNamer, ProcessRights};

/// Maximum number of children that are audited.
const MAX_CHILDREN: usize = 10_000;
/// Maximum number of file loads that the audit stores, for all children together.
const MAX_LOADS: usize = 500_000;
/// Longest total time for inspecting the children that still run at the end.
const FINAL_INSPECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The audit of a recording's children.
#[derive(Default)]
pub(crate) struct ForkAuditor {
    /// Process id of the program that `record` started.
    main: u32,
    children: HashMap<u32, AuditedChild>,
    ended: Vec<EndedChild>,
    /// Children that have ended, but whose last messages may not have been read yet.
    gone: Vec<u32>,
    /// Earliest time of the next inspection.
    next: Option<Instant>,
    /// Number of children that are not audited, because there are more than `MAX_CHILDREN`.
    left_out: usize,
    /// Number of file loads that children reported.
    loads: usize,
}

impl ForkAuditor {
    /// Starts the audit of the children of the process `main`.
    pub(crate) fn begin(&mut self, main: u32) {
        self.main = main;
    }

    /// Handles a message that the process `pid` sent about itself.
    pub(crate) fn hear(&mut self, pid: Pid, said: ChildMessage, rights: ProcessRights) {
        let number = number_of(pid);
        if let ChildEvent::Forked(parent) = said.what {
            return self.add_child(pid, said.generation, parent, rights);
        }
        // The program that a child became is no child.
        let generation = u32::from(said.generation);
        let has_others = self.has_others();
        let child = self.children.get_mut(&number);
        let Some(child) = child.filter(|child| child.fork.generation == generation) else {
            return;
        };
        child.limit_rights(rights);
        child.cancel_exec();
        child.note_unheard(said.unheard_count);
        match said.what {
            ChildEvent::Forked(_) => {}
            ChildEvent::End | ChildEvent::Exec => {
                child.note_ending(said.what == ChildEvent::Exec, has_others)
            }
            ChildEvent::InspectionRequest => child.inspect_on_request(has_others),
            ChildEvent::Load(load) => {
                self.loads += 1;
                if self.loads <= MAX_LOADS {
                    child.note_load(load);
                }
            }
        }
    }

    /// Notes that a child did not wait for its first inspection.
    pub(crate) fn note_no_wait(&mut self, pid: Pid) {
        if let Some(child) = self.children.get_mut(&number_of(pid)) {
            child.note_no_wait();
        }
    }

    /// Returns a descriptor for each child, which becomes readable once the child has ended.
    pub(crate) fn end_fds(&self) -> impl Iterator<Item = &OwnedFd> {
        let children = self.children.values();
        children.filter_map(|child| child.end_fd.as_ref())
    }

    /// Adds a child that was just forked, and that waits for its first inspection.
    fn add_child(&mut self, pid: Pid, generation: u8, reported_parent: u32, rights: ProcessRights) {
        let ends = pidfd_open(pid, PidfdFlags::empty()).ok();
        let pid = number_of(pid);
        self.end(pid);
        self.gone.retain(|gone| *gone != pid);
        if self.children.len() + self.ended.len() >= MAX_CHILDREN {
            self.left_out += 1;
            return;
        }
        // If the child's parent has ended, the process that has taken its place is not the parent.
        let [parent] = status(pid, ["PPid:"]);
        let parent = parent.trim().parse().unwrap_or(0);
        let is_known = parent == self.main || self.children.contains_key(&parent);
        let parent = if is_known { parent } else { 0 };
        let child = AuditedChild::new(pid, generation, [reported_parent, parent], rights, ends);
        self.children.insert(pid, child);
    }

    /// Whether the audit has a running child with this process id.
    pub(crate) fn has(&self, pid: u32) -> bool {
        self.children.contains_key(&pid)
    }

    /// Moves a child to the list of ended children.
    fn end(&mut self, pid: u32) {
        self.ended
            .extend(self.children.remove(&pid).map(AuditedChild::end));
    }

    /// Whether the program or more than one child still runs. Each of them may share inherited
    /// memory.
    fn has_others(&self) -> bool {
        self.children.len() > 1 || is_there(self.main)
    }

    /// Returns the children that have ended but are still listed as running.
    fn find_ended(&self) -> Vec<u32> {
        let (mut pids, mut polled, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for (&pid, child) in &self.children {
            match &child.end_fd {
                Some(ends) => {
                    pids.push(pid);
                    polled.push(PollFd::from_borrowed_fd(ends.as_fd(), PollFlags::IN));
                }
                None if !is_there(pid) => found.push(pid),
                None => {}
            }
        }
        if poll(&mut polled, Some(&Timespec::default())).is_ok() {
            let ended = pids.iter().zip(&polled);
            let ended = ended.filter(|(_, polled)| !polled.revents().is_empty());
            found.extend(ended.map(|(pid, _)| *pid));
        }
        found
    }

    /// Moves children that have ended to the list `ended`. Then inspects the running child whose
    /// inspection has been due for the longest time.
    pub(crate) fn inspect_due(&mut self) {
        let now = Instant::now();
        // All messages that these children sent before they ended have been read by now.
        let by_now = self.find_ended();
        for pid in std::mem::replace(&mut self.gone, by_now) {
            self.gone.retain(|other| *other != pid);
            self.end(pid);
        }
        if self.next.is_some_and(|next| next > now) {
            return;
        }
        let due = self.children.iter();
        let due = due.filter(|(_, child)| child.next <= now && child.ending.is_none());
        // Later calls inspect the other children.
        let first = due.min_by_key(|(_, child)| child.next);
        if let Some(pid) = first.map(|(pid, _)| *pid) {
            let has_others = self.has_others();
            if let Some(child) = self.children.get_mut(&pid) {
                child.inspect(has_others);
            }
            self.next = Some(Instant::now() + now.elapsed() * INSPECTION_TIME_DIVISOR);
        }
    }

    /// Inspects all running children before a signal that may end them. Stops at the moment
    /// `until`.
    pub(crate) fn inspect_all(&mut self, until: Instant) {
        let has_others = self.has_others();
        for child in self.children.values_mut() {
            if child.ending.is_none() && Instant::now() < until {
                child.inspect_before_signal(has_others);
            }
        }
    }

    /// Returns when a child is to be inspected next.
    pub(crate) fn next_inspection(&self) -> Option<Instant> {
        let all = self.children.values();
        let all = all.filter(|child| child.ending.is_none());
        let first = all.map(|child| child.next).min()?;
        Some(self.next.map_or(first, |next| next.max(first)))
    }

    /// Writes the audits of all children beside their profiles, after a last inspection of the
    /// children that still run. Returns how many audits were written, and a note on each audit that
    /// could not be written.
    pub(crate) fn write(mut self, wanted: &ProfileWriteOptions) -> (usize, Vec<RecordingNote>) {
        self.find_ended().into_iter().for_each(|pid| self.end(pid));
        let until = Instant::now() + FINAL_INSPECTION_TIMEOUT;
        let has_others = self.has_others();
        for (_, mut child) in std::mem::take(&mut self.children) {
            if child.ending.is_none() {
                if Instant::now() < until {
                    child.inspect(has_others);
                }
                child.ending = Some(ChildEnding::Running);
            }
            self.ended.push(child.end());
        }
        let mut notes = Vec::new();
        let mut left_out = |count: usize, what: AuditLimit, limit: usize| {
            if count > 0 {
                notes.push(RecordingNote::AuditLimit { what, count, limit });
            }
        };
        left_out(self.left_out, AuditLimit::Children, MAX_CHILDREN);
        let loads = self.loads.saturating_sub(MAX_LOADS);
        left_out(loads, AuditLimit::Loads, MAX_LOADS);
        let mut profiles: Vec<ChildProfile> =
            self.ended.into_iter().map(EndedChild::profile).collect();
        symbolize_profiles(&mut profiles);
        let mut written = 0;
        for made in profiles {
            let names = &wanted.names;
            let (path, _) = names.last_profile_path(self.main, false, made.pid, &made.program);
            match put(
                &made.profile,
                &audit_path(&path),
                ReplacePolicy::Nothing,
                wanted.mode,
            ) {
                Ok(_) => written += 1,
                Err(error) => notes.push(RecordingNote::AuditNotWritten(format!("{error:#}"))),
            }
        }
        (written, notes)
    }
}

fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Names the frames of profiles. The names come from files that the processes have mapped. So each
/// file is read with the rights of the process that named it.
fn symbolize_profiles(profiles: &mut [ChildProfile]) {
    // The children of a program have the same libraries.
    let mut namer = ProcessNamer::new(SymbolizeOptions::default());
    for made in profiles {
        // Without these rights, the frames keep their addresses.
        let _ = namer.symbolize(&mut made.profile, made.rights);
    }
}

/// Returns the path of a process's audit, beside its profile.
fn audit_path(profile: &Path) -> PathBuf {
    const PROFILE_SUFFIX: &[u8] = b".pb.gz";
    let bytes = profile.as_os_str().as_bytes();
    let stem = bytes.strip_suffix(PROFILE_SUFFIX).unwrap_or(bytes);
    OsString::from_vec([stem, b".fork", PROFILE_SUFFIX].concat()).into()
}

/// Whether a read from a descriptor returns at once, with data or with the end of the data.
pub(crate) fn is_readable(fd: &OwnedFd) -> bool {
    let mut one = [PollFd::from_borrowed_fd(fd.as_fd(), PollFlags::IN)];
    poll(&mut one, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lies_beside_the_profile() {
        for (profile, expected) in [
            ("/d/a.7.pb.gz", "/d/a.7.fork.pb.gz"),
            ("/d/x", "/d/x.fork.pb.gz"),
        ] {
            assert_eq!(audit_path(Path::new(profile)), Path::new(expected));
        }
    }
}
