//! A forked child under an audit: the results of its inspections, and the profile that is made from
//! these results.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use heapprof_fork::{ForkBaseline, ForkedChildAudit, audit_child};
use heapprof_process::comm;
use heapprof_profile::fork::{
    COW_TYPES, ChildAudit, ChildEnding, ForkedChild, KIND_LABEL, LoadAttempt, LoadOutcome,
};
use heapprof_profile::{Profile, ProfileBuilder, ValueType, recording_texts};

use crate::outside;
use crate::rights::ProcessRights;

/// Time from the fork to the first inspection, and the shortest time between two inspections.
const MIN_INSPECTION_INTERVAL: Duration = Duration::from_millis(100);
/// Longest time between two inspections.
const MAX_INSPECTION_INTERVAL: Duration = Duration::from_secs(1);
/// The divisor for the time to the next inspection: a child is inspected again when its age has
/// grown by 1/`AGE_DIVISOR`.
const AGE_DIVISOR: u32 = 10;
/// Time from the report that a child loaded a file to the inspection of the child. The child may
/// load more files in this time.
const LOAD_SETTLE_TIMEOUT: Duration = Duration::from_millis(200);
/// The divisor that limits the cost of inspections: inspections take at most
/// 1/`INSPECTION_TIME_DIVISOR` of the time.
pub(super) const INSPECTION_TIME_DIVISOR: u32 = 2;
/// Time after a signal within which the end of a child counts as caused by the signal.
const SIGNAL_END_TIMEOUT: Duration = Duration::from_secs(10);
/// The reason that a report gives if it can't be determined which pages a child copied.
const UNKNOWN_COPIES_TEXT: &str =
    "no other process still shared what it inherited, so what it copied is not known";

/// A forked child that has not ended.
pub(super) struct AuditedChild {
    pub(super) fork: ForkedChild,
    /// Process id of the parent in this namespace; 0 if it is not known.
    parent: u32,
    since: Instant,
    /// The least rights that the child was observed to have.
    rights: ProcessRights,
    forked: Result<ForkBaseline, String>,
    /// The last inspection, with its time since the fork.
    last_inspection: Option<(ForkedChildAudit, Duration)>,
    /// The last inspection before the child announced its end, with its time since the fork.
    inspection_before_end: Option<(ForkedChildAudit, Duration)>,
    /// The inspection before a signal that may have ended the child, with its time since the fork.
    inspection_before_signal: Option<(ForkedChildAudit, Duration)>,
    /// The last inspection that the child requested, with its time since the fork.
    requested_inspection: Option<(ForkedChildAudit, Duration)>,
    /// The kind of end that the child announced; `None` if it announced no end.
    pub(super) ending: Option<ChildEnding>,
    /// Time from the fork to the child's first announcement of its end. The inspection that follows
    /// the announcement is not included, and may take long.
    announced_end: Option<Duration>,
    /// A descriptor that becomes readable once the child has ended; `None` if the kernel has no
    /// such descriptors.
    pub(super) end_fd: Option<OwnedFd>,
    /// When the child is inspected next.
    pub(super) next: Instant,
    /// The file loads that the child tried, each with the time since the fork.
    loads: Vec<(Duration, LoadAttempt)>,
    /// Why the child's figures may be wrong; empty if they are right.
    doubts: String,
}

/// A child that has ended, with the results of its audit.
pub(super) struct EndedChild {
    fork: ForkedChild,
    rights: ProcessRights,
    look: Option<ForkedChildAudit>,
    loads: Vec<LoadAttempt>,
}

/// The profile of an ended child, ready to be written.
pub(super) struct ChildProfile {
    pub(super) pid: u32,
    pub(super) program: String,
    pub(super) rights: ProcessRights,
    pub(super) profile: Profile,
}

