//! Writes the profile of a process from its ledger, if the process ended without writing the
//! profile itself.

mod own_files;

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use heapprof_files::{FileAccess, FileOwner, FilePlace, PathTrust, make_folder, replace_file};
use heapprof_live::SharedLedger;
use heapprof_profile::{HeapHistory, Profile, encode};
use rustix::fs::FileType;

use crate::names::ProfileNamePatterns;
use crate::oom::OomKill;
use crate::outside::{add_command_line_comment, add_script_comment};
use crate::profile_entries::{SmallChild, WrittenProfile};
use crate::rights::ProcessRights;
use crate::root_folder::RootFolder;
pub(crate) use own_files::OwnFiles;

/// The options for writing profiles.
#[derive(Clone)]
pub(crate) struct ProfileWriteOptions {
    pub(crate) names: ProfileNamePatterns,
    /// The mode of the files.
    pub(crate) mode: u32,
    /// The regular expression of the program's own allocation functions; empty if it has none.
    pub(crate) wrappers: String,
    /// Whether profiles have the whole command line.
    pub(crate) command_line: bool,
    /// The words of the program's command line, each followed by a zero byte.
    pub(crate) typed: Vec<u8>,
    /// Minimum number of bytes that a child must have held to get a profile. Inherited bytes do not
    /// count.
    pub(crate) least: Option<i64>,
}

/// A process that ended without reporting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessDeath {
    /// Process id of the process.
    pub process: u32,
    /// The OOM kill that ended the process, as far as its cgroup's counts show.
    pub oom: Option<OomKill>,
    /// The user that the process ran as, if that user may not write the profile. The profile is
    /// then a file of `record`'s user.
    pub without_place: Option<u32>,
}

/// The result for a process that ended without having written its profile.
pub(crate) enum EndResult {
    /// A profile, and whether it is incomplete because the ledger was full.
    Profile(Box<WrittenProfile>, bool),
    /// No profile, because the process is a small child, and its user may not write the profile.
    Small(SmallChild),
}

/// Maximum number of names that are tried for a profile that must not replace another one.
const MAX_NAME_ATTEMPTS: u32 = 10_000;

/// Maximum number of frames in the ledger of a process.
const MAX_FRAMES: usize = 1 << 26;
/// Maximum number of frames in the ledger of another user's process.
const MAX_FRAMES_OF_OTHERS: usize = 1 << 24;

/// The way in which a process ended without having written its profile.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    Death,
    /// The process became another program without a report from the library.
    Exec,
}

/// The ended process whose profile is written.
#[derive(Clone, Copy)]
pub(crate) struct EndedProcess<'a> {
    pub(crate) pid: u32,
    /// The command line of the process when it handed over its ledger.
    pub(crate) command_line: &'a [u8],
    /// The process that `record` started.
    pub(crate) main: u32,
    pub(crate) rights: ProcessRights,
    /// The root folder of the process, if it is not heapprof's.
    pub(crate) root: Option<&'a RootFolder>,
}

/// Writes the profile of a process to the path that the process would have used, with the rights of
/// the process's user. If that user may not write there, the profile becomes a file of `record`'s
/// user.
///
/// # Errors
/// The ledger can't be read, or the profile can't be written. The error is `NoPlaceError` if the
/// process's user may not write the profile, and `record` has no place for it either.
pub(crate) fn write(
    kept: &SharedLedger,
    ended: EndedProcess<'_>,
    end: ProcessEnd,
    wanted: &ProfileWriteOptions,
    own_files: &mut OwnFiles,
) -> Result<EndResult> {
    let EndedProcess {
        pid,
        command_line,
        main,
        rights,
        root,
    } = ended;
    let how = match end {
        ProcessEnd::Death => "killed",
        ProcessEnd::Exec => "executed another program without reporting it",
    };
    // The ledger of another user's process may take no more memory than an honest one needs.
    let max_frames = match rights.are_ours() {
        true => MAX_FRAMES,
        false => MAX_FRAMES_OF_OTHERS,
    };
    let mut left = kept.read_last(max_frames, how, pid, &wanted.wrappers)?;
    add_script_comment(&mut left.profile, command_line);
    if wanted.command_line {
        add_command_line_comment(&mut left.profile, command_line);
    }
    // The names that the process reports do not lead to another folder.
    let names = &wanted.names;
    // In a container the process may have another number.
    let own = root.map_or(left.process, |_| pid);
    let (path, replaces) = names.last_profile_path(main, pid == main, own, &left.program);
    // After an exec the process goes on, and its next program has the name.
    let replaces = replaces && end == ProcessEnd::Death;
    // If the rights of a process are not known, no other user may read its profile.
    let (replaces, mode) = match (replaces, rights) {
        (true, ProcessRights::Public) => (ReplacePolicy::Own, PRIVATE_MODE),
        (false, ProcessRights::Public) => (ReplacePolicy::Nothing, PRIVATE_MODE),
        (true, _) => (ReplacePolicy::All, wanted.mode),
        (false, _) => (ReplacePolicy::Nothing, wanted.mode),
    };
    let made = rights.acting(|| put(&left.profile, &path, replaces, mode))?;
    let owner = rights.owner();
    let (path, owner) = match made {
        Err(error) if !owner.is_us() && own_files::is_for_rights(&error) => {
            let held = max_own_bytes(&left.profile);
            if pid != main && wanted.least.is_some_and(|least| held < least) {
                return Ok(EndResult::Small(SmallChild {
                    process: pid,
                    is_before_exec: end == ProcessEnd::Exec,
                }));
            }
            let beside = names.path_beside_program(main, own, &left.program);
            let places = [
                (&*path, replaces != ReplacePolicy::Nothing),
                (&*beside, false),
            ];
            let put = own_files.put(&left.profile, places, pid, owner.user)?;
            (put, FileOwner::us())
        }
        made => (made?, owner),
    };
    let total = |name| total(&left.profile, name);
    let written = WrittenProfile {
        process: pid,
        is_last: end == ProcessEnd::Death,
        is_before_filter: false,
        is_before_exec: end == ProcessEnd::Exec,
        is_exact: left.is_exact,
        in_use: total("inuse_space"),
        peak: total("peak_space"),
        own: max_own_bytes(&left.profile),
        stacks: left.profile.samples.len(),
        lost: left.lost,
        path,
        owner,
        rights,
        root: root.cloned(),
    };
    Ok(EndResult::Profile(Box::new(written), left.is_full))
}

