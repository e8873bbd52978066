//! Granularity: removes details from frames, so that different frames become equal.

use heapprof_profile::{Profile, StringId};

/// Selection of the details of a frame that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameDetail {
    /// Whether inlined functions are kept. Otherwise only the function that contains their code
    /// stays.
    pub inlines: bool,
    /// Whether function names are kept.
    pub function: bool,
    /// Whether file names are kept.
    pub filename: bool,
    /// Whether line numbers are kept.
    pub line: bool,
    /// Whether columns are kept.
    pub column: bool,
    /// Whether addresses are kept.
    pub address: bool,
}

/// Removes all details from the profile's frames except those in `detail`. Locations stay separate,
/// even if they become equal.
pub fn aggregate(profile: &mut Profile, detail: FrameDetail) {
    for mapping in &mut profile.mapping {
        mapping.has_inline_frames &= detail.inlines;
        mapping.has_functions &= detail.function;
        mapping.has_filenames &= detail.filename;
        mapping.has_line_numbers &= detail.line;
    }
    for function in &mut profile.function {
        if !detail.function {
            (function.name, function.system_name) = (StringId::EMPTY, StringId::EMPTY);
        }
        if !detail.filename {
            function.filename = StringId::EMPTY;
        }
    }
    for location in &mut profile.location {
        if !detail.inlines && location.line.len() > 1 {
            location.line.start = location.line.end - 1;
        }
        if !detail.address {
            location.address = 0;
        }
    }
    // This also changes lines that no location uses any more, which has no effect.
    for line in &mut profile.line {
        if !detail.line {
            line.line = 0;
        }
        if !detail.line || !detail.column {
            line.column = 0;
        }
    }
}
