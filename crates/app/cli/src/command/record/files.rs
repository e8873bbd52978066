//! The files that the list of a recording names: looked at, symbolized and removed with the rights
//! of the users who listed them.

use std::io;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result};
use heapprof_analysis::{
    ManagedRuntime, RssBreakdown, SumSpread, nameless_share, resident, unseen_runtime,
};
use heapprof_profile::{EarlyEnds, Profile, ReadOptions, decode_with, encode, recorded};
use heapprof_symbolize::SymbolizeOptions;
use heapprof_symbolize::allocators::UnhookedAllocator;

use super::executables::OpenExecutables;
use super::residents::ResidentHistories;
use super::unhooked;
use super::written::WrittenProfile;
use crate::place::{self, FileAccess, FileOwner, FilePlace, OpenedFile, PathTrust, acting};
use crate::rights::{ProcessNamer, ProcessRights};
use crate::{messages, output};

/// What an entry's path leads to.
pub(super) enum EntryTarget {
    /// A profile to be read and written by its owner.
    Profile(FileOwner),
    /// A pipe or a device.
    Special,
    /// Nothing, because an exec that failed took the profile back.
    Nothing,
    /// Something that the entry's writer must not touch, and why.
    Refused(io::Error),
}

/// What a profile says besides what the list says.
#[derive(Default)]
pub(super) struct ProfileDetails {
    /// What was resident at the peak, with the heap's part.
    pub(super) peak: Option<RssBreakdown>,
    pub(super) runtime: Option<ManagedRuntime>,
    /// The file of the program.
    pub(super) program: String,
    /// What the values are made of, if they are estimates.
    pub(super) sampled: Option<SamplingSummary>,
    /// What is held by code that symbolizing, if it was asked for, has found no names for.
    pub(super) unnamed: Option<UnnamedCode>,
    /// Which interpreter's frames are missing, and why.
    pub(super) missing_frames: Option<String>,
    /// Whether it has the values of an interpreter.
    pub(super) has_values: bool,
    /// Why it has none, or not all of them.
    pub(super) missing_values: Option<String>,
    /// The stacks that end early, by file.
    pub(super) early_ends: Vec<EarlyEnds>,
    /// Bytes that were allocated, if the samples were read.
    pub(super) allocated: Option<i64>,
    /// Blocks whose free was not seen before their address came again, and their bytes.
    pub(super) unseen_frees: [u64; 2],
    /// How the program allocates past what is hooked.
    pub(super) unhooked: Vec<UnhookedAllocator>,
}

/// What is held by code without names.
pub(super) struct UnnamedCode {
    /// The sample type of the values.
    pub(super) sample_type: &'static str,
    pub(super) bytes: i64,
    pub(super) total: i64,
    /// The file that most of that code is in, with its build id. Empty if the code is in no file.
    pub(super) file: String,
    pub(super) build_id: String,
    /// What has become of that file, if it is not what the program had loaded.
    pub(super) fate: Option<FileFate>,
}

/// What became of a file after a program had loaded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileFate {
    Replaced,
    Deleted,
}

impl FileFate {
    /// What became of a file that a process with these rights has named. If these are nobody's, the
    /// file is not looked at.
    fn find_with_rights(file: &str, build_id: &str, rights: ProcessRights) -> Option<Self> {
        match rights {
            ProcessRights::User(_) => rights.acting(|| Self::find_fate(file, build_id)).ok()?,
            ProcessRights::Public => None,
        }
    }

    /// What became of the file with this build id; `None` if it is the same one, or that is not
    /// known.
    fn find_fate(file: &str, build_id: &str) -> Option<Self> {
        if !file.starts_with('/') || build_id.is_empty() {
            return None;
        }
        let path = Path::new(file);
        match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Self::Deleted),
            Err(_) => None,
            Ok(_) => (heapprof_symbolize::build_id(path)? != build_id).then_some(Self::Replaced),
        }
    }
}