/// Which existing files a profile may replace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplacePolicy {
    Nothing,
    /// Files of the acting user.
    Own,
    All,
}

/// The mode of a file that only its user may read.
const PRIVATE_MODE: u32 = 0o600;

/// Writes the profile to `path`, or to another name if it must not replace the file at `path`.
/// Returns the path that was used.
pub(crate) fn put(
    profile: &Profile,
    path: &Path,
    replaces: ReplacePolicy,
    mode: u32,
) -> Result<PathBuf> {
    let named = || format!("{}: cannot be written", path.display());
    let name = path.file_name().with_context(named)?.to_os_string();
    let folder = path.parent().unwrap_or(Path::new("/"));
    for number in 0..MAX_NAME_ATTEMPTS {
        let there = make_folder(folder, PathTrust::OwnLinks).with_context(named)?;
        let name = match number {
            0 => name.clone(),
            number => number_name(&name, number),
        };
        let place = FilePlace::in_folder(there, &name);
        let there = place.stat().with_context(named)?;
        let is_replaced = there.as_ref().is_none_or(|there| match replaces {
            ReplacePolicy::Nothing => false,
            ReplacePolicy::Own => FileOwner::from_stat(there).is_acting(),
            ReplacePolicy::All => true,
        });
        if !is_replaced {
            continue;
        }
        let kind = there.map(|there| FileType::from_raw_mode(there.st_mode));
        if kind.is_some_and(|kind| kind != FileType::RegularFile) {
            // Only the collector, in the program's process, writes into pipes and devices.
            bail!(
                "{}: is not a regular file, and the program has ended",
                path.display()
            );
        }
        let path = folder.join(&name);
        let access = FileAccess::Exactly(mode);
        replace_file(
            &place,
            &path.display().to_string(),
            access,
            |writer| -> Result<()> { Ok(encode(profile, writer)?) },
        )?;
        return Ok(path);
    }
    Err(io::Error::from(io::ErrorKind::AlreadyExists)).with_context(named)
}

/// Returns a name with a number before its ending.
fn number_name(name: &OsString, number: u32) -> OsString {
    const PROFILE_SUFFIX: &[u8] = b".pb.gz";
    let bytes = name.as_bytes();
    let (stem, ending) = match bytes.strip_suffix(PROFILE_SUFFIX) {
        Some(stem) => (stem, PROFILE_SUFFIX),
        None => (bytes, &b""[..]),
    };
    OsString::from_vec([stem, format!(".{number}").as_bytes(), ending].concat())
}

/// Returns the largest number of bytes that the process held, without inherited ones. A forked
/// child may free inherited memory while it allocates, so for a child the result is the total that
/// it allocated.
fn max_own_bytes(profile: &Profile) -> i64 {
    let history = HeapHistory::from_profile(profile);
    let first = history.and_then(|history| history.moments.first().copied());
    match first.map_or(0, |first| first.bytes) {
        0 => total(profile, "peak_space"),
        inherited => total(profile, "alloc_space").saturating_sub(inherited),
    }
}

fn total(profile: &Profile, name: &str) -> i64 {
    let Ok(column) = profile.find_sample_type(name) else {
        return 0;
    };
    i64::try_from(profile.samples.total(column)).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_stands_before_the_ending() {
        for (name, expected) in [("a.b.pb.gz", "a.b.7.pb.gz"), ("a.b", "a.b.7"), ("", ".7")] {
            assert_eq!(number_name(&name.into(), 7), expected);
        }
    }
}
