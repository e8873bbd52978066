//! Steps from a frame to its caller. It uses cached unwind rules, and reads memory that is known to
//! be readable.

use heapprof_abi::FrameAddress;
use heapprof_platform::sys::{self, PAGE_SIZE};

use crate::arch::{UnwindRule, UnwindRuleKind, strip_pointer_authentication};
use crate::code::ProgramCode;
use crate::code::cfi::{self, FrameRegisters};
use crate::process::EngineProcess;

/// The input of each walk: the program's code, and the process.
#[derive(Clone, Copy)]
pub(crate) struct Unwinder<'a> {
    pub(crate) code: &'a ProgramCode,
    pub(crate) process: &'a EngineProcess,
}

impl Unwinder<'_> {
    /// Returns the unwind rule of a frame.
    #[inline]
    pub(crate) fn rule(self, frame: FrameAddress) -> UnwindRule {
        match self.code.rules.find(frame.to_word()) {
            Some(rule) => UnwindRule(rule),
            None => self.find_rule(frame),
        }
    }

    #[cold]
    fn find_rule(self, frame: FrameAddress) -> UnwindRule {
        if frame.to_word() < PAGE_SIZE as u64 {
            return UnwindRule::END;
        }
        let address = frame.lookup_address() as usize;
        let (code, process) = (self.code, self.process);
        let Some(mut module) = code.modules.find(process, address) else {
            // This rule is not kept, because code without a module may be replaced by any other.
            return UnwindRule::FRAME_POINTER;
        };
        if code.note_module(process, &module) {
            // The index may be that of an object that lay there before.
            module.index = None;
        }
        let is_start = code.entries.is_musl_start(address) && !cfi::covers(&module, address);
        let decoded = match is_start {
            true => UnwindRule::END,
            false => cfi::find_rule(&module, frame),
        };
        if !code.may_keep_rule(address) {
            code.modules.note_unsure();
            return decoded;
        }
        // The check is repeated under the lock under which rules are removed.
        let may_keep = || code.may_keep_rule(address);
        let decode = || may_keep().then_some(decoded.0);
        let kept = code.rules.find_or_insert(process, frame.to_word(), decode);
        kept.map_or(decoded, UnwindRule)
    }

    /// Returns the caller of the frame at `cursor`.
    #[inline(always)]
    pub(crate) fn step(
        self,
        memory: &mut impl WalkMemory,
        cursor: FrameCursor,
        rule: UnwindRule,
    ) -> Option<FrameCursor> {
        if rule.kind() == UnwindRuleKind::Complex {
            return self.step_complex(memory, cursor);
        }
        let cfa = cfa(memory, cursor, rule)?;
        let slot = cfa.wrapping_sub(8);
        let pc = strip_pointer_authentication(memory.read(slot)?);
        let pc = FrameAddress::from_return_address(pc as u64);
        if pc.is_zero() {
            return None;
        }
        let bp = match rule.saved_rbp() {
            None => cursor.bp,
            Some(offset) if rule.kind() == UnwindRuleKind::DerefRbp => {
                memory.read(cursor.bp.wrapping_add(offset))?
            }
            Some(offset) => memory.read(cfa.wrapping_add(offset))?,
        };
        Some(FrameCursor { slot, bp, pc })
    }

    /// Returns the caller of a frame that has no simple rule. The caller of a signal frame may be
    /// on another stack.
    #[cold]
    fn step_complex(
        self,
        memory: &mut impl WalkMemory,
        cursor: FrameCursor,
    ) -> Option<FrameCursor> {
        let module = self
            .code
            .modules
            .find(self.process, cursor.pc.lookup_address() as usize)?;
        let registers = FrameRegisters {
            pc: cursor.pc,
            sp: cursor.slot + 8,
            bp: cursor.bp,
        };
        let caller = cfi::step(&module, registers, &mut |at| memory.read(at))?;
        Some(FrameCursor {
            slot: caller.sp.wrapping_sub(8),
            bp: caller.bp,
            pc: caller.pc,
        })
    }
}

