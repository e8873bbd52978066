//! Closed code: code that was unloaded, or that a thread may be unloading. When other code takes
//! the addresses of closed code, another generation of mappings begins.
//!
//! A stack belongs to the library through which it led, even if another library takes the library's
//! addresses while a thread closes the library. The moment of this change is not known: dlopen
//! can't be hooked, because it finds libraries by the address of its caller. So while a thread is
//! in dlclose, all code that dlopen loaded is suspect. Unwind rules of suspect code, and stacks
//! through it, are not remembered. Each walk that reaches suspect code compares the build id (or
//! the first page) in memory with the known one. If they differ, another generation of mappings
//! begins before the stack gets its number. Code that was mapped when the program began can't be
//! unloaded (`lasting_code.rs`), so none of this is needed for it.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use heapprof_abi::MappingGeneration;
use heapprof_platform::lock::{ForkLock, LockedValue, rank};
use heapprof_platform::sys;

use crate::code::image::MappedImage;
use crate::code::modules::LoadedModule;
use crate::process::EngineProcess;

/// The mappings of closed code: code that was unloaded, or that a thread may be unloading. Each
/// stack walk reads the number of these mappings.
pub(crate) struct ClosedCode {
    all: LockedValue<{ rank::CLOSED_MAPPINGS }, ClosedMappings>,
    /// Number of closed mappings.
    len: AtomicUsize,
}

/// Mappings of closed code.
pub(crate) struct ClosedMappings(Vec<ClosedMapping>);

/// A mapping of closed code: its addresses and its image.
pub(crate) struct ClosedMapping {
    start: usize,
    end: usize,
    image: MappedImage,
    presence: CodePresence,
}

/// Whether closed code is still mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodePresence {
    /// The code was mapped when a thread began to close objects. It may have been unmapped since
    /// then.
    MayGo,
    Gone,
    /// Other code has taken the addresses. The field is the last generation in which the closed
    /// code may have been mapped.
    Replaced(MappingGeneration),
}

impl ClosedMapping {
    /// Makes an entry for code that is mapped while a thread closes objects.
    pub(crate) fn from_closing(range: Range<usize>, image: MappedImage) -> Self {
        Self {
            start: range.start,
            end: range.end,
            image,
            presence: CodePresence::MayGo,
        }
    }

    /// Whether this entry is about the code at `range` with the image `image`.
    pub(crate) fn is_of(&self, range: &Range<usize>, image: &MappedImage) -> bool {
        self.start == range.start && self.end == range.end && self.image == *image
    }
}

impl ClosedMappings {
    /// Removes all entries for code that may be unmapped, and adds the entries `new`.
    pub(crate) fn replace_closing(&mut self, new: impl Iterator<Item = ClosedMapping>) {
        self.0.retain(|c| c.presence != CodePresence::MayGo);
        self.0.extend(new);
    }

    /// Notes that the code at `range` is gone. Returns whether the code had an entry before.
    pub(crate) fn note_gone(&mut self, range: Range<usize>, image: MappedImage) -> bool {
        let presence = CodePresence::Gone;
        if let Some(noted) = self.0.iter_mut().find(|c| c.is_of(&range, &image)) {
            noted.presence = presence;
            return true;
        }
        let gone = ClosedMapping::from_closing(range, image);
        self.0.push(ClosedMapping { presence, ..gone });
        false
    }

    /// Removes the entries for code that was replaced by other code. `learn` gets each removed
    /// entry, with the last generation in which the code may have been mapped.
    pub(crate) fn take_replaced(
        &mut self,
        mut learn: impl FnMut(&ClosedMapping, MappingGeneration),
    ) {
        self.0.retain(|c| match c.presence {
            CodePresence::Replaced(last) => {
                learn(c, last);
                false
            }
            _ => true,
        });
    }

    /// Notes a module through which a stack leads. Returns whether the module has replaced another
    /// module at its addresses.
    fn note_module(
        &mut self,
        module: &LoadedModule,
        generation: MappingGeneration,
        is_closing: impl Fn() -> bool,
    ) -> bool {
        let here = |c: &ClosedMapping| {
            let is_replaced = matches!(c.presence, CodePresence::Replaced(_));
            !is_replaced && c.end > module.start && c.start < module.end
        };
        if !self.0.iter().any(here) {
            return false;
        }
        // A plugin that comes and goes mostly comes back to its place: its stacks are then the
        // same.
        let now = MappedImage::read_at(module.start, 0);
        let mut is_other = false;
        self.0.retain_mut(|c| {
            if !here(c) {
                return true;
            }
            let is_same = c.image == now;
            match c.presence {
                // While a thread closes objects, this module may still go.
                CodePresence::MayGo if is_same && now.is_known() => return is_closing(),
                CodePresence::Gone if is_same && now.has_build_id() => return false,
                CodePresence::MayGo => c.presence = CodePresence::Replaced(generation),
                CodePresence::Gone | CodePresence::Replaced(_) => {}
            }
            is_other = true;
            c.presence != CodePresence::Gone
        });
        is_other
    }
}

