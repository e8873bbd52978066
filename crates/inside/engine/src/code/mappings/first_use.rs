//! Notes the code of an object when a stack leads through it for the first time.
//!
//! The kernel's list of mappings may have a hundred thousand lines. So this module reads the
//! object's headers, and asks the kernel only for the mappings at the addresses of the object's
//! code.

use std::ffi::CStr;
use std::io::Write;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use heapprof_abi::MappingGeneration;
use heapprof_platform::pages::PageSource;
use heapprof_platform::sys;
use heapprof_platform::weak::{self, LinkMap};

use super::{CodeMapping, CodeMappings, KnownMappings, mark_replaced};

use crate::code::image::{CodePiece, MappedImage};
use crate::code::modules::LoadedModule;
use crate::process::EngineProcess;

/// Maximum number of bytes of a path, with a zero at its end.
const MAX_PATH_LENGTH: usize = 4096;
/// Maximum number of pieces of an object's code that are noted. Most objects have one piece.
const MAX_PIECES: usize = 4;

/// Buffer for a path. It is not on the stack, which may be almost full.
pub(super) struct PathBuffer([u8; MAX_PATH_LENGTH]);

impl PathBuffer {
    pub(super) const fn new() -> Self {
        Self([0; MAX_PATH_LENGTH])
    }
}

impl CodeMappings {
    /// Notes the code of an object through which a stack leads, and publishes it. This is called in
    /// the middle of an event, and allocates no memory of the program. Returns true if the code was
    /// known before and has not been replaced by other code.
    pub(crate) fn note_met(&self, process: &EngineProcess, module: &LoadedModule) -> bool {
        if process.is_sandboxed() {
            return false;
        }
        let note = |known: &mut KnownMappings| self.note_object(known, process, module);
        // Signals are blocked because a handler that ends the process dumps, and that takes the
        // lock, too.
        let mask = process.block_signals();
        // If the loader must be asked for the loaded objects, another thread may do that under the
        // lock, and wait for this thread, which may be in dlopen.
        let noted = match weak::has_dl_find_object() {
            true => self.known.with_in_time(process, note),
            false => self.known.with_at_once(note),
        };
        sys::restore_signals(mask);
        noted == Some(true)
    }

    fn note_object(
        &self,
        known: &mut KnownMappings,
        process: &EngineProcess,
        module: &LoadedModule,
    ) -> bool {
        // The program's own code must be the first entry.
        if known.all.is_empty() {
            return false;
        }
        let is_here = |m: &&CodeMapping| !m.closed && m.start < module.end && module.start < m.end;
        // The object that was loaded last is met first.
        if let Some(mapping) = known.all.iter().rev().find(is_here) {
            // Other code may have come to its place without a report.
            return MappedImage::read_at(mapping.start, mapping.offset) == mapping.image;
        }
        let generation = self.closed.with(process, |closed| {
            mark_replaced(known, closed);
            self.generation()
        });
        // From here on a thread that closes the object finds it among the known mappings.
        let is_there = |found: &weak::FoundObject| {
            found.map_start == module.start && found.map_end == module.end
        };
        let found = weak::dl_find_object(module.start).filter(is_there);
        if found.is_none() && weak::has_dl_find_object() {
            return false;
        }
        let link_map = found.map_or(std::ptr::null(), |found| found.link_map);
        let mut pieces = [CodePiece::default(); MAX_PIECES];
        let count = MappedImage::find_code(module.start, &mut pieces);
        for piece in &pieces[..count.min(MAX_PIECES)] {
            let mapping = build_mapping(piece, link_map, &mut known.room);
            let Some(mapping) = mapping.filter(|_| known.all.try_reserve(1).is_ok()) else {
                continue;
            };
            let (all, turn) = (0..known.all.len(), known.turn);
            if let Some(noted) = known.note(mapping, all, turn, generation) {
                self.publish_noted(known, noted, &process.pages);
            }
        }
        if known.is_changed {
            self.publish(known, &process.pages);
        }
        false
    }

    /// Publishes a mapping that was noted just now. This does not search all mappings, because
    /// there may be tens of thousands.
    fn publish_noted(&self, known: &mut KnownMappings, noted: usize, pages: &PageSource) {
        let count = self.published.load(Ordering::Relaxed) as usize;
        // There was no memory for the mappings before this one.
        known.is_changed |= noted > count;
        if noted <= count && self.publish_one(known, noted, pages) && noted == count {
            self.count_published(count + 1, pages);
        }
    }
}

/// Makes the mapping of a piece of code, without its image. Returns `None` if its path can't be
/// found, or if there is no memory.
fn build_mapping(
    piece: &CodePiece,
    link_map: *const LinkMap,
    room: &mut PathBuffer,
) -> Option<CodeMapping> {
    let PathBuffer(room) = room;
    let &CodePiece { start, end, offset } = piece;
    let of_kernel = kernels_path(piece, room);
    let is_loaders = of_kernel.is_none();
    let len = of_kernel.or_else(|| loaders_path(link_map, room))?;
    let path = &room[..len];
    let intact = path.strip_suffix(b" (deleted)").filter(|_| !is_loaders);
    let mut own = Vec::new();
    own.try_reserve_exact(len).ok()?;
    own.extend_from_slice(intact.unwrap_or(path));
    Some(CodeMapping {
        start,
        end,
        offset,
        path: own.into_boxed_slice(),
        deleted: intact.is_some(),
        image: MappedImage::UNKNOWN,
        last: MappingGeneration::FIRST,
        closed: false,
        turn: 0,
        shown_at: 0,
        is_loaders,
    })
}

/// Writes the path of the file that the kernel has mapped at the addresses of `piece` into `to`.
/// Returns the length of the path; `None` if no mapping has exactly these addresses.
fn kernels_path(piece: &CodePiece, to: &mut [u8]) -> Option<usize> {
    let CodePiece { start, end, .. } = piece;
    let mut link = [0; 64];
    write!(&mut link[..63], "/proc/self/map_files/{start:x}-{end:x}").ok()?;
    let path = sys::read_link(CStr::from_bytes_until_nul(&link).ok()?, to);
    (path.starts_with(b"/") && path.len() < MAX_PATH_LENGTH).then_some(path.len())
}

/// Writes the loader's path of an object into `to`, if this path is absolute. Returns the length of
/// the path. The loader's path is used if the kernel does not report a mapping's path: in a process
/// that its user may not read, and for code that is mapped in parts.
fn loaders_path(link_map: *const LinkMap, to: &mut [u8]) -> Option<usize> {
    let at = (!link_map.is_null()).then(|| link_map.addr() + offset_of!(LinkMap, name))?;
    // Another thread may be closing the object.
    let mut name = [0; 8];
    let is_there = sys::read_memory(at, &mut name) == name.len();
    let name = is_there.then(|| usize::from_ne_bytes(name))?;
    let len = sys::read_memory(name, to);
    let len = to[..len].iter().position(|&byte| byte == 0)?;
    to.starts_with(b"/").then_some(len)
}