/// Bounds of stack memory that may be read directly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StackBounds {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A frame being unwound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameCursor {
    /// Address of the return address into the frame. After the return, the frame's stack pointer is
    /// just above it.
    pub(crate) slot: usize,
    /// The frame's value of rbp.
    pub(crate) bp: usize,
    /// The frame's address. It is the word at `slot`, except for an interrupted frame.
    pub(crate) pc: FrameAddress,
}

/// Memory that a walk may read.
pub(crate) trait WalkMemory {
    /// Returns the word at `at`; `None` if it can't be read.
    fn read(&mut self, at: usize) -> Option<usize>;
}

/// The thread's own stack, from the hook's frame on, which is read directly.
#[derive(Clone, Copy)]
pub(crate) struct DirectMemory(pub(crate) StackBounds);

impl WalkMemory for DirectMemory {
    #[inline(always)]
    fn read(&mut self, at: usize) -> Option<usize> {
        if at < self.0.start || at.checked_add(8).is_none_or(|end| end > self.0.end) || at & 7 != 0
        {
            return None;
        }
        // SAFETY: the bounds are those of a live stack.
        Some(unsafe { (at as *const usize).read() })
    }
}

/// A stack of unknown size, such as a coroutine's or a signal's. The page of the frame at which the
/// walk begins is mapped. Other pages are copied by the kernel, which checks that they are mapped.
/// All zeros are the initial state.
///
/// A system call takes as long as twenty frames, so one call copies as much as the last walk read.
pub(crate) struct ForeignMemory {
    page: DirectMemory,
    at: usize,
    len: usize,
    /// Address of the oldest word that this walk read.
    furthest: usize,
    /// Distance from the page's start to the oldest word that the last walk read.
    reach: usize,
    copy: [u8; COPY_LEN],
}

const COPY_LEN: usize = 16 << 10;
/// Smallest number of bytes that are copied at once.
const MIN_COPY_LEN: usize = 1 << 10;
/// Largest usual distance of saved registers below a return address.
const SAVED_REGISTERS_LEN: usize = 64;

impl ForeignMemory {
    /// Begins a walk from the frame at `slot`, which is live. A `slot` in the first page of the
    /// address space stands for no frame.
    pub(crate) fn begin(&mut self, slot: usize) -> &mut Self {
        if slot < PAGE_SIZE {
            return self.begin_elsewhere();
        }
        self.reach = self.furthest.saturating_sub(self.page.0.start);
        let start = slot & !(PAGE_SIZE - 1);
        self.page = DirectMemory(StackBounds {
            start,
            end: start.wrapping_add(PAGE_SIZE),
        });
        // The memory that was copied before may have changed.
        (self.len, self.furthest) = (0, 0);
        self
    }

    /// Begins a walk that starts on another stack. The walk reads this memory only when it leaves
    /// that stack.
    pub(crate) fn begin_elsewhere(&mut self) -> &mut Self {
        self.page = DirectMemory(StackBounds::default());
        (self.len, self.furthest, self.reach) = (0, 0, 0);
        self
    }

    fn fill(&mut self, at: usize) {
        let end = self
            .page
            .0
            .start
            .saturating_add(self.reach.saturating_add(SAVED_REGISTERS_LEN));
        let len = end.saturating_sub(at).clamp(MIN_COPY_LEN, COPY_LEN);
        self.at = at;
        self.len = sys::read_memory(at, &mut self.copy[..len]);
    }

    #[inline]
    fn read_copied(&self, at: usize) -> Option<usize> {
        let from = at.checked_sub(self.at)?;
        let bytes = self.copy[..self.len].get(from..from.checked_add(8)?)?;
        Some(usize::from_ne_bytes(bytes.try_into().ok()?))
    }
}

impl WalkMemory for ForeignMemory {
    #[inline]
    fn read(&mut self, at: usize) -> Option<usize> {
        if let Some(word) = self.page.read(at) {
            return Some(word);
        }
        self.furthest = self.furthest.max(at);
        self.read_copied(at).or_else(|| {
            self.fill(at.saturating_sub(SAVED_REGISTERS_LEN));
            if self.len < SAVED_REGISTERS_LEN + 8 {
                self.fill(at);
            }
            self.read_copied(at)
        })
    }
}

