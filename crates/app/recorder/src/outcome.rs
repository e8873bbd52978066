//! Finishes a recording after the program's end: names its folder, leaves out small children, and
//! gives names to the addresses in its profiles.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::child::ProgramExit;
use crate::ending::ProcessEndings;
use crate::files::{self, EntryTarget, ProfileDetails};
use crate::list::ProfileList;
use crate::names::{CHILDREN_SUFFIX, ProfileNamePatterns};
use crate::observer::{RecordingEvent, RecordingObserver};
use crate::peak_divisions::UnprofiledPeak;
use crate::profile_entries::{ListContents, WrittenProfile};
use crate::rights::ProcessRights;
use crate::small_children;

/// A profile that exists, and the details that were read from it.
pub struct RecordedProfile {
    /// The profile's entry in the list of profiles.
    pub written: WrittenProfile,
    /// The details, or why they could not be read and symbolized.
    pub details: Result<ProfileDetails>,
}

impl RecordingOutcome {
    /// Returns the process with the most resident memory that left no profile, if the memory of
    /// processes was divided at their peaks.
    pub fn largest_without_profile(&self) -> Option<UnprofiledPeak> {
        let has_profile = |pid| self.profiles.iter().any(|one| one.written.process == pid);
        self.ending.divisions.largest_without(has_profile)
    }
}

impl RecordedProfile {
    /// Returns the largest resident memory of the profile's process in bytes; 0 if it is not known.
    pub fn peak_resident(&self) -> i64 {
        let details = self.details.as_ref().ok();
        let peak = details.and_then(|details| details.peak);
        peak.map_or(0, |peak| peak.program_bytes())
    }
}

/// The result of a recording: the program's end, and the profiles.
pub struct RecordingOutcome {
    /// How the program ended.
    pub ended: ProgramExit,
    /// The processes that ended in an unusual way, such as without writing their last profile.
    pub ending: ProcessEndings,
    /// The profiles of the recording.
    pub profiles: Vec<RecordedProfile>,
    /// Position of the main profile: the program's own profile, or else the first one. `None` if
    /// there is no profile.
    pub main: Option<usize>,
    /// Whether there is a profile of the program itself.
    pub has_own_profile: bool,
    /// A profile that went into a pipe or a device, if there is one.
    pub piped: Option<WrittenProfile>,
    /// Whether profiles could not be written.
    pub has_failed_writes: bool,
    /// Number of profiles that heapprof must not touch.
    pub refused: usize,
    /// Number of children that were left out, because they held very few bytes. Inherited bytes do
    /// not count.
    pub small_children: usize,
    /// The list of profiles. Its folder is removed when this value is dropped.
    pub(crate) _list: ProfileList,
}

/// The options of [`settle`].
pub(crate) struct SettleOptions<'a> {
    pub(crate) names: &'a ProfileNamePatterns,
    /// Minimum number of bytes that a child must have held to keep its profile. Inherited bytes do
    /// not count.
    pub(crate) least: Option<i64>,
    /// Whether addresses get names.
    pub(crate) symbolizes: bool,
}

