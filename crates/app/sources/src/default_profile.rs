//! Finds the default profile of a command: the newest recording in the current folder.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use heapprof_profile::InflateReader;
use heapprof_text::file_name as name;

/// Maximum number of files that are searched for the collector's comment.
const MAX_FILES: usize = 100;
/// Maximum number of inflated bytes that are read of a file.
const MAX_FILE_BYTES: u64 = 256 << 20;
/// Maximum number of inflated bytes that are read of all files together.
const MAX_TOTAL_BYTES: u64 = 1 << 30;
/// The beginning of the collector's comment.
const COLLECTOR_COMMENT_PREFIX: &[u8] = b"collector: heapprof ";

/// The tag byte of a sample type in an encoded profile.
const SAMPLE_TYPE_TAG: u8 = 1 << 3 | 2;
/// The tag byte of a text of the string table in an encoded profile. The byte after it is the
/// text's length.
const STRING_TABLE_TAG: u8 = 6 << 3 | 2;

/// Whether a short text of the string table, such as the collector's comment, follows the two bytes
/// `before`.
fn is_text(before: &[u8]) -> bool {
    before[0] == STRING_TABLE_TAG
        && (COLLECTOR_COMMENT_PREFIX.len()..128).contains(&usize::from(before[1]))
}

/// Returns the path of the newest recording in the current folder. A recording is any file that the
/// collector wrote and that this user owns, whatever its name is.
pub(crate) fn newest() -> Result<String> {
    let entries = std::fs::read_dir(".").context("the current folder cannot be read")?;
    let user = rustix::process::geteuid().as_raw();
    let mut found: Vec<(SystemTime, String)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            // A link is not followed, because it may lead out of this folder.
            let metadata = entry
                .metadata()
                .ok()
                .filter(|m| m.is_file() && m.uid() == user)?;
            let name = name::encode_name(&entry.file_name());
            // A profile that is being written has a hidden name.
            let is_hidden = name.starts_with('.');
            (!is_hidden).then_some((metadata.modified().ok()?, name))
        })
        .collect();
    // Among equally old files the last name comes first, so that the result does not depend on the
    // order in the folder.
    found.sort_unstable_by(|a, b| b.cmp(a));
    let mut left = MAX_TOTAL_BYTES;
    let mut looked_into = 0;
    for (_, name) in found.iter().filter(|(_, name)| is_gzip(&name::path(name))) {
        // Files with heapprof's own kind of name need not be searched.
        let has_our_name = name.starts_with("heapprof.") && name.ends_with(".pb.gz");
        if !has_our_name {
            looked_into += 1;
        }
        if has_our_name
            || looked_into <= MAX_FILES && is_ours(&name::path(name), &mut left).unwrap_or(false)
        {
            // This name would mean standard input.
            return Ok(if name == "-" {
                "./-".to_string()
            } else {
                name.clone()
            });
        }
    }
    bail!("no PROFILE is given, and there is no heapprof recording in this folder; give a file")
}

/// Opens a file to read it, unless it is a link.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let flags = flags | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?.into())
}

fn is_gzip(path: &Path) -> bool {
    let mut magic = [0; 2];
    let read = open(path).and_then(|mut file| file.read_exact(&mut magic));
    read.is_ok() && magic == [0x1f, 0x8b]
}

/// Whether a gzipped file is a profile with the collector's comment. The texts are at the end of a
/// profile, so much of it has to be inflated.
fn is_ours(path: &Path, left: &mut u64) -> io::Result<bool> {
    let file = open(path)?;
    let far = MAX_FILE_BYTES.min(*left);
    let mut reader = InflateReader::new(file)
        .map_err(io::Error::other)?
        .take(far);
    let mut buffer = vec![0; 256 << 10];
    let (mut kept, mut is_first) = (0, true);
    loop {
        let read = reader.read(&mut buffer[kept..])?;
        if read == 0 {
            return Ok(false);
        }
        *left = left.saturating_sub(read as u64);
        let held = kept + read;
        // A profile begins with its sample types or its texts; an archive that holds one does not.
        if std::mem::take(&mut is_first)
            && ![SAMPLE_TYPE_TAG, STRING_TABLE_TAG].contains(&buffer[0])
        {
            return Ok(false);
        }
        if memchr::memmem::find_iter(&buffer[..held], COLLECTOR_COMMENT_PREFIX)
            .any(|at| at >= 2 && is_text(&buffer[at - 2..at]))
        {
            return Ok(true);
        }
        // The comment may go on in the next bytes.
        kept = held.min(COLLECTOR_COMMENT_PREFIX.len() + 1);
        buffer.copy_within(held - kept..held, 0);
    }
}
