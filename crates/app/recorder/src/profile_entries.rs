//! Parses the list of profiles that the processes of a recording wrote (`HEAPPROF_LIST`). Entries
//! have the main figures of the profiles, so no profile has to be read.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use heapprof_files::FileOwner;

use crate::hooked_allocators::HookedAllocatorReports;
use crate::list::ListEntries;
use crate::rights::ProcessRights;
use crate::root_folder::RootFolder;

/// A profile that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenProfile {
    /// Process id of the process that the profile describes.
    pub process: u32,
    /// Whether the profile was written as the process ended.
    pub is_last: bool,
    /// Whether the process continued unrecorded after this profile, because a system-call filter
    /// would have killed it for writing a further profile.
    pub is_before_filter: bool,
    /// Whether the profile was written as the process became another program.
    pub is_before_exec: bool,
    /// Whether every allocation is in the profile.
    pub is_exact: bool,
    /// Bytes in use at the moment of the profile.
    pub in_use: i64,
    /// Bytes in use at the peak.
    pub peak: i64,
    /// Largest number of bytes that the process held. Bytes that it inherited by a fork do not
    /// count.
    pub own: i64,
    /// Number of stacks that have a value.
    pub stacks: usize,
    /// Number of events that could not be recorded.
    pub lost: u64,
    /// The path of the profile.
    pub path: PathBuf,
    /// The user whose process wrote the entry.
    pub owner: FileOwner,
    /// The least rights that the process is known to have had.
    pub rights: ProcessRights,
    /// The root folder in which the process named its files, if it is not heapprof's.
    pub root: Option<RootFolder>,
}

/// Profiles that could not be written for the same reason.
#[derive(Debug, PartialEq, Eq)]
pub struct WriteFailure {
    /// The reason why the profiles could not be written.
    pub why: String,
    /// The path of the first profile, if it is known.
    pub path: Option<String>,
    /// The number of profiles that could not be written.
    pub count: usize,
    /// The user whose process may not write the profile, if that is not this user.
    pub without_place: Option<u32>,
}

/// A process whose ledger was in private memory, so that nothing of it is left after a kill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateLedger {
    /// Process id of the process.
    pub process: u32,
    /// The reason why the ledger was in private memory.
    pub why: String,
    /// The user whose process reported the private ledger.
    pub owner: FileOwner,
}

/// A process that was not recorded, although it could have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrecordedProcess {
    /// Process id of the process.
    pub process: u32,
    /// The reason why the process was not recorded.
    pub why: String,
    /// Path of the program, as text that is safe to show.
    pub program: String,
    /// Whether the program was started without the library, so that no profile is the program's.
    pub lacks_library: bool,
}

/// A child that wrote no profile, because it held few bytes besides inherited ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmallChild {
    pub(crate) process: u32,
    /// Whether the child became another program instead of ending. Later entries of the list may be
    /// about that program.
    pub(crate) is_before_exec: bool,
}

/// The content of a list.
#[derive(Default)]
pub(crate) struct ListContents {
    /// The profiles, in the order in which they were written.
    pub(crate) written: Vec<WrittenProfile>,
    /// The profiles that could not be written, by reason.
    pub(crate) failed: Vec<WriteFailure>,
    /// The processes whose ledgers were in private memory.
    pub(crate) private: Vec<PrivateLedger>,
    /// The processes that were not recorded.
    pub(crate) unrecorded: Vec<UnrecordedProcess>,
    /// The children that were left out because they are small.
    pub(crate) small: Vec<SmallChild>,
    /// The allocators that the processes hooked.
    pub(crate) hooked: HookedAllocatorReports,
}

/// Maximum number of processes with private ledgers, and of unrecorded processes, that are
/// reported.
const MAX_PRIVATE_LEDGERS: usize = 1000;

/// Maximum number of different reasons for failed writes. Failures for further reasons are counted
/// with the last reason.
const MAX_REASONS: usize = 10;

