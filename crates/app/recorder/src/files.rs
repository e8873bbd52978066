//! Checks, symbolizes and removes the files that the list of a recording names, with the rights of
//! the users who listed them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result};
use heapprof_analysis::{
    SumSpread,
    coverage::{ManagedRuntime, RssBreakdown, resident, unseen_runtime},
    nameless::nameless_share,
};
use heapprof_files::{
    FileAccess, FileOwner, FilePlace, OpenedFile, PathTrust, acting, replace_file,
};
use heapprof_profile::{EarlyEnds, Profile, ReadOptions, decode_with, encode, recording_texts};
use heapprof_symbolize::SymbolizeOptions;
use heapprof_symbolize::allocators::UnhookedAllocator;

use crate::ending::ProcessEndings;
use crate::executables::OpenExecutables;
use crate::hooked_allocators::describe_hooked;
use crate::profile_entries::WrittenProfile;
use crate::rights::{ProcessNamer, ProcessRights};
use crate::root_folder::RootFolder;
use crate::unhooked_allocators;

/// The kind of file to which the path of a list entry leads.
pub(crate) enum EntryTarget {
    /// A profile, which is read and written with the rights of its owner.
    Profile(FileOwner),
    /// A pipe or a device.
    Special,
    /// No file. If a process writes a profile before an exec and the exec fails, it removes the
    /// profile.
    Nothing,
    /// A file that the entry's writer must not touch, and why.
    Refused(io::Error),
}

/// Details of a profile that are not in the list.
#[derive(Default)]
pub struct ProfileDetails {
    /// The resident memory at the peak, and how much of it was heap.
    pub peak: Option<RssBreakdown>,
    /// The managed runtime whose memory is not part of the heap, if the process has one.
    pub runtime: Option<ManagedRuntime>,
    /// Path of the program's file.
    pub program: String,
    /// A summary of the samples, if the profile's values are estimates from samples.
    pub sampled: Option<SamplingSummary>,
    /// The memory of code that has no names after symbolizing, if symbolizing was requested.
    pub unnamed: Option<UnnamedCode>,
    /// The interpreter whose frames are missing, and why.
    pub missing_frames: Option<String>,
    /// Whether the profile has the values of an interpreter.
    pub has_values: bool,
    /// Why the profile has no values of an interpreter, or not all of them.
    pub missing_values: Option<String>,
    /// The stacks that end before their outermost function, by file.
    pub early_ends: Vec<EarlyEnds>,
    /// Bytes that were allocated, if the samples were read.
    pub allocated: Option<i64>,
    /// Number of blocks whose address was allocated again before their free was recorded, and the
    /// number of their bytes.
    pub unseen_frees: [u64; 2],
    /// Which allocators inside files the profile has the blocks of, as the end of a line; `None` if
    /// there are none.
    pub hooked: Option<String>,
    /// The program's allocators that are not hooked.
    pub unhooked: Vec<UnhookedAllocator>,
}

/// The share of memory in stacks that end in code without a name.
pub struct UnnamedCode {
    /// The sample type of `bytes` and `total`.
    pub sample_type: &'static str,
    /// Bytes in stacks that end in code without a name.
    pub bytes: i64,
    /// Bytes in all stacks.
    pub total: i64,
    /// The file that contains most of the code without names; empty if that code is in no file.
    pub file: String,
    /// Build id of `file`.
    pub build_id: String,
    /// The fate of `file`, if it is no longer the file that the program loaded.
    pub fate: Option<FileFate>,
}

/// The fate of a file after a program had loaded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileFate {
    /// Another file has the file's name now.
    Replaced,
    /// No file has the file's name any more.
    Deleted,
}

impl FileFate {
    /// Returns the fate of a file that the process of a profile named. With public rights, the file
    /// is not inspected.
    fn find_for(file: &str, build_id: &str, one: &WrittenProfile) -> Option<Self> {
        let path = match &one.root {
            Some(root) => root.path().join(file.strip_prefix('/')?),
            None => PathBuf::from(file),
        };
        match one.rights {
            ProcessRights::User(_) => one
                .rights
                .acting(|| Self::find_fate(&path, build_id))
                .ok()?,
            ProcessRights::Public => None,
        }
    }

