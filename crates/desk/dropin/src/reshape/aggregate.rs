//! Granularity: what a frame forgets, so that frames become the same.

use heapprof_profile::{Profile, StringId};

/// What frames keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameDetail {
    /// Inlined functions. Without them, only the function that they were inlined into is kept.
    pub inlines: bool,
    /// Function names.
    pub function: bool,
    /// File names.
    pub filename: bool,
    /// Line numbers.
    pub line: bool,
    /// Columns.
    pub column: bool,
    /// Addresses.
    pub address: bool,
}

/// Takes from the profile what `detail` does not keep. Locations stay separate, and only what they
/// tell changes.
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
    // This also changes lines that no location has any more, which nobody sees.
    for line in &mut profile.line {
        if !detail.line {
            line.line = 0;
        }
        if !detail.line || !detail.column {
            line.column = 0;
        }
    }
}
