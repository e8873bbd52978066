//! The audit of a recording's forked children (`--fork-audit`): looks at each when it begins, now
//! and then, and before it ends, and writes what was seen beside its profile.
//!
//! A child waits while it is looked at for the first and for the last time. One that is killed was
//! looked at some time before.

use std::collections::HashMap;
use std::ffi::OsString;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heapprof_fork::{Forked, Look, look};
use heapprof_live::{Process, is_there, status};
use heapprof_profile::fork::{Audited, COW_TYPES, Ending, Fork, Load};
use heapprof_profile::{Profile, ProfileBuilder, ValueType};
use heapprof_symbolize::{Options, Symbolizer};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::kept::{Wanted, put};
use crate::place::{Owner, acting};

/// What a process says: a word, its generation, and what else there is to say. All begin so.
const BEGIN: &str = "heapprof's ";
/// A child is looked at for the first time after so long, and then each time it has got older by a
/// part of its age, but within bounds.
const FIRST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(2);
const PART: u32 = 4;
/// Looking takes at most one part in so many of the time.
const SHARE: u32 = 20;
/// More children are not kept in mind at a time, and not of more is written.
const MOST: usize = 10_000;
/// More loads are not kept of a child.
const MOST_LOADS: usize = 10_000;
/// The longest title of a process that is kept, in bytes.
const LONGEST_TITLE: usize = 200;

/// What a process says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Said {
    /// How many forks lie between the first process and it.
    generation: u8,
    what: What,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    /// It has been forked from this process.
    Forked(u32),
    /// It is about to end.
    End,
    /// It is about to become another program.
    Exec,
    /// It wants to be looked at.
    Look,
    /// It has tried to load something.
    Load(Load),
}

impl Said {
    /// What a text says; `None` if it is about something else.
    pub(super) fn of(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let rest = text.strip_prefix(BEGIN)?.strip_suffix('\n')?;
        let (first, more) = rest.split_once('\n').unwrap_or((rest, ""));
        let words: Vec<&str> = first.split(' ').collect();
        let (word, generation, rest) = match words[..] {
            [word, "1", generation] => (word, generation, None),
            [word, "1", generation, rest] => (word, generation, Some(rest)),
            _ => return None,
        };
        let what = match (word, rest) {
            ("child", Some(parent)) => What::Forked(parent.parse().ok()?),
            ("end", None) => What::End,
            ("exec", None) => What::Exec,
            ("look", None) => What::Look,
            ("load", None) => What::Load(Load::of_comment(more)?),
            _ => return None,
        };
        let generation = generation.parse().ok()?;
        Some(Self { generation, what })
    }
}

/// The children of a recording.
#[derive(Default)]
pub(super) struct Audit {
    children: HashMap<u32, Child>,
    ended: Vec<Child>,
    /// Those that were found to have ended. What they have said may still have to be heard.
    gone: Vec<u32>,
    /// When somebody is looked at next.
    next: Option<Instant>,
    /// How many children there was no room for.
    left_out: usize,
}

/// A forked child.
struct Child {
    fork: Fork,
    since: Instant,
    owner: Owner,
    forked: Result<Forked, String>,
    /// The last look, and how long after the fork it was.
    seen: Option<(Look, Duration)>,
    /// The last look before the child has said that it ends.
    before: Option<(Look, Duration)>,
    /// The last look that it has asked for.
    asked: Option<(Look, Duration)>,
    /// How it ends, if it has said so.
    ending: Option<Ending>,
    /// Readable once it has ended; `None` if the kernel gives no such thing.
    ends: Option<OwnedFd>,
    /// When it is looked at next.
    next: Instant,
    loads: Vec<Load>,
}

