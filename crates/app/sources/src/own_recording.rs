//! Tells which profiles get names when they are read: recordings of heapprof that have none.

use heapprof_profile::{Location, Profile};

/// Whether heapprof has recorded a profile that has code without names, all of it in files with
/// build ids. A file gives names only if its build id is the recorded one.
pub(crate) fn is_own_recording(profile: &Profile) -> bool {
    let mut comments = profile.comment.iter().map(|&text| profile.text(text));
    if !comments.any(|text| text.starts_with("collector: heapprof ")) {
        return false;
    }
    let unnamed = profile
        .location
        .iter()
        .filter(|location| profile.lines(location).is_empty() && location.address != 0);
    let mut unnamed = unnamed.peekable();
    let has_build_id = |location: &Location| {
        let mapping = location
            .mapping
            .map(|mapping| &profile.mapping[mapping.index()]);
        mapping.is_some_and(|mapping| !profile.text(mapping.build_id).is_empty())
    };
    unnamed.peek().is_some() && unnamed.all(has_build_id)
}
