//! Names of the places that instructions refer to: functions, variables, and functions of other
//! files, which are reached through stubs (`malloc@plt`) and tables that the dynamic loader fills.

use std::collections::{BTreeMap, BTreeSet};

use heapprof_symbolize::code::{CodeFile, CodeProcessor, LoadedAddress};

use crate::reference::{CodeReference, TargetNames};
use crate::{aarch64, x86};

/// Largest number of bytes up to the end of the jump in a stub.
const MAX_STUB_BYTES: u64 = 16;

/// Finds names for references. `is_own` tells whether an address is in the code that is
/// listed; such addresses are easier to find than names.
pub(crate) fn find_names(
    file: &CodeFile<'_>,
    references: impl Iterator<Item = CodeReference>,
    is_own: impl Fn(u64) -> bool,
) -> TargetNames {
    let (mut branches, mut places) = (BTreeSet::new(), BTreeSet::new());
    for reference in references {
        let address = reference.address();
        match reference {
            _ if is_own(address) => continue,
            CodeReference::Branch(_) => branches.insert(address),
            CodeReference::Memory(_) => places.insert(address),
        };
    }
    let all: Vec<u64> = branches.union(&places).copied().collect();
    let mut names = file.names_at(&all);
    let unnamed = branches
        .iter()
        .filter(|address| !names.contains_key(address));
    let stubs: BTreeMap<u64, u64> = unnamed
        .filter_map(|&address| Some((address, stub_slot(file, address)?)))
        .collect();
    places.extend(stubs.values());
    let slots: Vec<u64> = places.iter().copied().collect();
    let loaded = file.loaded_at(&slots);
    let inner: BTreeSet<u64> = loaded.values().filter_map(inner_address).collect();
    let inner = file.names_at(&inner.into_iter().collect::<Vec<u64>>());
    let loaded_name = |slot: &u64| match loaded.get(slot)? {
        LoadedAddress::Symbol(name) | LoadedAddress::ThreadOffset(name) => Some(name),
        LoadedAddress::Address(address) => inner.get(address),
    };
    // The slot has the address of what is named, and GNU's assembler writes so for x86-64. A
    // variable that the loader fills has a name of its own.
    if file.processor() == CodeProcessor::X86_64 {
        for slot in &places {
            let addition = match loaded.get(slot) {
                Some(LoadedAddress::ThreadOffset(_)) => "GOTTPOFF",
                _ => "GOTPCREL",
            };
            if let Some(name) = loaded_name(slot) {
                let name = || format!("{name}@{addition}");
                names.entry(*slot).or_insert_with(name);
            }
        }
    }
    for (stub, slot) in &stubs {
        if let Some(name) = loaded_name(slot) {
            names.insert(*stub, format!("{name}@plt"));
        }
    }
    TargetNames::new(names)
}

fn inner_address(loaded: &LoadedAddress) -> Option<u64> {
    match loaded {
        LoadedAddress::Symbol(_) | LoadedAddress::ThreadOffset(_) => None,
        LoadedAddress::Address(address) => Some(*address),
    }
}

fn stub_slot(file: &CodeFile<'_>, address: u64) -> Option<u64> {
    let code = file.code(address, address.saturating_add(MAX_STUB_BYTES));
    match file.processor() {
        CodeProcessor::X86 => x86::stub_slot(code, address, 32),
        CodeProcessor::X86_64 => x86::stub_slot(code, address, 64),
        CodeProcessor::Aarch64 => aarch64::stub_slot(code, address),
    }
}