impl Audit {
    /// Notes what a process says.
    pub(super) fn hear(&mut self, pid: Pid, said: Said, owner: Owner) {
        let number = pid.as_raw_nonzero().get().unsigned_abs();
        if let What::Forked(parent) = said.what {
            return self.forked(pid, said.generation, parent, owner);
        }
        // The program that a child became is no child.
        let generation = u32::from(said.generation);
        let child = self.children.get_mut(&number);
        let Some(child) = child.filter(|child| child.fork.generation == generation) else {
            return;
        };
        match said.what {
            What::Forked(_) => {}
            What::End | What::Exec => child.end(said.what == What::Exec),
            What::Look => {
                child.look();
                child.asked = child.seen.clone();
            }
            What::Load(load) => {
                if child.loads.len() < MOST_LOADS {
                    child.loads.push(load);
                }
            }
        }
    }

    /// What can be read once a child has ended.
    pub(super) fn ends(&self) -> impl Iterator<Item = &OwnedFd> {
        self.children
            .values()
            .filter_map(|child| child.ends.as_ref())
    }

    /// A child has been forked, and waits.
    fn forked(&mut self, pid: Pid, generation: u8, parent: u32, owner: Owner) {
        let ends = pidfd_open(pid, PidfdFlags::empty()).ok();
        let pid = pid.as_raw_nonzero().get().unsigned_abs();
        self.end(pid);
        self.gone.retain(|gone| *gone != pid);
        if self.children.len() + self.ended.len() >= MOST {
            self.left_out += 1;
            return;
        }
        let forked = Forked::of(pid).map_err(|error| error.to_string());
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        // The number that the parent has for itself may be another one outside of its container.
        let [of_kernel] = status(pid, ["PPid:"]);
        let of_kernel = of_kernel.trim().parse().unwrap_or(0);
        let parent = match self.children.contains_key(&of_kernel) {
            true => of_kernel,
            false => parent,
        };
        let child = Child {
            fork: Fork {
                generation: generation.into(),
                pid,
                parent,
                at: at.map_or(0, micros),
                program: comm(pid),
                title: title(pid).unwrap_or_default(),
                ..Fork::default()
            },
            since: Instant::now(),
            owner,
            forked,
            seen: None,
            before: None,
            asked: None,
            ending: None,
            ends,
            next: Instant::now() + FIRST,
            loads: Vec::new(),
        };
        self.children.insert(pid, child);
    }

    /// A process has ended.
    fn end(&mut self, pid: u32) {
        if let Some(mut child) = self.children.remove(&pid) {
            child.fork.ending = child.ending.unwrap_or(Ending::Killed);
            if child.fork.ending != Ending::Exec {
                child.fork.age = micros(child.since.elapsed());
            }
            self.ended.push(child);
        }
    }

    /// Whether no child is there.
    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// The children that have ended, of those that are not known to have.
    fn ended_by_now(&self) -> Vec<u32> {
        let has_ended = |(pid, child): (&u32, &Child)| match &child.ends {
            Some(ends) => is_readable(ends).then_some(*pid),
            None => (!is_there(*pid)).then_some(*pid),
        };
        self.children.iter().filter_map(has_ended).collect()
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
        let due = self.children.values_mut();
        let due = due.filter(|child| child.next <= now && child.ending != Some(Ending::Exec));
        // The others come next.
        if let Some(child) = due.min_by_key(|child| child.next) {
            child.look();
            self.next = Some(Instant::now() + now.elapsed() * SHARE);
        }
    }

    /// When somebody is to be looked at.
    pub(super) fn until(&self) -> Option<Instant> {
        let all = self.children.values();
        let all = all.filter(|child| child.ending != Some(Ending::Exec));
        let first = all.map(|child| child.next).min()?;
        Some(self.next.map_or(first, |next| next.max(first)))
    }

