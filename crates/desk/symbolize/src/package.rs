//! Finds the Debian or Ubuntu package of a file, and the package with its debug information.

use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::path::Path;

/// Folder in which dpkg keeps a list of files for each package.
const LISTS_FOLDER: &str = "var/lib/dpkg/info";
/// Maximum number of bytes that are read from a list. Real lists are shorter. The limit is for
/// lists below another root, which any user may have written.
const MAX_LIST_BYTES: u64 = 64 << 20;

/// Returns the name of the package with the debug information of an installed file, e.g.
/// `libsqlite3-0-dbgsym`. `None` if no dpkg package contains the file.
pub fn debug_package(path: &Path) -> Option<String> {
    below(Path::new("/"), path)
}

fn below(root: &Path, path: &Path) -> Option<String> {
    let path = path.to_str()?;
    // A package may still list a file under /lib, which is now a link to /usr/lib.
    let other = match path.strip_prefix("/usr") {
        Some(short) => short.to_string(),
        None => format!("/usr{path}"),
    };
    let lists = fs::read_dir(root.join(LISTS_FOLDER)).ok()?;
    let lists = lists.filter_map(|list| Some(list.ok()?.path()));
    let owner = lists
        .filter(|list| list.extension() == Some(OsStr::new("list")))
        .find(|list| names(list, [path, &other]))?;
    // An example of a list's name is `libc6:amd64.list`.
    let package = owner.file_stem()?.to_str()?;
    let package = package.split(':').next()?;
    Some(match package {
        "libc6" => "libc6-dbg".to_string(),
        package => format!("{package}-dbgsym"),
    })
}

/// Whether any line of a list is one of `paths`.
fn names(list: &Path, paths: [&str; 2]) -> bool {
    let mut text = Vec::new();
    let read =
        fs::File::open(list).and_then(|file| file.take(MAX_LIST_BYTES).read_to_end(&mut text));
    let mut lines = text.split(|&b| b == b'\n');
    read.is_ok() && lines.any(|line| paths.iter().any(|path| line == path.as_bytes()))
}

#[cfg(test)]
#[allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_found_by_either_of_its_folders() {
        let root = tempfile::tempdir().unwrap();
        let lists = root.path().join(LISTS_FOLDER);
        fs::create_dir_all(&lists).unwrap();
        fs::write(lists.join("libz1:amd64.list"), "/.\n/lib/x/libz.so.1\n").unwrap();
        fs::write(lists.join("tool.list"), "/usr/bin/tool\n").unwrap();
        fs::write(lists.join("libc6:amd64.list"), "/lib/x/libc.so.6\n").unwrap();
        fs::write(lists.join("tool.md5sums"), "/usr/bin/other\n").unwrap();
        let table = [
            ("/usr/lib/x/libz.so.1", Some("libz1-dbgsym")),
            ("/lib/x/libz.so.1", Some("libz1-dbgsym")),
            ("/usr/bin/tool", Some("tool-dbgsym")),
            ("/lib/x/libc.so.6", Some("libc6-dbg")),
            ("/usr/bin/other", None),
            ("/usr/bin/too", None),
        ];
        for (path, package) in table {
            assert_eq!(
                below(root.path(), Path::new(path)).as_deref(),
                package,
                "{path}"
            );
        }
    }
}
