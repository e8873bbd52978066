//! Prepares a copy of the library that musl loads into a running program.
//!
//! musl's loader refuses a library with initial-exec thread-local storage then: the blocks of the
//! running threads have no room for it. (glibc keeps some.) The library lists the instructions that
//! use this storage, with other code for each (`thread_slot.rs` of heapprof-platform). In the copy,
//! these instructions are jumps to the other code, and the relocations that musl would refuse are
//! gone. The words that they would have filled stay zero, by which the library knows.

use std::ops::Range;

use object::elf::{FileHeader64, PT_LOAD, R_X86_64_NONE, R_X86_64_TPOFF64, SHF_ALLOC, SHT_RELA};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{LittleEndian, U32};

/// Name of the section that lists the instructions: for each, its distance and that of the other
/// code from the word that holds the distance.
const SITES_SECTION: &[u8] = b"heapprof_slot_sites";
/// Number of bytes of a jump.
const JUMP_LEN: usize = 5;

type Header = FileHeader64<LittleEndian>;

/// Returns the prepared copy; `None` if the library has no list of instructions, or a wrong one.
pub(crate) fn prepare(library: &[u8]) -> Option<Vec<u8>> {
    let header = Header::parse(library).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, library).ok()?;
    let sections = header.sections(endian, library).ok()?;
    let mut copy = library.to_vec();

    let (_, sites) = sections.section_by_name(endian, SITES_SECTION)?;
    let begin = sites.sh_addr(endian);
    let words = sites.data_as_array::<U32<LittleEndian>, _>(endian, library);
    let words = words.ok()?.iter().zip(0u64..);
    let addresses = words.map(|(word, i)| {
        let distance = word.get(endian) as i32;
        begin
            .wrapping_add(4 * i)
            .wrapping_add_signed(distance.into())
    });
    let addresses: Vec<u64> = addresses.collect();
    let file_range = |address: u64, len: usize| -> Option<Range<usize>> {
        let mut all = segments.iter();
        all.find_map(|segment| {
            let inside = address.checked_sub(segment.p_vaddr(endian))?;
            let is_there = segment.p_type(endian) == PT_LOAD
                && inside.checked_add(len as u64)? <= segment.p_filesz(endian);
            let at = usize::try_from(segment.p_offset(endian).checked_add(inside)?).ok()?;
            Some(at..at.checked_add(len)?).filter(|_| is_there)
        })
    };
    let (sites, []) = addresses.as_chunks::<2>() else {
        return None;
    };
    for site in sites {
        let [from, to] = *site;
        let distance = to.wrapping_sub(from.wrapping_add(JUMP_LEN as u64)) as i64;
        let distance = i32::try_from(distance).ok()?;
        let place = copy.get_mut(file_range(from, JUMP_LEN)?)?;
        place[0] = 0xe9;
        place[1..].copy_from_slice(&distance.to_le_bytes());
    }

    let mut words = Vec::new();
    for section in sections.iter() {
        let is_loaded = section.sh_flags(endian).contains(SHF_ALLOC);
        if section.sh_type(endian) != SHT_RELA || !is_loaded {
            continue;
        }
        let (offset, len) = section.file_range(endian)?;
        let end = offset.checked_add(len)?;
        let range = usize::try_from(offset).ok()?..usize::try_from(end).ok()?;
        for entry in copy.get_mut(range)?.as_chunks_mut::<24>().0 {
            // The type of a relocation is in the lower half of its second word.
            let kind = &mut entry[8..12];
            if kind == R_X86_64_TPOFF64.0.to_le_bytes() {
                kind.copy_from_slice(&R_X86_64_NONE.0.to_le_bytes());
                words.push(u64::from_le_bytes(std::array::from_fn(|i| entry[i])));
            }
        }
    }
    for word in words {
        copy.get_mut(file_range(word, size_of::<u64>())?)?.fill(0);
    }
    (!addresses.is_empty()).then_some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tests of the collector load a prepared copy. These files are no such library.
    #[test]
    fn other_files_are_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(prepare(&own).is_none());
        for len in [0, 4, 63, 64, 1000, own.len() / 2] {
            assert!(prepare(&own[..len]).is_none(), "{len}");
        }
    }
}