impl AuditedChild {
    /// Begins the audit of a child that waits. `reported_parent` is the parent's process id as the
    /// child reports it. `parent` is the parent's id in this namespace, or 0 if it is not known.
    pub(super) fn new(
        pid: u32,
        generation: u8,
        [reported_parent, parent]: [u32; 2],
        rights: ProcessRights,
        ends: Option<OwnedFd>,
    ) -> Self {
        let program = comm(pid);
        let forked = ForkBaseline::from_pid(pid).map_err(|error| error.to_string());
        let at = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            fork: ForkedChild {
                generation: generation.into(),
                pid,
                // In a container a process may have another number than outside.
                parent: if parent == 0 { reported_parent } else { parent },
                forked_at: at.map_or(0, micros),
                title: outside::process_title(&program, pid).unwrap_or_default(),
                program,
                ..ForkedChild::default()
            },
            parent,
            since: Instant::now(),
            rights,
            forked,
            last_inspection: None,
            inspection_before_end: None,
            inspection_before_signal: None,
            requested_inspection: None,
            ending: None,
            announced_end: None,
            end_fd: ends,
            next: Instant::now() + MIN_INSPECTION_INTERVAL,
            loads: Vec::new(),
            doubts: String::new(),
        }
    }

    /// Limits the rights of the audit to the rights of a process that sent a message about the
    /// child.
    pub(super) fn limit_rights(&mut self, rights: ProcessRights) {
        self.rights = self.rights.with(rights);
    }

    /// Withdraws the child's announcement of an exec, because the exec failed.
    pub(super) fn cancel_exec(&mut self) {
        if self.ending == Some(ChildEnding::Exec) {
            (self.ending, self.announced_end) = (None, None);
        }
    }

    /// Notes that the child is about to end or to become another program, and inspects it.
    pub(super) fn note_ending(&mut self, is_exec: bool, has_others: bool) {
        self.announced_end.get_or_insert(self.since.elapsed());
        if self.ending.is_none() {
            self.inspection_before_end = match has_others {
                true => self.last_inspection.take(),
                false => self.last_inspection.clone(),
            };
        }
        // The memory that an interpreter writes when it cleans up is not what the child itself has
        // written.
        let cleans_up = |(seen, _): &(ForkedChildAudit, Duration)| seen.cleans_up;
        if self.ending.is_none() || !self.last_inspection.as_ref().is_some_and(cleans_up) {
            self.inspect(has_others);
        }
        // After an exec the process is no child any more.
        self.fork.age = micros(self.since.elapsed());
        self.ending = Some(if is_exec {
            ChildEnding::Exec
        } else {
            ChildEnding::Ended
        });
    }

    /// Inspects the child because the child requested it.
    pub(super) fn inspect_on_request(&mut self, has_others: bool) {
        self.inspect(has_others);
        self.requested_inspection = self.last_inspection.clone();
    }

    /// Inspects the child before a signal that may end it.
    pub(super) fn inspect_before_signal(&mut self, has_others: bool) {
        self.inspect(has_others);
        self.inspection_before_signal = self.last_inspection.clone();
    }

    /// Notes that the child has tried to load something.
    pub(super) fn note_load(&mut self, load: LoadAttempt) {
        self.loads.push((self.since.elapsed(), load));
        self.next = self.next.min(Instant::now() + LOAD_SETTLE_TIMEOUT);
    }

    /// Notes that the child did not wait for its first inspection.
    pub(super) fn note_no_wait(&mut self) {
        self.doubt(
            "it ran on before its pages were read for the first time, so what it inherited is \
             uncertain",
        );
    }

    /// Notes that `count` messages of the child were lost.
    pub(super) fn note_unheard(&mut self, count: u32) {
        if count > 0 && !self.doubts.contains("were lost") {
            self.doubt("some reports of what it loaded were lost");
        }
    }

    fn doubt(&mut self, why: &str) {
        append_reason(&mut self.doubts, why);
    }

    /// Inspects the child. `has_others` says whether another process still shares the child's
    /// inherited memory. If none does, the pages no longer show which process wrote to them. The
    /// child is then inspected only if it was never inspected before.
    pub(super) fn inspect(&mut self, has_others: bool) {
        if !has_others && self.last_inspection.is_some() {
            return;
        }
        let began = Instant::now();
        let Ok(forked) = &self.forked else {
            return;
        };
        let fork = &mut self.fork;
        let generation = u8::try_from(fork.generation).unwrap_or(u8::MAX);
        match audit_child(fork.pid, self.parent, forked, generation) {
            Ok(mut seen) => {
                // The pages that were read belong to the process as it is by now.
                self.rights = self.rights.with(ProcessRights::now(fork.pid));
                if !has_others {
                    seen.forget_who_wrote();
                    self.doubts = UNKNOWN_COPIES_TEXT.to_string();
                }
                let is_worse = seen.blame.is_err();
                let was_better = |(before, _): &(ForkedChildAudit, Duration)| before.blame.is_ok();
                if !is_worse || !self.last_inspection.as_ref().is_some_and(was_better) {
                    self.last_inspection = Some((seen, self.since.elapsed()));
                }
                if let Some(title) = outside::process_title(&comm(fork.pid), fork.pid) {
                    fork.title = title;
                }
                if let Some((seen, _)) = &self.last_inspection
                    && !seen.program.is_empty()
                {
                    fork.program.clone_from(&seen.program);
                }
                fork.missing.clear();
            }
            // The results of an earlier inspection count.
            Err(_) if self.last_inspection.is_some() => {}
            Err(error) => fork.missing = format!("its pages could not be read: {error}"),
        }
        let pause = (self.since.elapsed() / AGE_DIVISOR)
            .clamp(MIN_INSPECTION_INTERVAL, MAX_INSPECTION_INTERVAL);
        self.next = Instant::now() + pause.max(began.elapsed() * INSPECTION_TIME_DIVISOR);
    }

    /// Returns the results of the audit, once the child has ended.
    pub(super) fn end(mut self) -> EndedChild {
        let mut fork = self.fork;
        fork.ending = self.ending.unwrap_or(ChildEnding::Killed);
        if fork.ending != ChildEnding::Exec {
            fork.age = micros(self.since.elapsed());
        }
        // An interpreter cleans up before it says that it ends.
        let age = self.announced_end.unwrap_or_else(|| self.since.elapsed());
        let is_of_its_end = |at: Duration| age.saturating_sub(at) < SIGNAL_END_TIMEOUT;
        let signalled = self
            .inspection_before_signal
            .filter(|(_, at)| is_of_its_end(*at));
        let before = signalled.or(self.inspection_before_end);
        let before = before.filter(|(seen, _)| seen.cleans_up);
        let seen = self
            .requested_inspection
            .or(before)
            .or(self.last_inspection);
        if let Err(error) = &self.forked {
            fork.missing = format!("its pages could not be read when it was forked: {error}");
        } else if seen.is_none() && fork.missing.is_empty() {
            fork.missing = "it ended before it could be read".to_string();
        }
        if let Some((
            ForkedChildAudit {
                blame: Err(why), ..
            },
            _,
        )) = &seen
        {
            fork.missing = format!("who allocated its memory is not known: {why}");
        }
        let looked = seen.as_ref().map(|(_, after)| *after);
        let is_late = |(at, load): &&(Duration, LoadAttempt)| {
            Some(*at) > looked && load.outcome == LoadOutcome::Loaded
        };
        let late = self.loads.iter().filter(is_late).count();
        if looked.is_some() && late > 0 {
            let files = if late == 1 { "file" } else { "files" };
            let said = format!("it has loaded {late} {files} since, which are not in its figures");
            append_reason(&mut self.doubts, &said);
        }
        if !self.doubts.is_empty() {
            append_reason(&mut fork.missing, &self.doubts);
        }
        fork.audited_age = looked.map_or(0, micros);
        EndedChild {
            fork,
            rights: self.rights,
            look: seen.map(|(look, _)| look),
            loads: self.loads.into_iter().map(|(_, load)| load).collect(),
        }
    }
}

