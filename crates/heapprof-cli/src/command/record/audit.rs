//! The audit of a recording's forked children (`--fork-audit`): looks at each when it begins, now
//! and then, and before it ends, and writes what was seen beside its profile.
//!
//! A child waits while it is looked at for the first and for the last time. One that is killed was
//! looked at some time before.

mod child;
mod said;

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

use self::child::{Child, Ended, Made, SHARE};
pub(super) use self::said::Said;
use self::said::What;
use super::kept::{Replaces, Wanted, put};
use crate::rights::{ProcessNamer, ProcessRights};

/// More children are not kept in mind at a time, and not of more is written.
const MOST: usize = 10_000;
/// More loads are not kept, of all children together.
const MOST_LOADS: usize = 500_000;
/// So long those that still run at the end are looked at, all together.
const LAST: Duration = Duration::from_secs(10);

/// The children of a recording.
#[derive(Default)]
pub(super) struct Audit {
    /// The process that `record` started.
    main: u32,
    children: HashMap<u32, Child>,
    ended: Vec<Ended>,
    /// Those that were found to have ended. What they have said may still have to be heard.
    gone: Vec<u32>,
    /// When somebody is looked at next.
    next: Option<Instant>,
    /// How many children there was no room for.
    left_out: usize,
    /// How many loads were heard of.
    loads: usize,
}

impl Audit {
    /// Begins with the children of this process.
    pub(super) fn begin(&mut self, main: u32) {
        self.main = main;
    }

    /// Notes what a process says.
    pub(super) fn hear(&mut self, pid: Pid, said: Said, rights: ProcessRights) {
        let number = number_of(pid);
        if let What::Forked(parent) = said.what {
            return self.forked(pid, said.generation, parent, rights);
        }
        // The program that a child became is no child.
        let generation = u32::from(said.generation);
        let has_others = self.has_others();
        let child = self.children.get_mut(&number);
        let Some(child) = child.filter(|child| child.fork.generation == generation) else {
            return;
        };
        child.speaks(rights);
        child.goes_on();
        child.is_unheard(said.untold);
        match said.what {
            What::Forked(_) => {}
            What::End | What::Exec => child.ends(said.what == What::Exec, has_others),
            What::Look => child.asks(has_others),
            What::Load(load) => {
                self.loads += 1;
                if self.loads <= MOST_LOADS {
                    child.loads(load);
                }
            }
        }
    }

    /// A child did not wait until it was looked at for the first time.
    pub(super) fn did_not_wait(&mut self, pid: Pid) {
        if let Some(child) = self.children.get_mut(&number_of(pid)) {
            child.did_not_wait();
        }
    }

    /// What can be read once a child has ended.
    pub(super) fn ends(&self) -> impl Iterator<Item = &OwnedFd> {
        let children = self.children.values();
        children.filter_map(|child| child.ends.as_ref())
    }

    /// A child has been forked, and waits.
    fn forked(&mut self, pid: Pid, generation: u8, told: u32, rights: ProcessRights) {
        let ends = pidfd_open(pid, PidfdFlags::empty()).ok();
        let pid = number_of(pid);
        self.end(pid);
        self.gone.retain(|gone| *gone != pid);
        if self.children.len() + self.ended.len() >= MOST {
            self.left_out += 1;
            return;
        }
        // Whoever has taken the number of a parent that has ended is not the parent.
        let [parent] = status(pid, ["PPid:"]);
        let parent = parent.trim().parse().unwrap_or(0);
        let is_known = parent == self.main || self.children.contains_key(&parent);
        let parent = if is_known { parent } else { 0 };
        let child = Child::new(pid, generation, [told, parent], rights, ends);
        self.children.insert(pid, child);
    }

    /// Whether a number is that of a child that has not ended.
    pub(super) fn has(&self, pid: u32) -> bool {
        self.children.contains_key(&pid)
    }

    /// A process has ended.
    fn end(&mut self, pid: u32) {
        self.ended
            .extend(self.children.remove(&pid).map(Child::end));
    }

    /// Whether anybody is there besides one of the children who may have what it has inherited.
    fn has_others(&self) -> bool {
        self.children.len() > 1 || is_there(self.main)
    }