/// Reads the list. If a profile has several entries, the last one counts. `is_settled` returns
/// whether it is already known that a process's user may not write the profile. Failures of such
/// processes are left out.
pub(crate) fn read(list: &[ListEntries], is_settled: impl Fn(u32) -> bool) -> ListContents {
    let (mut written, mut failed) = (
        Vec::<Option<WrittenProfile>>::new(),
        Vec::<WriteFailure>::new(),
    );
    let (mut private, mut unrecorded) =
        (Vec::<PrivateLedger>::new(), Vec::<UnrecordedProcess>::new());
    let mut small = Vec::new();
    let mut hooked = HookedAllocatorReports::default();
    // A process that reports something afterwards did not become that program, or the program has
    // the library in another way.
    let mut becoming = Vec::<UnrecordedProcess>::new();
    // A parallel build writes thousands of profiles.
    let mut last = HashMap::<(u32, &[u8]), usize>::new();
    let entries = list.iter().flat_map(|of| {
        let entries = of.text.split(|&b| b == 0).filter(|entry| !entry.is_empty());
        entries.map(|entry| (of.owner, entry))
    });
    for (owner, entry) in entries {
        if let Some(why) = entry.strip_prefix(b"!") {
            let FailureReason {
                process,
                path,
                why,
                is_for_rights,
            } = parse_failure(why);
            if is_for_rights && process.is_some_and(&is_settled) {
                continue;
            }
            let other = Some(owner.user).filter(|_| is_for_rights && !owner.is_us());
            let same = failed.iter().position(|other| other.why == why);
            // A process may give any number of reasons.
            let full = (failed.len() >= MAX_REASONS).then_some(MAX_REASONS - 1);
            match same.or(full) {
                Some(at) => failed[at].count += 1,
                None => failed.push(WriteFailure {
                    why,
                    path,
                    count: 1,
                    without_place: other,
                }),
            }
        } else if let Some(entry) = entry.strip_prefix(b"~") {
            let is_new = |one: &PrivateLedger| {
                let known = |known: &PrivateLedger| known.process == one.process;
                !private.iter().any(known) && private.len() < MAX_PRIVATE_LEDGERS
            };
            private.extend(parse_private(entry, owner).filter(is_new));
        } else if let Some(entry) = entry.strip_prefix(b"?") {
            let is_one_more = unrecorded.len() < MAX_PRIVATE_LEDGERS;
            unrecorded.extend(parse_unrecorded(entry).filter(|_| is_one_more));
        } else if let Some(entry) = entry.strip_prefix(b"-") {
            let one = parse_small_child(entry);
            small.extend(one);
            let ended = one.filter(|one| !one.is_before_exec);
            becoming.retain(|other: &UnrecordedProcess| {
                Some(other.process) != ended.map(|o| o.process)
            });
        } else if let Some(entry) = entry.strip_prefix(b"+") {
            hooked.add(entry);
        } else if let Some(entry) = entry.strip_prefix(b">") {
            let is_one_more = becoming.len() < MAX_PRIVATE_LEDGERS;
            becoming.extend(parse_unrecorded(entry).filter(|_| is_one_more));
        } else if let Some(entry) = entry.strip_prefix(b"=") {
            let is_one_more = becoming.len() < MAX_PRIVATE_LEDGERS;
            let one = parse_unrecorded(entry).filter(|_| is_one_more);
            becoming.extend(one.map(|one| UnrecordedProcess {
                lacks_library: true,
                ..one
            }));
        } else if let Some((path, one)) = parse(entry, owner) {
            becoming.retain(|other| one.is_before_exec || other.process != one.process);
            if let Some(before) = last.insert((owner.user, path), written.len()) {
                written[before] = None;
            }
            written.push(Some(one));
        }
    }
    unrecorded.append(&mut becoming);
    ListContents {
        written: written.into_iter().flatten().collect(),
        failed,
        private,
        unrecorded,
        small,
        hooked,
    }
}

/// The reason why a profile could not be written.
struct FailureReason {
    process: Option<u32>,
    path: Option<String>,
    why: String,
    /// Whether missing rights are the reason.
    is_for_rights: bool,
}

/// Parses an entry about a profile that could not be written. The list has the errno, the process
/// and the path, or a text. The library leaves the texts of errnos to heapprof, because asking libc
/// for them in a locale may allocate.
fn parse_failure(why: &[u8]) -> FailureReason {
    let text = String::from_utf8_lossy(why);
    let mut parts = text.splitn(3, ' ');
    let mut parsed = || {
        let (errno, process) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some((errno, process, parts.next()?))
    };
    match parsed() {
        Some((errno, process, path)) => {
            let error = match errno {
                libc::ETIMEDOUT => "nothing read from it for ten seconds".to_string(),
                errno => std::io::Error::from_raw_os_error(errno).to_string(),
            };
            FailureReason {
                process: Some(process),
                path: Some(path.to_string()),
                why: error,
                is_for_rights: matches!(errno, libc::EACCES | libc::EPERM),
            }
        }
        None => FailureReason {
            process: None,
            path: None,
            why: text.into_owned(),
            is_for_rights: false,
        },
    }
}

/// Parses an entry about a process that was not recorded: its number, the reason, and in a second
/// line its program.
fn parse_unrecorded(entry: &[u8]) -> Option<UnrecordedProcess> {
    let text = String::from_utf8_lossy(entry);
    let (process, rest) = text.split_once(' ')?;
    let (why, program) = rest.split_once('\n')?;
    Some(UnrecordedProcess {
        process: process.parse().ok()?,
        why: heapprof_text::printable(why).into_owned(),
        program: heapprof_text::printable(program).into_owned(),
        lacks_library: false,
    })
}