/// What the values of a sampled profile are made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct SamplingSummary {
    /// How many allocations were sampled, and the bytes that they stand for.
    pub(super) taken: u64,
    pub(super) allocated: i64,
    /// Bytes in use, and what is known of that sum.
    pub(super) in_use: i64,
    pub(super) spread: SumSpread,
    /// Average bytes between samples.
    pub(super) period: i64,
}

/// Opens an entry's profile. Fails if it is not a plain file of the owner's, or if its path leads
/// over another user's links.
fn open(one: &WrittenProfile) -> io::Result<(FilePlace, OpenedFile)> {
    let place = FilePlace::resolve(&one.path, PathTrust::OwnLinks)?;
    let opened = place.open()?;
    let owner = FileOwner::from_stat(&opened.stat);
    if owner.user != one.owner.user {
        return Err(io::Error::other(format!("belongs to user {}", owner.user)));
    }
    Ok((place, opened))
}

/// Does `work` with each of the entries, as its owner. What the processes ran may name code, and
/// what was read with the rights of one process names the code of no process with others. If nobody
/// may act for that owner, `refused` makes the answer.
fn each<T: Send>(
    entries: &[&WrittenProfile],
    executables: &OpenExecutables,
    work: impl Fn(&mut ProcessNamer, &WrittenProfile) -> T + Sync,
    refused: impl Fn(io::Error) -> T,
) -> Vec<T> {
    let mut done: Vec<Option<T>> = entries.iter().map(|_| None).collect();
    while let Some(next) = done.iter().position(Option::is_none) {
        let whose = |one: &WrittenProfile| (one.owner, one.rights);
        let (owner, rights) = whose(entries[next]);
        let of_owner = (0..entries.len()).filter(|&i| whose(entries[i]) == (owner, rights));
        let of_owner: Vec<usize> = of_owner.collect();
        let mut opened = executables.paths_for(owner);
        if rights.owner().user != owner.user {
            opened.extend(executables.paths_for(rights.owner()));
        }
        let worked = acting(owner, || {
            // The processes of a recording have the same libraries.
            let mut namer = ProcessNamer::new(SymbolizeOptions {
                number_functions: true,
                opened: opened.clone(),
                ..SymbolizeOptions::default()
            });
            let each = of_owner.iter().map(|&i| work(&mut namer, entries[i]));
            each.collect::<Vec<T>>()
        });
        match worked {
            Ok(worked) => {
                for (i, one) in of_owner.into_iter().zip(worked) {
                    done[i] = Some(one);
                }
            }
            Err(error) => {
                for i in of_owner {
                    done[i] = Some(refused(io::Error::other(error.to_string())));
                }
            }
        }
    }
    done.into_iter().flatten().collect()
}

/// What the paths of the entries lead to.
pub(super) fn resolve_entries(entries: &[&WrittenProfile]) -> Vec<EntryTarget> {
    let look = |_: &mut ProcessNamer, one: &WrittenProfile| match resolve_entry(one) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => EntryTarget::Nothing,
        Err(error) => EntryTarget::Refused(error),
    };
    each(
        entries,
        &OpenExecutables::default(),
        look,
        EntryTarget::Refused,
    )
}

fn resolve_entry(one: &WrittenProfile) -> io::Result<EntryTarget> {
    use rustix::fs::FileType;
    let place = FilePlace::resolve(&one.path, PathTrust::OwnLinks)?;
    let Some(found) = place.stat()? else {
        return Ok(EntryTarget::Nothing);
    };
    let kind = FileType::from_raw_mode(found.st_mode);
    if matches!(
        kind,
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket
    ) {
        return Ok(EntryTarget::Special);
    }
    if kind == FileType::Symlink && is_kernel_link(&place) {
        return Ok(EntryTarget::Special);
    }
    let there = FileOwner::from_stat(&place.open()?.stat);
    match there.user == one.owner.user {
        true => Ok(EntryTarget::Profile(one.owner)),
        // On some file systems a file belongs to somebody else than its writer. Root does no more
        // with it than that user could.
        false if one.owner.is_us() && one.owner.user == 0 => Ok(EntryTarget::Profile(there)),
        false => Err(io::Error::other(format!("belongs to user {}", there.user))),
    }
}

