//! What the lines of a location are called where only names are written.

use heapprof_profile::{Location, Profile};

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// The name of a place without symbols: `0x401000 [app]`, as heapprof's reports show it.
pub(super) fn address_name(profile: &Profile, location: &Location) -> String {
    let file = location
        .mapping
        .map(|m| profile.text(profile.mapping[m.index()].filename));
    match (
        location.address,
        file.map(base_name).filter(|file| !file.is_empty()),
    ) {
        (0, None) => "<unknown>".to_string(),
        (0, Some(file)) => format!("[{file}]"),
        (address, None) => format!("{address:#x}"),
        (address, Some(file)) => format!("{address:#x} [{file}]"),
    }
}