    /// Those that still run are looked at for the last time. Writes what is known of all, beside
    /// the profiles that they have. Returns how many that are, and what could not be written.
    pub(super) fn write(mut self, main: u32, wanted: &Wanted) -> (usize, Vec<String>) {
        self.ended_by_now()
            .into_iter()
            .for_each(|pid| self.end(pid));
        let running: Vec<u32> = self.children.keys().copied().collect();
        for pid in running {
            if let Some(child) = self.children.get_mut(&pid)
                && child.ending.is_none()
            {
                child.look();
                child.ending = Some(Ending::Running);
            }
            self.end(pid);
        }
        let mut notes = Vec::new();
        if self.left_out > 0 {
            notes.push(format!(
                "--fork-audit: {} more children were forked than the {MOST} that are noted",
                self.left_out
            ));
        }
        let mut profiles: Vec<Made> = self.ended.into_iter().map(Child::profile).collect();
        name(&mut profiles);
        let mut written = 0;
        for made in profiles {
            let (path, _) = wanted.names.of_last(main, false, made.pid, &made.program);
            match put(&made.profile, &beside(&path), false, wanted.mode) {
                Ok(_) => written += 1,
                Err(error) => notes.push(format!("--fork-audit: {error:#}")),
            }
        }
        (written, notes)
    }
}

impl Child {
    /// It is about to end, or to become another program.
    fn end(&mut self, is_exec: bool) {
        if self.ending.is_none() {
            self.before = self.seen.take();
        }
        // What an interpreter writes when it cleans up says nothing of what the child has done.
        let cleans_up = |(seen, _): &(Look, Duration)| seen.cleans_up;
        if self.ending.is_none() || !self.seen.as_ref().is_some_and(cleans_up) {
            self.look();
        }
        // What comes after an exec is no child.
        self.fork.age = micros(self.since.elapsed());
        self.ending = Some(if is_exec { Ending::Exec } else { Ending::Ended });
    }

    fn look(&mut self) {
        let began = Instant::now();
        let Ok(forked) = &self.forked else {
            return;
        };
        let fork = &mut self.fork;
        let generation = u8::try_from(fork.generation).unwrap_or(u8::MAX);
        match look(fork.pid, fork.parent, forked, generation) {
            Ok(seen) => {
                self.seen = Some((seen, self.since.elapsed()));
                if let Some(title) = title(fork.pid) {
                    fork.title = title;
                }
                if let Ok(process) = Process::open(fork.pid) {
                    fork.program = process.program();
                }
                fork.lacks.clear();
            }
            // What was seen before counts.
            Err(_) if self.seen.is_some() => {}
            Err(error) => fork.lacks = format!("its pages could not be read: {error}"),
        }
        let pause = (self.since.elapsed() / PART).clamp(FIRST, LONGEST);
        self.next = Instant::now() + pause.max(began.elapsed() * SHARE);
    }

    /// A profile of what is known of the child.
    fn profile(mut self) -> Made {
        let mut fork = self.fork;
        let (mut profile, mut mapped) = (None, Vec::new());
        if let Err(error) = &self.forked {
            fork.lacks = format!("its pages could not be read when it was forked: {error}");
        } else if self.seen.is_none() && self.before.is_none() && fork.lacks.is_empty() {
            fork.lacks = "it was gone before it was looked at".to_string();
        }
        // An interpreter cleans up before it says that it ends.
        let before = self.before.take().filter(|(seen, _)| seen.cleans_up);
        let seen = self.asked.take().or(before).or(self.seen.take());
        if let Some((seen, after)) = seen {
            fork.looked = micros(after);
            fork.period = i64::try_from(seen.period).unwrap_or(1);
            (fork.figures, mapped) = (seen.figures, seen.mapped);
            match seen.blame {
                Ok(blame) => profile = Some(blame),
                Err(why) => fork.lacks = format!("whose memory it is: {why}"),
            }
        }
        let mut profile = profile.unwrap_or_else(|| ProfileBuilder::new(&COW_TYPES).finish());
        let (pid, program) = (fork.pid, fork.program.clone());
        let audited = Audited {
            fork,
            loads: self.loads,
            mapped,
        };
        describe(&mut profile, &audited);
        Made {
            pid,
            program,
            owner: self.owner,
            profile,
        }
    }
}

/// A profile of a child that is to be written.
struct Made {
    pid: u32,
    program: String,
    owner: Owner,
    profile: Profile,
}