impl ClosedCode {
    /// Makes a list without closed code.
    pub(crate) const fn new() -> Self {
        Self {
            all: LockedValue::new(ClosedMappings(Vec::new())),
            len: AtomicUsize::new(0),
        }
    }

    /// Runs `work` with the closed mappings, under their lock.
    pub(crate) fn with<R>(
        &self,
        process: &EngineProcess,
        work: impl FnOnce(&mut ClosedMappings) -> R,
    ) -> R {
        self.all.with(process, |closed| {
            let result = work(closed);
            self.len.store(closed.0.len(), Ordering::Release);
            result
        })
    }

    /// Notes a module through which a stack leads. If the module has replaced another module at its
    /// addresses, this adds one to `generation` and returns true. `is_closing` says whether a
    /// thread closes objects.
    pub(crate) fn note_module(
        &self,
        process: &EngineProcess,
        module: &LoadedModule,
        generation: &AtomicU32,
        is_closing: impl Fn() -> bool,
    ) -> bool {
        if self.len.load(Ordering::Acquire) == 0 {
            return false;
        }
        // Signals are blocked because a handler that ends the process dumps, and that takes this
        // lock, too.
        let mask = process.block_signals();
        let is_other = self.with(process, |closed| {
            let now = MappingGeneration::from_u32(generation.load(Ordering::Acquire));
            let is_other = closed.note_module(module, now, is_closing);
            if is_other {
                generation.fetch_add(1, Ordering::AcqRel);
            }
            is_other
        });
        sys::restore_signals(mask);
        is_other
    }

    /// Returns the largest number of bytes that the closed mappings can take. `known` is the number
    /// of known mappings.
    pub(crate) fn memory_needed(&self, known: usize) -> usize {
        let all = self.len.load(Ordering::Relaxed) + known;
        all * 3 * size_of::<ClosedMapping>()
    }

    /// Returns the lock that fork must take.
    pub(crate) fn lock(&self) -> &dyn ForkLock {
        &self.all.lock
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_platform::pages::PageSource;

    /// Makes a module whose memory contains no image.
    fn module() -> LoadedModule {
        let start = sys::map(sys::PAGE_SIZE).expose_provenance();
        LoadedModule {
            start,
            end: start + sys::PAGE_SIZE,
            ..LoadedModule::default()
        }
    }

    #[test]
    fn what_comes_to_the_place_of_another_belongs_to_the_next_generation() {
        let process = EngineProcess::new(PageSource::from_kernel());
        let module = module();
        for (presence, replaced) in [
            (CodePresence::MayGo, Some(MappingGeneration::from_u32(7))),
            (CodePresence::Gone, None),
        ] {
            let (closed, generation) = (ClosedCode::new(), AtomicU32::new(7));
            let met = || closed.note_module(&process, &module, &generation, || true);
            assert!(!met());
            closed.with(&process, |closed| {
                closed.note_gone(module.start..module.end, MappedImage::UNKNOWN);
                closed.0[0].presence = presence;
            });
            assert!(met() && !met());
            assert_eq!(generation.load(Ordering::Relaxed), 8);
            let mut found = None;
            let learn = |_: &ClosedMapping, last| found = Some(last);
            closed.with(&process, |closed| closed.take_replaced(learn));
            assert_eq!(found, replaced);
            assert_eq!(closed.len.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn code_that_may_go_is_gone_once() {
        let mut closed = ClosedMappings(Vec::new());
        let ranges = [10..20, 30..40];
        let all = ranges.clone().into_iter();
        closed.replace_closing(
            all.map(|range| ClosedMapping::from_closing(range, MappedImage::UNKNOWN)),
        );
        let [first, second] = ranges;
        assert!(closed.note_gone(first.clone(), MappedImage::UNKNOWN));
        closed.replace_closing(std::iter::empty());
        assert_eq!(closed.0.len(), 1);
        assert!(closed.note_gone(first, MappedImage::UNKNOWN));
        assert!(!closed.note_gone(second, MappedImage::UNKNOWN));
        assert_eq!(closed.0.len(), 2);
    }
}