    /// The children that have ended, of those that are not known to have.
    fn ended_by_now(&self) -> Vec<u32> {
        let (mut pids, mut polled, mut found) = (Vec::new(), Vec::new(), Vec::new());
        for (&pid, child) in &self.children {
            match &child.ends {
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

    /// Looks at those whose turn it is.
    pub(super) fn look(&mut self) {
        let now = Instant::now();
        // What they had said before they ended has been heard by now.
        let by_now = self.ended_by_now();
        for pid in std::mem::replace(&mut self.gone, by_now) {
            self.gone.retain(|other| *other != pid);
            self.end(pid);
        }
        if self.next.is_some_and(|next| next > now) {
            return;
        }
        let due = self.children.iter();
        let due = due.filter(|(_, child)| child.next <= now && child.ending.is_none());
        // The others come next.
        let first = due.min_by_key(|(_, child)| child.next);
        if let Some(pid) = first.map(|(pid, _)| *pid) {
            let has_others = self.has_others();
            if let Some(child) = self.children.get_mut(&pid) {
                child.look(has_others);
            }
            self.next = Some(Instant::now() + now.elapsed() * SHARE);
        }
    }

    /// Looks at all that have not ended, until a moment, because a signal may end them.
    pub(super) fn look_at_all(&mut self, until: Instant) {
        let has_others = self.has_others();
        for child in self.children.values_mut() {
            if child.ending.is_none() && Instant::now() < until {
                child.is_signalled(has_others);
            }
        }
    }

    /// When somebody is to be looked at.
    pub(super) fn until(&self) -> Option<Instant> {
        let all = self.children.values();
        let all = all.filter(|child| child.ending.is_none());
        let first = all.map(|child| child.next).min()?;
        Some(self.next.map_or(first, |next| next.max(first)))
    }

    /// Those that still run are looked at for the last time. Writes what is known of all, beside
    /// the profiles that they have. Returns how many that are, and what could not be written.
    pub(super) fn write(mut self, wanted: &Wanted) -> (usize, Vec<String>) {
        self.ended_by_now()
            .into_iter()
            .for_each(|pid| self.end(pid));
        let until = Instant::now() + LAST;
        let has_others = self.has_others();
        for (_, mut child) in std::mem::take(&mut self.children) {
            if child.ending.is_none() {
                if Instant::now() < until {
                    child.look(has_others);
                }
                child.ending = Some(ChildEnding::Running);
            }
            self.ended.push(child.end());
        }
        let mut notes = Vec::new();
        let mut left_out = |count: usize, what: &str, most: usize| {
            if count > 0 {
                notes.push(format!(
                    "--fork-audit: {count} more {what} than the {most} that are noted"
                ));
            }
        };
        left_out(self.left_out, "children were forked", MOST);
        let loads = self.loads.saturating_sub(MOST_LOADS);
        left_out(loads, "files were loaded", MOST_LOADS);
        let mut profiles: Vec<Made> = self.ended.into_iter().map(Ended::profile).collect();
        name(&mut profiles);
        let mut written = 0;
        for made in profiles {
            let names = &wanted.names;
            let (path, _) = names.of_last(self.main, false, made.pid, &made.program);
            match put(
                &made.profile,
                &beside(&path),
                Replaces::Nothing,
                wanted.mode,
            ) {
                Ok(_) => written += 1,
                Err(error) => notes.push(format!("--fork-audit: {error:#}")),
            }
        }
        (written, notes)
    }
}

fn number_of(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Gives the frames of profiles names, with the rights of the processes that they are of: names
/// come from files that these have mapped.
fn name(profiles: &mut [Made]) {
    // The children of a program have the same libraries.
    let mut namer = ProcessNamer::new(SymbolizeOptions::default());
    for made in profiles {
        // Without these rights, they stay as they are.
        let _ = namer.symbolize(&mut made.profile, made.rights);
    }
}

/// The name of what an audit notes of a process, beside its profile.
fn beside(profile: &Path) -> PathBuf {
    const ENDING: &[u8] = b".pb.gz";
    let bytes = profile.as_os_str().as_bytes();
    let stem = bytes.strip_suffix(ENDING).unwrap_or(bytes);
    OsString::from_vec([stem, b".fork", ENDING].concat()).into()
}

/// Whether a descriptor can be read, or has come to its end.
pub(super) fn is_readable(fd: &OwnedFd) -> bool {
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
            assert_eq!(beside(Path::new(profile)), Path::new(expected));
        }
    }
}
