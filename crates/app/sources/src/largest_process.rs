//! Finds the process of a recording that is most worth reading: a recorded shell or launcher holds
//! next to nothing itself.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use heapprof_profile::{PEAK, ReadOptions, decode_with};
use heapprof_text::file_name as name;

use crate::default_profile::open;

/// Maximum number of children's profiles that are read.
const MAX_CHILDREN: usize = 100;
/// Maximum length of a profile that is read, in bytes. All together may have ten times as much.
const MAX_PROFILE_BYTES: u64 = 16 << 20;
const MAX_TOTAL_BYTES: u64 = 10 * MAX_PROFILE_BYTES;
/// The ending of profiles' names, and that of the folder with the profiles of children.
const PROFILE_SUFFIX: &str = ".pb.gz";
const CHILDREN_SUFFIX: &str = ".children";

/// A child with more memory than the process that was recorded first.
pub(crate) struct LargestProcess {
    pub(crate) path: String,
    /// The number of processes that were compared.
    pub(crate) processes: usize,
}

/// Returns the child with the largest peak, if it is more than twice that of the process whose
/// profile is `main`, as after `record`. Files that can't be read are left out.
pub(crate) fn find(main: &str) -> Option<LargestProcess> {
    let folder = main.strip_suffix(PROFILE_SUFFIX)?.to_string() + CHILDREN_SUFFIX;
    let folder = name::path(&folder);
    let is_folder = std::fs::symlink_metadata(&folder).is_ok_and(|found| found.is_dir());
    let entries = std::fs::read_dir(&folder).ok().filter(|_| is_folder)?;
    let user = rustix::process::geteuid().as_raw();
    let mut children: Vec<(u64, PathBuf)> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let found = entry.metadata().ok()?;
            let name = name::encode_name(&entry.file_name());
            let is_profile = !name.starts_with('.') && name.ends_with(PROFILE_SUFFIX);
            let is_read = is_profile && found.is_file() && found.uid() == user;
            (is_read && found.len() <= MAX_PROFILE_BYTES).then(|| (found.len(), entry.path()))
        })
        .collect();
    // Much memory has many stacks.
    children.sort_unstable_by(|a, b| b.cmp(a));
    children.truncate(MAX_CHILDREN);
    let mut left = MAX_TOTAL_BYTES;
    children.retain(|(len, _)| {
        let rest = left.checked_sub(*len);
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let own = peak(&name::path(main))?;
    let peaks = children.iter();
    let peaks: Vec<(i128, &PathBuf)> = peaks
        .filter_map(|(_, path)| Some((peak(path)?, path)))
        .collect();
    let &(most, path) = peaks.iter().max()?;
    (most / 2 > own).then(|| LargestProcess {
        path: name::encode_name(path.as_os_str()),
        processes: peaks.len() + 1,
    })
}

/// Returns the peak of a process in bytes; `None` if its profile can't be read, or has none.
fn peak(path: &Path) -> Option<i128> {
    let file = open(path).ok()?.take(MAX_PROFILE_BYTES);
    let options = ReadOptions::default().max_inflated(MAX_TOTAL_BYTES);
    let profile = decode_with(file, options).ok()?;
    let column = profile.find_sample_type(PEAK).ok()?;
    Some(profile.samples.total(column))
}

#[cfg(test)]
mod tests {
    use heapprof_profile::{ProfileBuilder, encode};

    use super::*;

    /// Writes a profile with this peak.
    fn write(path: &Path, bytes: i64) {
        let mut builder = ProfileBuilder::new(&[(PEAK, "bytes")]);
        builder.add_folded("main;work", &[bytes]);
        let file = std::fs::File::create(path).unwrap();
        encode(&builder.finish(), file).unwrap();
    }

    #[test]
    fn a_child_is_larger_if_it_has_more_than_twice_the_peak() {
        for (child, expected) in [(190, false), (200, false), (210, true)] {
            let folder = tempfile::tempdir().unwrap();
            let main = folder.path().join("heapprof.sh.1.pb.gz");
            let children = folder.path().join("heapprof.sh.1.children");
            std::fs::create_dir(&children).unwrap();
            write(&main, 100);
            write(&children.join("server.2.pb.gz"), child);
            write(&children.join("small.3.pb.gz"), 1);
            // These are not read: a hidden file, a link, a broken file.
            write(&children.join(".4.pb.gz"), 900);
            let elsewhere = folder.path().join("other.pb.gz");
            write(&elsewhere, 900);
            std::os::unix::fs::symlink(&elsewhere, children.join("link.5.pb.gz")).unwrap();
            std::fs::write(children.join("broken.6.pb.gz"), "no profile").unwrap();
            let found = find(main.to_str().unwrap());
            assert_eq!(found.is_some(), expected, "{child}");
            if let Some(found) = found {
                assert!(found.path.ends_with("server.2.pb.gz"), "{}", found.path);
                assert_eq!(found.processes, 3);
            }
        }
    }

    #[test]
    fn a_folder_of_another_name_has_no_children() {
        let folder = tempfile::tempdir().unwrap();
        let main = folder.path().join("heapprof.sh.1.pb.gz");
        write(&main, 100);
        assert!(find(main.to_str().unwrap()).is_none());
        assert!(find("no profile").is_none());
    }
}
