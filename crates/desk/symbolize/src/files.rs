//! Finds the binary of a mapping, and its debug file. Files that do not match are refused.

use std::path::Path;

use object::Object;

use crate::elf::{ElfBinary, hex};
use crate::places::CandidatePaths;
use crate::storage::FileStorage;
use crate::summary::SymbolizeWarning;

/// A mapped file as the profile describes it.
pub(crate) struct WantedBinary<'w> {
    /// The path of the file on the profiled machine.
    pub(crate) path: &'w Path,
    /// The build id of the file, if the profile has one.
    pub(crate) build_id: Option<Vec<u8>>,
    /// Whether the file was deleted while the program ran.
    pub(crate) deleted: bool,
}

impl<'w> WantedBinary<'w> {
    /// Describes a file by the name and the build id that a profile has for it.
    pub(crate) fn new(name: &'w str, build_id: &str) -> Self {
        let kept = name.strip_suffix(" (deleted)");
        Self {
            path: Path::new(kept.unwrap_or(name)),
            build_id: bytes(build_id),
            deleted: kept.is_some(),
        }
    }
}

/// Converts a build id from hex to bytes. Returns `None` for other text, which can't be compared.
fn bytes(hex: &str) -> Option<Vec<u8>> {
    if hex.is_empty() || !hex.is_ascii() {
        return None;
    }
    let digits = hex.as_bytes().chunks(2);
    let pair = |pair: &[u8]| match std::str::from_utf8(pair) {
        Ok(text) if text.len() == 2 && !text.starts_with('+') => u8::from_str_radix(text, 16).ok(),
        _ => None,
    };
    digits.map(pair).collect()
}

/// The files that were found for a mapped file.
#[derive(Default)]
pub(crate) struct MatchedFiles<'a> {
    pub(crate) binary: Option<ElfBinary<'a>>,
    pub(crate) debug: Option<ElfBinary<'a>>,
    pub(crate) warnings: Vec<SymbolizeWarning>,
}

impl<'a> MatchedFiles<'a> {
    /// Finds the binary, and a debug file if the binary has no debug information.
    pub(crate) fn find(
        wanted: &WantedBinary<'_>,
        places: &CandidatePaths<'_>,
        storage: &'a FileStorage,
    ) -> Self {
        let mut found = Self::default();
        found.find_binary(wanted, places, storage);
        let is_whole = |binary: &ElfBinary<'_>| binary.has_section(".debug_info");
        if !found.binary.as_ref().is_some_and(is_whole) {
            found.find_debug(wanted, places, storage);
        }
        found
    }

    fn find_binary(
        &mut self,
        wanted: &WantedBinary<'_>,
        places: &CandidatePaths<'_>,
        storage: &'a FileStorage,
    ) {
        self.find_by_name(wanted, places, storage);
        let (None, Some(id)) = (&self.binary, wanted.build_id.as_deref()) else {
            return;
        };
        for place in places.elsewhere(wanted.path) {
            if let Ok(Some(elf)) = ElfBinary::open(&place, storage)
                && elf.build_id() == Some(id)
                && !elf.is_debug_only()
            {
                // Warnings about the file with the wanted name do not matter any more.
                self.warnings.clear();
                self.binary = Some(elf);
                return;
            }
        }
    }

    fn find_by_name(
        &mut self,
        wanted: &WantedBinary<'_>,
        places: &CandidatePaths<'_>,
        storage: &'a FileStorage,
    ) {
        if wanted.path.as_os_str().is_empty() {
            return;
        }
        for place in places.binary(wanted.path, wanted.build_id.as_deref()) {
            let Some(elf) = self.open(&place, storage) else {
                continue;
            };
            if !self.is_same(&elf, wanted.build_id.as_deref()) {
                continue;
            }
            if wanted.deleted && (elf.build_id().is_none() || wanted.build_id.is_none()) {
                self.warn(SymbolizeWarning::Replaced { file: place });
                continue;
            }
            // In a folder of debug files, a file with the binary's name may be its debug file.
            if !elf.is_debug_only() {
                self.binary = Some(elf);
                return;
            }
        }
    }

    fn find_debug(
        &mut self,
        wanted: &WantedBinary<'_>,
        places: &CandidatePaths<'_>,
        storage: &'a FileStorage,
    ) {
        let own_id = self.binary.as_ref().and_then(ElfBinary::build_id);
        let build_id = own_id.map(<[u8]>::to_vec).or(wanted.build_id.clone());
        let build_id = build_id.as_deref();
        for place in places.by_build_id(build_id) {
            if let Some(elf) = self.open_debug(&place, storage)
                && self.is_same(&elf, build_id)
            {
                self.debug = Some(elf);
                return;
            }
        }
        let link = self.binary.as_ref().and_then(|binary| {
            let (name, sum) = binary.object.gnu_debuglink().ok()??;
            Some((binary.path.clone(), name, sum))
        });
        if let Some((binary, name, sum)) = link {
            for place in places.by_link(wanted.path, &binary, name) {
                // A file without debug information may link to itself.
                if place == binary {
                    continue;
                }
                if let Some(elf) = self.open_debug(&place, storage)
                    && self.is_same(&elf, build_id)
                    && self.is_linked(&elf, &binary, build_id, sum)
                {
                    self.debug = Some(elf);
                    return;
                }
            }
        }
        for place in places.by_name(wanted.path) {
            let is_binary = self.binary.as_ref().is_some_and(|b| b.path == place);
            if !is_binary
                && let Some(elf) = self.open_debug(&place, storage)
                && self.is_same(&elf, build_id)
            {
                self.debug = Some(elf);
                return;
            }
        }
    }

    fn open(&mut self, path: &Path, storage: &'a FileStorage) -> Option<ElfBinary<'a>> {
        match ElfBinary::open(path, storage) {
            Ok(elf) => elf,
            Err(warning) => {
                self.warn(warning);
                None
            }
        }
    }

    /// Opens a debug file, if it has debug information or a symbol table.
    fn open_debug(&mut self, path: &Path, storage: &'a FileStorage) -> Option<ElfBinary<'a>> {
        let elf = self.open(path, storage)?;
        (elf.has_section(".debug_info") || elf.has_section(".symtab")).then_some(elf)
    }

    /// Whether a file has the build id `wanted`. If either build id is unknown, the file is
    /// accepted.
    fn is_same(&mut self, elf: &ElfBinary<'_>, wanted: Option<&[u8]>) -> bool {
        match (elf.build_id(), wanted) {
            (Some(found), Some(wanted)) if found != wanted => {
                self.warn(SymbolizeWarning::BuildId {
                    file: elf.path.clone(),
                    found: hex(found),
                    wanted: hex(wanted),
                });
                false
            }
            _ => true,
        }
    }

    /// Whether a debug file is the one to which the binary links. The check uses build ids, or, if
    /// one is unknown, the checksum, for which the whole file is read.
    fn is_linked(
        &mut self,
        elf: &ElfBinary<'_>,
        binary: &Path,
        id: Option<&[u8]>,
        wanted: u32,
    ) -> bool {
        if elf.build_id().is_some() && id.is_some() {
            return true;
        }
        let found = crc32fast::hash(elf.data);
        if found != wanted {
            self.warn(SymbolizeWarning::Checksum {
                file: elf.path.clone(),
                binary: binary.into(),
                found,
                wanted,
            });
        }
        found == wanted
    }

    fn warn(&mut self, warning: SymbolizeWarning) {
        if !self.warnings.contains(&warning) {
            self.warnings.push(warning);
        }
    }
}