    /// Returns the fate of the file with this build id; `None` if the file is unchanged or can't be
    /// checked.
    fn find_fate(path: &Path, build_id: &str) -> Option<Self> {
        if !path.is_absolute() || build_id.is_empty() {
            return None;
        }
        match std::fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Self::Deleted),
            Err(_) => None,
            Ok(_) => (heapprof_symbolize::build_id(path)? != build_id).then_some(Self::Replaced),
        }
    }
}

/// A summary of the samples that a sampled profile is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SamplingSummary {
    /// Number of sampled allocations.
    pub taken: u64,
    /// Number of bytes that the sampled allocations represent.
    pub allocated: i64,
    /// Bytes in use.
    pub in_use: i64,
    /// The spread of the bytes in use.
    pub spread: SumSpread,
    /// Average bytes between samples.
    pub period: i64,
}

/// Opens an entry's profile. Fails if the profile is not a plain file of the entry's owner, or if
/// another user's symbolic link is on its path.
fn open(one: &WrittenProfile) -> io::Result<(FilePlace, OpenedFile)> {
    let place = FilePlace::resolve(&one.path, PathTrust::OwnLinks)?;
    let opened = place.open()?;
    let owner = FileOwner::from_stat(&opened.stat);
    if owner.user != one.owner.user {
        return Err(io::Error::other(format!("belongs to user {}", owner.user)));
    }
    Ok((place, opened))
}

/// Calls `work` for each entry, with the rights of the entry's owner. `executables` are files that
/// may name code. Each set of rights has a separate namer, so files that were read with some rights
/// never name code of processes with other rights. If heapprof can't act as an owner, the result
/// comes from `refused`.
fn each<T: Send>(
    entries: &[&WrittenProfile],
    executables: &OpenExecutables,
    work: impl Fn(&mut ProcessNamer, &WrittenProfile) -> T + Sync,
    refused: impl Fn(io::Error) -> T,
) -> Vec<T> {
    let mut done: Vec<Option<T>> = entries.iter().map(|_| None).collect();
    let whose = |i: usize| {
        let one = entries[i];
        (one.owner, one.rights, one.root.as_ref())
    };
    while let Some(next) = done.iter().position(Option::is_none) {
        let (owner, rights, root) = whose(next);
        let of_owner = (0..entries.len()).filter(|&i| whose(i) == (owner, rights, root));
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
                root: root.map(RootFolder::path),
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

/// Returns the kind of file that each entry's path leads to.
pub(crate) fn resolve_entries(entries: &[&WrittenProfile]) -> Vec<EntryTarget> {
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
        // On some file systems a file does not belong to its writer. Root then acts with the rights
        // of the file's owner.
        false if one.owner.is_us() && one.owner.user == 0 => Ok(EntryTarget::Profile(there)),
        false => Err(io::Error::other(format!("belongs to user {}", there.user))),
    }
}

/// Whether a link leads to something other than a plain file. An example is `/dev/stdout` in a
/// pipeline, which is a link to `/proc/self/fd/1`.
fn is_kernel_link(place: &FilePlace) -> bool {
    rustix::fs::statat(place.folder(), place.name(), rustix::fs::AtFlags::empty())
        .is_ok_and(|led| !rustix::fs::FileType::from_raw_mode(led.st_mode).is_file())
}

/// Reads the details of each profile. If `with_symbols` is true, also names the frames of each
/// profile, and adds the resident memory to the profile's history and the parts of its peak to the
/// comments. `executables` are the files that the processes ran.
pub(crate) fn read(
    entries: &[&WrittenProfile],
    with_symbols: bool,
    ending: &ProcessEndings,
) -> Vec<Result<ProfileDetails>> {
    let read = |namer: &mut ProcessNamer, one: &WrittenProfile| {
        let unreadable = || one.path.display().to_string();
        let (place, opened) = open(one).with_context(unreadable)?;
        // Exact values need not be added up, because the sums in the entry are right.
        let options = ReadOptions::default().only_head(one.is_exact && !with_symbols);
        let mut profile = decode_with(opened.file, options)
            .map_err(anyhow::Error::from)
            .with_context(unreadable)?;
        let mut is_changed = with_symbols && ending.residents.put_into(&mut profile, one.process);
        // What is known of a process is that of the last program that it ran.
        let is_divided = with_symbols && one.is_last;
        is_changed |= is_divided && ending.divisions.put_into(&mut profile, one.process);
        is_changed |= one.is_last && ending.hooked.put_into(&mut profile, one.process);
        let mut details = read_details(&profile, one);
        let unhooked = unhooked_allocators::note_in(&mut profile, namer, one.rights);
        details.unhooked = unhooked.with_context(unreadable)?;
        if with_symbols {
            details.allocated = total_allocated(&profile);
            // The process that named the files may have had fewer rights than the file's owner.
            let summary = namer.symbolize(&mut profile, one.rights);
            let summary = summary.with_context(unreadable)?;
            let is_named = summary.resolved() + summary.numbered() > 0;
            if is_changed || is_named || !details.unhooked.is_empty() {
                let shown = one.path.display().to_string();
                let access = FileAccess::Exactly(opened.stat.st_mode & 0o777);
                replace_file(&place, &shown, access, |writer| -> Result<()> {
                    Ok(encode(&profile, writer)?)
                })?;
            }
            details.unnamed = find_unnamed_code(&profile, one);
        }
        Ok(details)
    };
    each(
        entries,
        &ending.executables,
        read,
        |error| Err(error.into()),
    )
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
        unseen_frees: recording_texts::unseen_frees(comments.iter().map(String::as_str)),
        hooked: describe_hooked(&comments),
        unhooked: Vec::new(),
    }
}