/// Whether a link leads to something other than a plain file, such as `/dev/stdout`, which is
/// `/proc/self/fd/1`, in a pipeline.
fn is_kernel_link(place: &FilePlace) -> bool {
    rustix::fs::statat(place.folder(), place.name(), rustix::fs::AtFlags::empty())
        .is_ok_and(|led| !rustix::fs::FileType::from_raw_mode(led.st_mode).is_file())
}

/// Reads each profile. If asked to, gives its frames names, and its history what was resident.
/// The executables are what the processes ran.
pub(super) fn read(
    entries: &[&WrittenProfile],
    with_symbols: bool,
    residents: &ResidentHistories,
    executables: &OpenExecutables,
) -> Vec<Result<ProfileDetails>> {
    let read = |namer: &mut ProcessNamer, one: &WrittenProfile| {
        let unreadable = || one.path.display().to_string();
        let (place, opened) = open(one).with_context(unreadable)?;
        // Exact values need not be added up, because what the entry says of them is right.
        let options = ReadOptions::default().only_head(one.is_exact && !with_symbols);
        let mut profile = decode_with(opened.file, options)
            .map_err(|error| messages::reading_error(error.into()))
            .with_context(unreadable)?;
        let has_residents = with_symbols && residents.put_into(&mut profile, one.process);
        let mut told = read_details(&profile, one);
        let unhooked = unhooked::note_in(&mut profile, namer, one.rights);
        told.unhooked = unhooked.with_context(unreadable)?;
        if with_symbols {
            told.allocated = total_allocated(&profile);
            // The process that named the files may have had fewer rights than the file's owner.
            let summary = namer.symbolize(&mut profile, one.rights);
            let summary = summary.with_context(unreadable)?;
            let is_named = summary.resolved() + summary.numbered() > 0;
            if has_residents || is_named || !told.unhooked.is_empty() {
                let shown = one.path.display().to_string();
                let access = FileAccess::Exactly(opened.stat.st_mode & 0o777);
                output::replace(&place, &shown, access, |writer| {
                    Ok(encode(&profile, writer)?)
                })?;
            }
            told.unnamed = find_unnamed_code(&profile, one.rights);
        }
        Ok(told)
    };
    each(entries, executables, read, |error| Err(error.into()))
}

fn read_details(profile: &Profile, one: &WrittenProfile) -> ProfileDetails {
    let texts = profile.comment.iter().map(|&text| profile.text(text));
    let comments: Vec<String> = texts.map(str::to_string).collect();
    let [_, peak] = resident(&comments, [Some(one.in_use), Some(one.peak)]);
    let mut files = profile.mapping.iter().map(|m| profile.text(m.filename));
    ProfileDetails {
        peak,
        program: files.clone().next().unwrap_or_default().to_string(),
        runtime: unseen_runtime(&mut files, &comments),
        sampled: (!one.is_exact).then(|| sum_up_sampling(profile)),
        unnamed: None,
        missing_frames: find_comment(&comments, "frames missing: "),
        has_values: profile.find_sample_type("sv_inuse_objects").is_ok(),
        missing_values: find_comment(&comments, "perl: values missing: "),
        early_ends: EarlyEnds::from_comments(comments.iter().map(String::as_str)),
        allocated: None,
        unseen_frees: recorded::unseen_frees(comments.iter().map(String::as_str)),
        unhooked: Vec::new(),
    }
}

/// How many bytes were allocated at all.
fn total_allocated(profile: &Profile) -> Option<i64> {
    let column = profile.find_sample_type("alloc_space").ok()?;
    let values = (0..profile.samples.len()).map(|i| profile.samples.values(i)[column]);
    Some(values.fold(0, i64::saturating_add))
}

