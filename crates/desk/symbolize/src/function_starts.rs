//! Finds the starts of functions in code without symbols. The starts are in the unwind tables,
//! which such code has, too.

use std::collections::HashMap;

use gimli::{BaseAddresses, CieOrFde, EhFrame, EndianSlice, RunTimeEndian, UnwindSection};
use object::{Object, ObjectSection};

use crate::elf::ElfBinary;
use crate::storage::FileStorage;

/// The functions of one file, sorted by address.
pub(crate) struct FunctionStarts {
    /// The start and end of each function.
    functions: Vec<(u64, u64)>,
}

impl FunctionStarts {
    /// Reads `.eh_frame`, up to the first damaged entry.
    pub(crate) fn new<'a>(elf: &ElfBinary<'a>, storage: &'a FileStorage) -> Self {
        let section = elf.section(".eh_frame", storage).unwrap_or_default();
        let address_of = |name| elf.object.section_by_name(name).map(|s| s.address());
        let mut bases = BaseAddresses::default();
        if let Some(address) = address_of(".eh_frame") {
            bases = bases.set_eh_frame(address);
        }
        if let Some(address) = address_of(".text") {
            bases = bases.set_text(address);
        }
        if let Some(address) = address_of(".got") {
            bases = bases.set_got(address);
        }
        let endian = match elf.object.is_little_endian() {
            true => RunTimeEndian::Little,
            false => RunTimeEndian::Big,
        };
        let mut table = EhFrame::from(EndianSlice::new(section, endian));
        table.set_address_size(if elf.object.is_64() { 8 } else { 4 });
        let (mut functions, mut shared) = (Vec::new(), HashMap::new());
        let mut entries = table.entries(&bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(entry) = entry else {
                continue;
            };
            // Many functions share an entry of common information (CIE), which may be long.
            let parsed = entry.parse(|table, bases, at| {
                if let Some(known) = shared.get(&at.0) {
                    return Ok(Clone::clone(known));
                }
                let found = table.cie_from_offset(bases, at)?;
                shared.insert(at.0, found.clone());
                Ok(found)
            });
            if let Ok(function) = parsed
                && function.len() > 0
            {
                let start = function.initial_address();
                functions.push((start, start.saturating_add(function.len())));
            }
        }
        functions.sort_unstable();
        Self { functions }
    }

    /// Returns the start of the function that contains `address`.
    pub(crate) fn find(&self, address: u64) -> Option<u64> {
        Some(self.range(address)?.0)
    }

    /// Returns the start and the end of the function that contains `address`.
    pub(crate) fn range(&self, address: u64) -> Option<(u64, u64)> {
        let after = self
            .functions
            .partition_point(|&(start, _)| start <= address);
        let &(start, end) = self.functions.get(after.checked_sub(1)?)?;
        (address < end).then_some((start, end))
    }
}