/// Memory that is read word by word, each checked by the kernel.
#[cfg(target_arch = "x86_64")]
pub(crate) struct CheckedMemory;

#[cfg(target_arch = "x86_64")]
impl WalkMemory for CheckedMemory {
    fn read(&mut self, at: usize) -> Option<usize> {
        let mut word = [0; 8];
        (sys::read_memory(at, &mut word) == word.len()).then(|| usize::from_ne_bytes(word))
    }
}

/// Returns the canonical frame address of the frame at `cursor`. The frame must have a simple rule.
#[inline(always)]
fn cfa(memory: &mut impl WalkMemory, cursor: FrameCursor, rule: UnwindRule) -> Option<usize> {
    let cfa = match rule.kind() {
        UnwindRuleKind::Rsp => (cursor.slot + 8).wrapping_add(rule.cfa()),
        UnwindRuleKind::Rbp | UnwindRuleKind::FramePointer => cursor.bp.wrapping_add(rule.cfa()),
        UnwindRuleKind::DerefRbp => memory.read(cursor.bp.wrapping_add(rule.cfa()))?,
        UnwindRuleKind::End | UnwindRuleKind::Complex => return None,
    };
    (cfa.wrapping_sub(8) > cursor.slot).then_some(cfa)
}

/// Returns the address of the zero that a frame without a caller has instead of a return address;
/// `None` if there is no zero. A stack that was made by hand ends with such a zero.
#[cold]
pub(crate) fn end_word(
    memory: &mut impl WalkMemory,
    cursor: FrameCursor,
    rule: UnwindRule,
) -> Option<usize> {
    let slot = cfa(memory, cursor, rule)?.wrapping_sub(8);
    (memory.read(slot)? == 0).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Maps pages of words that contain their own offset, with a page behind them that can't be
    /// read.
    fn guarded(pages: usize) -> usize {
        let len = pages * PAGE_SIZE;
        let start = sys::map(len + PAGE_SIZE);
        assert!(!start.is_null());
        // SAFETY: a new mapping, whose last page is not used.
        unsafe {
            assert_eq!(
                libc::mprotect(start.add(len).cast(), PAGE_SIZE, libc::PROT_NONE),
                0
            );
            for at in (0..len).step_by(8) {
                start.add(at).cast::<usize>().write(at);
            }
        }
        start as usize
    }

    #[test]
    fn a_foreign_stack_is_read_to_its_end() {
        // SAFETY: all zeros are a new one.
        let mut foreign = unsafe { Box::<ForeignMemory>::new_zeroed().assume_init() };
        let pages = 7;
        let start = guarded(pages);
        let end = pages * PAGE_SIZE;
        for first in [0, 8, 4000, PAGE_SIZE, end - 8] {
            for step in [8, 24, 1000, 4096, 20_000] {
                let memory = foreign.begin(start + first);
                for at in (first..end).step_by(step) {
                    assert_eq!(memory.read(start + at), Some(at), "{first} {step}");
                    let saved = at.saturating_sub(16);
                    assert_eq!(memory.read(start + saved), Some(saved), "{first} {step}");
                }
                for at in [end - 7, end, end + 8] {
                    assert_eq!(memory.read(start + at), None, "{first} {step}: {at}");
                }
                for at in [0, 8, usize::MAX - 7, usize::MAX] {
                    assert_eq!(memory.read(at), None);
                }
            }
        }
        // Another walk reads the words that have changed since.
        let last = (start + end - 8) as *mut usize;
        // SAFETY: the mapping above.
        unsafe { last.write(1) };
        assert_eq!(foreign.begin(start).read(last as usize), Some(1));
        assert_eq!(foreign.begin_elsewhere().read(last as usize), Some(1));
        assert_eq!(foreign.begin(0).read(0), None);
    }
}