/// Gives the frames of profiles names, with the rights of the users whose processes they are of:
/// names come from files that these have mapped.
fn name(profiles: &mut [Made]) {
    profiles.sort_by_key(|made| (made.owner.user, made.owner.group));
    for of_owner in profiles.chunk_by_mut(|a, b| a.owner == b.owner) {
        let owner = of_owner[0].owner;
        let mut named: Vec<Profile> = of_owner.iter().map(|made| made.profile.clone()).collect();
        // The children of a program have the same libraries.
        let done = acting(owner, || {
            let mut symbolizer = Symbolizer::new(Options::default());
            for profile in &mut named {
                symbolizer.symbolize(profile);
            }
            named
        });
        // Without these rights, they stay as they are.
        for (made, named) in of_owner.iter_mut().zip(done.unwrap_or_default()) {
            made.profile = named;
        }
    }
}

/// Puts into a profile what an audit noted, and what it is of.
fn describe(profile: &mut Profile, audited: &Audited) {
    let fork = &audited.fork;
    let plain = [
        format!("program: {}", fork.program),
        format!("pid: {}", fork.pid),
        match fork.period {
            0 | 1 => "mode: exact".to_string(),
            period => format!("mode: sampled, one in {period} bytes; values are estimates"),
        },
        "dump: audit of a forked child".to_string(),
    ];
    for comment in plain.into_iter().chain(audited.comments()) {
        let text = profile.strings.intern(&comment);
        profile.comment.push(text);
    }
    profile.time_nanos = fork.at.saturating_add(fork.looked).saturating_mul(1000);
    profile.duration_nanos = fork.looked.saturating_mul(1000);
    let [space, bytes] = ["space", "bytes"].map(|text| profile.strings.intern(text));
    profile.period_type = Some(ValueType {
        r#type: space,
        unit: bytes,
    });
    profile.period = fork.period.max(1);
    let default = profile.strings.intern(COW_TYPES[1].0);
    profile.default_sample_type = default;
}

/// The name of what an audit notes of a process, beside its profile.
fn beside(profile: &Path) -> PathBuf {
    const ENDING: &[u8] = b".pb.gz";
    let bytes = profile.as_os_str().as_bytes();
    let stem = bytes.strip_suffix(ENDING).unwrap_or(bytes);
    OsString::from_vec([stem, b".fork", ENDING].concat()).into()
}

/// What the kernel calls a process.
fn comm(pid: u32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    match String::from_utf8_lossy(&name).trim_end() {
        "" => "unknown".to_string(),
        name => name.to_string(),
    }
}

/// The command line of a process, as it is now.
fn title(pid: u32) -> Option<String> {
    let mut bytes = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    while matches!(bytes.last(), Some(0 | b' ')) {
        bytes.pop();
    }
    bytes.truncate(LONGEST_TITLE);
    let words = bytes.split(|&byte| byte == 0);
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    Some(words.join(" ")).filter(|title| !title.is_empty())
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
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
    fn what_is_said_is_understood() {
        let said = |generation, what| Some(Said { generation, what });
        let load = Load {
            name: "A.pm".to_string(),
            ..Load::default()
        };
        let of_load = format!("heapprof's load 1 3\n{}\n", load.comment());
        for (text, expected) in [
            ("heapprof's child 1 2 77\n", said(2, What::Forked(77))),
            ("heapprof's end 1 1\n", said(1, What::End)),
            ("heapprof's exec 1 0\n", said(0, What::Exec)),
            ("heapprof's look 1 1\n", said(1, What::Look)),
            (of_load.as_str(), said(3, What::Load(load))),
            ("heapprof's kept books 1\n", None),
            ("heapprof's child 1 2\n", None),
            ("heapprof's child 1 999 7\n", None),
            ("heapprof's child 1 2 77", None),
            ("heapprof's load 1 3\nx\n", None),
            ("heapprof's end 2 1\n", None),
            ("", None),
        ] {
            assert_eq!(Said::of(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(Said::of(b"heapprof's child 1 \xff"), None);
    }

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