/// What the first comment says that begins in this way, such as which interpreter's frames the
/// library could not read, and why.
fn find_comment(comments: &[String], beginning: &str) -> Option<String> {
    let said = |comment: &String| comment.strip_prefix(beginning).map(str::to_string);
    comments.iter().find_map(said)
}

/// What code without names holds at the peak. If nothing was held there, it is what such code has
/// in use, and otherwise what it allocated.
fn find_unnamed_code(profile: &Profile, rights: ProcessRights) -> Option<UnnamedCode> {
    ["peak_space", "inuse_space", "alloc_space"]
        .into_iter()
        .find_map(|sample_type| {
            let column = profile.find_sample_type(sample_type).ok()?;
            let found = nameless_share(profile, column).ok()?;
            let narrow = |sum: i128| i64::try_from(sum).unwrap_or(i64::MAX);
            let text = |id| profile.text(id).to_string();
            let mapping = found.file.map(|file| &profile.mapping[file.index()]);
            let file = mapping.map_or_else(String::new, |mapping| text(mapping.filename));
            let build_id = mapping.map_or_else(String::new, |mapping| text(mapping.build_id));
            (found.total > 0).then(|| UnnamedCode {
                sample_type,
                bytes: narrow(found.value),
                total: narrow(found.total),
                fate: FileFate::find_with_rights(&file, &build_id, rights),
                file,
                build_id,
            })
        })
}

/// Adds up what all samples say about their sampling.
fn sum_up_sampling(profile: &Profile) -> SamplingSummary {
    let mut sampled = SamplingSummary {
        period: profile.period,
        ..SamplingSummary::default()
    };
    let find = |name| profile.find_sample_type(name).ok();
    let (Some(allocated), Some(in_use)) = (find("alloc_space"), find("inuse_space")) else {
        return sampled;
    };
    for i in 0..profile.samples.len() {
        let values = profile.samples.values(i);
        sampled.allocated = sampled.allocated.saturating_add(values[allocated]);
        sampled.in_use = sampled.in_use.saturating_add(values[in_use]);
        if let Some(known) = profile.samples.spread(i) {
            sampled.taken = sampled.taken.saturating_add(known.sampled[allocated]);
            sampled.spread = sampled.spread.combine(SumSpread {
                samples: known.sampled[in_use],
                variance: known.variance[in_use],
            });
        }
    }
    sampled
}

/// Removes the profiles. Returns how many.
pub(super) fn remove(entries: &[&WrittenProfile]) -> usize {
    let remove = |_: &mut ProcessNamer, one: &WrittenProfile| {
        open(one).is_ok_and(|(place, _)| place.remove().is_ok())
    };
    let removed = each(entries, &OpenExecutables::default(), remove, |_| false);
    removed.into_iter().filter(|&gone| gone).count()
}

/// Makes a profile the newest one here, which commands read if none is named.
pub(super) fn touch(one: &WrittenProfile) {
    let touch = |_: &mut ProcessNamer, one: &WrittenProfile| {
        open(one).and_then(|(_, opened)| opened.file.set_modified(SystemTime::now()))
    };
    each(&[one], &OpenExecutables::default(), touch, Err);
}

/// Gives the children's folder the name of the profile that they belong to. Returns whether it has
/// that name now.
pub(super) fn rename_folder(from: &Path, to: &Path) -> bool {
    let (Ok(from), Ok(to)) = (
        FilePlace::resolve(from, PathTrust::OwnLinks),
        FilePlace::resolve(to, PathTrust::OwnLinks),
    ) else {
        return false;
    };
    let from = (from.folder(), from.name());
    place::rename_folder(from, (to.folder(), to.name())).is_ok()
}

/// Removes the children's folder if nothing is in it.
pub(super) fn remove_folder(path: &Path) {
    if let Ok(place) = FilePlace::resolve(path, PathTrust::OwnLinks) {
        let _ = rustix::fs::unlinkat(place.folder(), place.name(), rustix::fs::AtFlags::REMOVEDIR);
    }
}
