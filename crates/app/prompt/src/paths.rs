//! Completes the paths of files.

use std::fs;
use std::path::Path;

/// Returns the paths that begin with `word`, sorted. A folder ends with a slash.
pub(crate) fn paths_with(word: &str) -> Vec<String> {
    let (folder, start) = match word.rfind('/') {
        Some(at) => word.split_at(at + 1),
        None => ("", word),
    };
    let opened = if folder.is_empty() { "." } else { folder };
    let Ok(entries) = fs::read_dir(Path::new(opened)) else {
        return Vec::new();
    };
    let names = entries.flatten().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_wanted = name.starts_with(start) && (!name.starts_with('.') || !start.is_empty());
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let slash = if is_folder { "/" } else { "" };
        is_wanted.then(|| format!("{folder}{name}{slash}"))
    });
    let mut names: Vec<String> = names.collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_folder() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("before")).unwrap();
        fs::File::create(folder.path().join("before.pb.gz")).unwrap();
        fs::File::create(folder.path().join(".hidden")).unwrap();
        let base = format!("{}/", folder.path().display());
        let with = |names: [&str; 2]| names.map(|name| format!("{base}{name}"));
        assert_eq!(paths_with(&base), with(["before.pb.gz", "before/"]));
        assert_eq!(paths_with(&format!("{base}.")), [format!("{base}.hidden")]);
        assert!(paths_with(&format!("{base}x")).is_empty());
    }
}
