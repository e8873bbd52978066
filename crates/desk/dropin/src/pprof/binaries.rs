//! The files of mappings: finding them on this machine, and using the binary that the command line
//! names.

use std::env;
use std::path::{Path, PathBuf};

use heapprof_profile::{Mapping, MappingIndex, Profile, StringId};
use heapprof_symbolize::program::object_file;

use super::config::PprofConfig;
use crate::host::DropinHost;

/// Sets the file names of mappings to the files found on this machine. The first mapping gets the
/// binary that the command line names. A profile without mappings gets one for all locations.
pub(super) fn locate(profile: &mut Profile, config: &PprofConfig<'_>) {
    let folders = search_path();
    for m in 0..profile.mapping.len() {
        if let Some(found) = find_binary(config.host, profile, &profile.mapping[m], &folders) {
            profile.mapping[m].filename = profile.strings.intern(&found.to_string_lossy());
        }
    }
    if profile.mapping.is_empty() {
        profile.mapping.push(Mapping {
            id: 1,
            ..Mapping::default()
        });
        for location in &mut profile.location {
            location.mapping = Some(MappingIndex(0));
        }
    }
    if let Some(binary) = &config.binary {
        profile.mapping[0].filename = profile.strings.intern(binary);
    }
    if profile.mapping[0].build_id.is_empty() {
        profile.mapping[0].build_id = profile.strings.intern(config.flags.text("buildid"));
    }
}

/// Returns the folders of PPROF_BINARY_PATH, or `~/pprof/binaries` if it is not set.
pub(super) fn search_path() -> Vec<PathBuf> {
    match env::var_os("PPROF_BINARY_PATH").filter(|path| !path.is_empty()) {
        Some(path) => env::split_paths(&path).collect(),
        None => {
            let home = env::var_os("HOME").unwrap_or_default();
            vec![Path::new(&home).join("pprof").join("binaries")]
        }
    }
    .into_iter()
    .filter(|folder| folder.is_dir())
    .collect()
}

/// Finds a mapping's file in one of the folders, which have the layout for debuggers or symbol
/// servers.
fn find_binary(
    host: &dyn DropinHost,
    profile: &Profile,
    mapping: &Mapping,
    folders: &[PathBuf],
) -> Option<PathBuf> {
    let (file, id) = (
        profile.text(mapping.filename),
        profile.text(mapping.build_id),
    );
    let relative = file.trim_start_matches('/');
    let path = Path::new(relative);
    let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    let folder = path.parent().unwrap_or(Path::new(""));
    for root in folders {
        let mut files = Vec::new();
        if !id.is_empty() {
            files.push(root.join(id).join(&name));
            let entries = std::fs::read_dir(root.join(id)).into_iter().flatten();
            let mut entries: Vec<PathBuf> = entries.flatten().map(|e| e.path()).collect();
            entries.sort();
            files.extend(entries);
            files.push(root.join(relative).join(id));
            if let (Some(start), Some(rest)) = (id.get(..2), id.get(2..)) {
                files.push(root.join(start).join(format!("{rest}.debug")));
            }
        }
        if !file.is_empty() {
            files.push(root.join(&name));
            files.push(root.join(relative));
            files.push(root.join(format!("{relative}.debug")));
            let debug = format!("{name}.debug");
            files.push(root.join(folder).join(".debug").join(&debug));
            files.push(root.join("usr/lib/debug").join(folder).join(&debug));
        }
        for file in files {
            let Some(object) = object_file(&file) else {
                continue;
            };
            match object.build_id {
                Some(other) if !id.is_empty() && other != id => host.note(&format!(
                    "Ignoring local file {}: build-id mismatch ({id} != {other})",
                    file.display()
                )),
                _ => return Some(file),
            }
        }
    }
    None
}

/// Names mappings that have no file and no build id by the URL of the profile, so that profiles of
/// different servers do not share mappings.
pub(super) fn name_by_url(profile: &mut Profile, url: &str) {
    let url = profile.strings.intern(url);
    for mapping in &mut profile.mapping {
        if mapping.filename.is_empty() && mapping.build_id.is_empty() {
            mapping.filename = url;
        }
    }
}

/// Removes the URLs that stand in for mappings' file names.
pub(super) fn remove_urls(profile: &mut Profile) {
    for m in 0..profile.mapping.len() {
        let mapping = profile.mapping[m];
        if mapping.build_id.is_empty() && has_scheme(profile.text(mapping.filename)) {
            profile.mapping[m].filename = StringId::EMPTY;
        }
    }
}

/// Whether a text begins like an absolute URL.
fn has_scheme(text: &str) -> bool {
    let Some((scheme, _)) = text.split_once(':') else {
        return false;
    };
    scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
        && !text.contains(|c: char| c.is_ascii_control())
}
