//! Converts mappings of code to the form for profiles.

use heapprof_profile::recording::{RecordedCode, RecordedMapping};

use crate::code::mappings::CodeMapping;

/// Converts the known mappings of code to the form for profiles.
pub(super) fn to_recorded(known: &[CodeMapping]) -> RecordedCode<'_> {
    let mappings = known.iter().map(|mapping| RecordedMapping {
        start: mapping.start as u64,
        end: mapping.end as u64,
        offset: mapping.offset,
        path: (&*mapping.path).into(),
        is_deleted: mapping.deleted,
        build_id: mapping.image.build_id().into(),
        last: mapping.last,
    });
    RecordedCode {
        mappings: mappings.collect(),
    }
}