impl EndedChild {
    /// Makes the profile of the child.
    pub(super) fn profile(self) -> ChildProfile {
        let mut fork = self.fork;
        let (mut profile, mut mapped) = (None, Vec::new());
        if let Some(look) = self.look {
            fork.period = i64::try_from(look.period).unwrap_or(1);
            (fork.figures, mapped) = (look.figures, look.mapped);
            profile = look.blame.ok();
        }
        let mut profile = profile.unwrap_or_else(|| unattributed_profile(fork.figures.unshared));
        let (pid, program) = (fork.pid, fork.program.clone());
        let audited = ChildAudit {
            fork,
            loads: self.loads,
            mapped,
        };
        describe(&mut profile, &audited);
        ChildProfile {
            pid,
            program,
            rights: self.rights,
            profile,
        }
    }
}

/// Makes the profile of copied pages whose owner is not known. With it, the rows of a report add up
/// to all copied bytes.
fn unattributed_profile(bytes: i64) -> Profile {
    let mut builder = ProfileBuilder::new(&COW_TYPES);
    if bytes > 0 {
        let kind = builder.text_label(KIND_LABEL, "unknown");
        builder.add_folded_with_labels("(owner could not be read)", &[1, bytes], &mut [kind]);
    }
    builder.finish()
}

/// Appends a reason to a text of reasons.
fn append_reason(reasons: &mut String, why: &str) {
    if !reasons.is_empty() {
        reasons.push_str("; ");
    }
    reasons.push_str(why);
}

/// Adds comments about an audit and its process to a profile.
fn describe(profile: &mut Profile, audited: &ChildAudit) {
    let fork = &audited.fork;
    let period = u64::try_from(fork.period).unwrap_or(1).max(1);
    let reason = "audit of a forked child";
    let plain = recording_texts::recording_comments(&fork.program, fork.pid.into(), period, reason);
    for comment in plain.into_iter().chain(audited.comments()) {
        let text = profile.strings.intern(&comment);
        profile.comment.push(text);
    }
    profile.time_nanos = fork
        .forked_at
        .saturating_add(fork.audited_age)
        .saturating_mul(1000);
    profile.duration_nanos = fork.audited_age.saturating_mul(1000);
    let [space, bytes] = ["space", "bytes"].map(|text| profile.strings.intern(text));
    profile.period_type = Some(ValueType {
        r#type: space,
        unit: bytes,
    });
    profile.period = fork.period.max(1);
    let default = profile.strings.intern(COW_TYPES[1].0);
    profile.default_sample_type = default;
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
