//! Code that is or was mapped in a recorded process, and the search for the mapping that contains
//! an address.

use std::borrow::Cow;

use heapprof_abi::MappingGeneration;

use crate::{Mapping, MappingIndex, ProfileBuilder, recording_texts};

/// A file's code, which is mapped now or was mapped earlier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedMapping<'a> {
    /// First address of the code.
    pub start: u64,
    /// Address after the code.
    pub end: u64,
    /// Offset of the first address in the file.
    pub offset: u64,
    /// Path of the file.
    pub path: Cow<'a, [u8]>,
    /// Whether the path now leads to another file, or to none.
    pub is_deleted: bool,
    /// Build ID of the file; empty if it has none.
    pub build_id: Cow<'a, [u8]>,
    /// Last generation of mappings in which the code was mapped.
    pub last: MappingGeneration,
}

impl RecordedMapping<'_> {
    /// The value of [`last`](Self::last) for code that is mapped now.
    pub const STILL_MAPPED: MappingGeneration = MappingGeneration::from_u32(u32::MAX);

    /// Returns the name of the file, as the profile shows it.
    pub fn file_name(&self) -> String {
        recording_texts::mapped_file(&self.path, self.is_deleted, &self.build_id)
    }

    fn contains(&self, address: u64) -> bool {
        self.start <= address && address < self.end
    }
}

/// The mappings of code that a recording knows, in the order in which they were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordedCode<'a> {
    /// The mappings.
    pub mappings: Vec<RecordedMapping<'a>>,
}

impl RecordedCode<'_> {
    /// Returns the index of the mapping that contained `address` in `generation`.
    ///
    /// Among the mappings at that address, this is the first one that was still mapped in
    /// `generation`, because code that replaced other code belongs to a later generation. If none
    /// was still mapped, this is the last mapping at that address.
    pub fn find(&self, address: u64, generation: MappingGeneration) -> Option<usize> {
        let then = self
            .mappings
            .iter()
            .position(|mapping| mapping.contains(address) && generation <= mapping.last);
        then.or_else(|| self.mappings.iter().rposition(|m| m.contains(address)))
    }

    /// Adds the mappings to a profile. Returns the profile's index of each mapping, in order.
    pub(super) fn add_to(&self, builder: &mut ProfileBuilder) -> Vec<MappingIndex> {
        let add = |mapping: &RecordedMapping<'_>| {
            let filename = builder.text(&mapping.file_name());
            let build_id = builder.text(&recording_texts::hex(&mapping.build_id));
            builder.mapping(Mapping {
                memory_start: mapping.start,
                memory_limit: mapping.end,
                file_offset: mapping.offset,
                filename,
                build_id,
                ..Mapping::default()
            })
        };
        self.mappings.iter().map(add).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generation(number: u32) -> MappingGeneration {
        MappingGeneration::from_u32(number)
    }

    #[test]
    fn an_address_belongs_to_the_code_of_its_generation() {
        let mapping = |start, end, last| RecordedMapping {
            start,
            end,
            last,
            ..RecordedMapping::default()
        };
        let code = RecordedCode {
            mappings: vec![
                mapping(0x1000, 0x2000, generation(2)),
                mapping(0x1800, 0x3000, generation(5)),
                mapping(0x8000, 0x9000, RecordedMapping::STILL_MAPPED),
            ],
        };
        for (address, at, expected) in [
            (0x1000, 0, Some(0)),
            (0x1900, 2, Some(0)),
            (0x1900, 3, Some(1)),
            // No code was known to be there any more, so the last one is the best answer.
            (0x1900, 6, Some(1)),
            (0x1100, 6, Some(0)),
            (0x2000, 0, Some(1)),
            (0x3000, 0, None),
            (0x8fff, 9, Some(2)),
        ] {
            assert_eq!(
                code.find(address, generation(at)),
                expected,
                "{address:x} in {at}"
            );
        }
    }
}