/// Parses an entry about a process whose ledger could not be kept: its number, an errno or 0, and a
/// text.
fn parse_private(entry: &[u8], owner: FileOwner) -> Option<PrivateLedger> {
    let text = String::from_utf8_lossy(entry);
    let mut fields = text.splitn(3, ' ');
    let (process, errno) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    let why = heapprof_text::printable(fields.next()?).into_owned();
    let why = match errno {
        0 => why,
        errno => format!("{why}: {}", std::io::Error::from_raw_os_error(errno)),
    };
    Some(PrivateLedger {
        process,
        why,
        owner,
    })
}

/// Parses an entry about a child that was left out: its number, and whether it ended or became
/// another program.
fn parse_small_child(entry: &[u8]) -> Option<SmallChild> {
    let (process, when) = std::str::from_utf8(entry).ok()?.split_once(' ')?;
    Some(SmallChild {
        process: process.parse().ok()?,
        is_before_exec: when == "2",
    })
}

/// Parses an entry about a profile. Returns the path as it is in the list, and the profile.
fn parse(entry: &[u8], owner: FileOwner) -> Option<(&[u8], WrittenProfile)> {
    let mut fields = entry.splitn(9, |&b| b == b' ');
    let mut number = || {
        std::str::from_utf8(fields.next()?)
            .ok()?
            .parse::<i64>()
            .ok()
    };
    let (process, when, is_exact) = (number()?, number()?, number()?);
    let (in_use, peak, own) = (number()?, number()?, number()?);
    let (stacks, lost) = (number()?, number()?);
    let path = fields.next()?;
    let written = WrittenProfile {
        process: process.try_into().ok()?,
        is_last: when == 1 || when == 3,
        is_before_filter: when == 3,
        is_before_exec: when == 2,
        is_exact: is_exact != 0,
        in_use,
        peak,
        own,
        stacks: stacks.try_into().ok()?,
        lost: lost.try_into().ok()?,
        path: OsStr::from_bytes(path).into(),
        owner,
        rights: ProcessRights::User(owner),
        root: None,
    };
    Some((path, written))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_written_twice_is_what_it_was_the_last_time() {
        let list = [
            "7 0 1 10 20 20 2 0 /tmp/a\nb.pb.gz",
            "!28 7 /tmp/c d",
            "!no room",
            "8 1 0 1 1 1 1 0 /tmp/c.pb.gz",
            "!no room",
            "~7 0 no files\u{7}",
            "~7 0 again",
            "~9 13 refused",
            "~x",
            "junk",
            "!28 7 /tmp/d",
            "!13 7 /tmp/e",
            "!13 9 /tmp/f",
            "!28 9 /tmp/g",
            "7 1 1 0 30 30 3 0 /tmp/a\nb.pb.gz",
        ];
        let list = list.join("\0");
        let owner = |user| FileOwner { user, group: user };
        let text = list.into_bytes();
        let list = [
            ListEntries {
                owner: owner(u32::MAX - 1),
                text,
            },
            // A user's entries do not replace those of another user.
            ListEntries {
                owner: owner(u32::MAX - 2),
                text: b"9 1 1 0 77 77 3 0 /tmp/c.pb.gz\0".to_vec(),
            },
        ];
        let said = read(&list, |process| process == 9);
        let private = said.private.iter().map(|of| (of.process, of.why.as_str()));
        assert_eq!(
            private.collect::<Vec<_>>(),
            [
                (7, "no files\\u{7}"),
                (9, "refused: Permission denied (os error 13)")
            ]
        );
        let reported: Vec<_> = said
            .written
            .iter()
            .map(|w| (w.process, w.is_last, w.peak, w.path.to_str().unwrap()))
            .collect();
        assert_eq!(
            reported,
            [
                (8, true, 1, "/tmp/c.pb.gz"),
                (7, true, 30, "/tmp/a\nb.pb.gz"),
                (9, true, 77, "/tmp/c.pb.gz")
            ]
        );
        let os_text = |errno| std::io::Error::from_raw_os_error(errno).to_string();
        let failure = |count, path: Option<&str>, why, without_place| WriteFailure {
            why,
            path: path.map(str::to_string),
            count,
            without_place,
        };
        assert_eq!(
            said.failed,
            [
                failure(3, Some("/tmp/c d"), os_text(28), None),
                failure(2, None, "no room".to_string(), None),
                failure(1, Some("/tmp/e"), os_text(13), Some(u32::MAX - 1)),
            ]
        );
    }
}