/// Returns the number of bytes that were allocated in total.
fn total_allocated(profile: &Profile) -> Option<i64> {
    let column = profile.find_sample_type("alloc_space").ok()?;
    let values = (0..profile.samples.len()).map(|i| profile.samples.values(i)[column]);
    Some(values.fold(0, i64::saturating_add))
}

/// Returns the rest of the first comment that begins with `beginning`.
fn find_comment(comments: &[String], beginning: &str) -> Option<String> {
    let said = |comment: &String| comment.strip_prefix(beginning).map(str::to_string);
    comments.iter().find_map(said)
}

/// Returns the memory of code without names: at the peak, or in use if the peak is empty, or
/// allocated if nothing is in use either.
fn find_unnamed_code(profile: &Profile, one: &WrittenProfile) -> Option<UnnamedCode> {
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
                fate: FileFate::find_for(&file, &build_id, one),
                file,
                build_id,
            })
        })
}

/// Adds up the sampling data of a profile's samples.
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

/// Removes the profiles. Returns how many were removed.
pub(crate) fn remove(entries: &[&WrittenProfile]) -> usize {
    let remove = |_: &mut ProcessNamer, one: &WrittenProfile| {
        open(one).is_ok_and(|(place, _)| place.remove().is_ok())
    };
    let removed = each(entries, &OpenExecutables::default(), remove, |_| false);
    removed.into_iter().filter(|&gone| gone).count()
}

/// Makes a profile the newest one in its folder. Commands read the newest profile if the user names
/// none.
pub(crate) fn touch(one: &WrittenProfile) {
    let touch = |_: &mut ProcessNamer, one: &WrittenProfile| {
        open(one).and_then(|(_, opened)| opened.file.set_modified(SystemTime::now()))
    };
    each(&[one], &OpenExecutables::default(), touch, Err);
}

/// Renames the folder of the children's profiles. Returns whether the folder has the name `to` now.
pub(crate) fn rename_folder(from: &Path, to: &Path) -> bool {
    let (Ok(from), Ok(to)) = (
        FilePlace::resolve(from, PathTrust::OwnLinks),
        FilePlace::resolve(to, PathTrust::OwnLinks),
    ) else {
        return false;
    };
    let from = (from.folder(), from.name());
    heapprof_files::rename_folder(from, (to.folder(), to.name())).is_ok()
}

/// Removes the folder of the children's profiles if it is empty.
pub(crate) fn remove_folder(path: &Path) {
    if let Ok(place) = FilePlace::resolve(path, PathTrust::OwnLinks) {
        let _ = rustix::fs::unlinkat(place.folder(), place.name(), rustix::fs::AtFlags::REMOVEDIR);
    }
}