/// Makes the outcome of a recording: drops small children, and checks and symbolizes the profiles.
/// `said` is the content of the list of profiles, together with the profiles that the keeper wrote.
pub(crate) fn settle(
    said: ListContents,
    ended: ProgramExit,
    ending: ProcessEndings,
    list: ProfileList,
    options: &SettleOptions<'_>,
    observer: &dyn RecordingObserver,
) -> RecordingOutcome {
    let ListContents {
        written,
        failed,
        small,
        ..
    } = said;
    for failed in &failed {
        observer.event(RecordingEvent::WriteFailed(failed));
    }
    let (mut written, piped, refused) = split_by_target(written);
    if !refused.is_empty() {
        observer.event(RecordingEvent::ProfilesRefused(&refused));
    }
    let mut outcome = RecordingOutcome {
        has_own_profile: written.iter().any(|one| one.process == ended.process),
        ended,
        ending,
        profiles: Vec::new(),
        main: None,
        piped,
        has_failed_writes: !failed.is_empty(),
        refused: refused.len(),
        small_children: 0,
        _list: list,
    };
    let ended = &outcome.ended;
    let Some(main) = find_main(&written, ended) else {
        outcome.small_children = small_children::distinct_processes(&small).count();
        return outcome;
    };
    let processes = [ended.process, written[main].process];
    if let Some(least) = options.least {
        outcome.small_children = small_children::leave_out(&mut written, &small, processes, least);
    }
    if let Some(folder) = options.names.folder_of_children(ended.process) {
        files::remove_folder(&folder);
        name_folder(&mut written, &folder, ended);
    }
    // The main profile may have another position among those that are left.
    let main = find_main(&written, ended).unwrap_or_default();
    let entries: Vec<&WrittenProfile> = written.iter().collect();
    let details = files::read(&entries, options.symbolizes, &outcome.ending);
    files::touch(&written[main]);
    outcome.main = Some(main);
    outcome.profiles = written
        .into_iter()
        .zip(details)
        .map(|(written, details)| RecordedProfile { written, details })
        .collect();
    outcome
}

/// The profiles that exist; a profile that went into a pipe, if there is one; and the paths that
/// must not be touched, with the reasons.
type TargetGroups = (
    Vec<WrittenProfile>,
    Option<WrittenProfile>,
    Vec<(PathBuf, io::Error)>,
);

/// Splits profiles by the kind of file at their paths.
fn split_by_target(written: Vec<WrittenProfile>) -> TargetGroups {
    let entries: Vec<&WrittenProfile> = written.iter().collect();
    let found = files::resolve_entries(&entries);
    let (mut there, mut piped, mut refused) = (Vec::new(), None, Vec::new());
    for (mut one, found) in written.into_iter().zip(found) {
        match found {
            EntryTarget::Profile(owner) => {
                one.owner = owner;
                one.rights = one.rights.with(ProcessRights::User(owner));
                there.push(one);
            }
            EntryTarget::Special => piped = piped.or(Some(one)),
            EntryTarget::Nothing => {}
            EntryTarget::Refused(why) => refused.push((one.path, why)),
        }
    }
    (there, piped, refused)
}

/// Returns the position of the main profile: the program's own, or the first one if the program has
/// none.
fn find_main(written: &[WrittenProfile], ended: &ProgramExit) -> Option<usize> {
    let of_main = |(_, one): &(usize, &WrittenProfile)| one.process == ended.process;
    // The profile of a process's end is not always the latest in the list, because what the process
    // waits for may go on meanwhile.
    let own = written.iter().enumerate().filter(of_main);
    let own = own
        .max_by_key(|(_, one)| (one.owner.is_us(), one.is_last))
        .map(|(i, _)| i);
    own.or((!written.is_empty()).then_some(0))
}

/// Names the children's folder after the program's profile. The program may have become another
/// one, so the first name may no longer fit.
fn name_folder(written: &mut [WrittenProfile], folder: &Path, ended: &ProgramExit) {
    // Other users may report any name, but the folder is renamed with heapprof's rights. So only a
    // process with all of this user's rights names the folder.
    let of_main = |one: &&WrittenProfile| {
        let is_ours = one.owner.is_us() && one.rights.are_ours();
        is_ours && one.process == ended.process && one.is_last
    };
    let Some(main) = written.iter().find(of_main) else {
        return;
    };
    let Some(name) = main.path.file_name().and_then(|name| name.to_str()) else {
        return;
    };
    let name = name.strip_suffix(".pb.gz").unwrap_or(name).to_string() + CHILDREN_SUFFIX;
    let wanted = main.path.with_file_name(name);
    let is_beside = folder.parent() == wanted.parent();
    if !is_beside || folder == wanted || !files::rename_folder(folder, &wanted) {
        return;
    }
    for one in written {
        if one.path.parent() == Some(folder)
            && let Some(name) = one.path.file_name()
        {
            one.path = wanted.join(name);
        }
    }
}
