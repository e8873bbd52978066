//! From a frame to its caller, one step at a time: rules from the cache, memory that is known to be readable.

use crate::cfi::{self, Registers};
use crate::modules;
use crate::probe_table::ProbeTable;
use crate::rule::{Kind, Rule};
use crate::sys;

/// Rules by return address (an interrupted pc stands in as pc + 1).
static RULES: ProbeTable = ProbeTable::new();

/// How many return addresses were met.
pub(crate) fn rules() -> usize {
    RULES.len()
}

/// The lock that fork must hold.
pub(crate) fn lock() -> &'static crate::lock::Lock {
    &RULES.lock
}

/// Forgets the rules of unloaded code.
pub(crate) fn forget(range: std::ops::Range<usize>) {
    RULES.remove_range(range.start as u64..range.end as u64);
}

/// The rule of the frame that `return_address` returns into.
#[inline]
pub(crate) fn rule(return_address: usize) -> Rule {
    match RULES.find(return_address as u64) {
        Some(rule) => Rule(rule),
        None => find_rule(return_address),
    }
}

#[cold]
fn find_rule(return_address: usize) -> Rule {
    if return_address < 4096 {
        return Rule::END;
    }
    let Some(module) = modules::find(return_address - 1) else {
        // Not kept: code without a module may be replaced by any other.
        return Rule::FRAME_POINTER;
    };
    crate::mappings::touched(&module);
    let decoded = cfi::rule(&module, return_address - 1);
    let kept = RULES.find_or_insert(return_address as u64, || Some(decoded.0));
    kept.map_or(decoded, Rule)
}

/// The stack memory that may be read directly.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A frame being unwound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cursor {
    /// Where its return address lies: just below its stack pointer after the return.
    pub(crate) slot: usize,
    /// rbp as it was in it.
    pub(crate) bp: usize,
    /// The return address into it; for an interrupted frame the interrupted pc + 1, which is not in `slot`.
    pub(crate) pc: usize,
}

/// What memory a walk may look at.
pub(crate) trait Memory {
    /// The word at `at`, if there is one.
    fn read(&mut self, at: usize) -> Option<usize>;
}

/// The thread's own stack, from the hook's frame up.
pub(crate) struct Direct(pub(crate) Bounds);

impl Memory for Direct {
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

/// A stack of unknown extent (coroutine, signal stack): copied by the kernel, which checks.
pub(crate) struct Foreign {
    at: usize,
    len: usize,
    copy: [u8; 1024],
}

impl Foreign {
    pub(crate) fn new() -> Self {
        Self {
            at: 0,
            len: 0,
            copy: [0; 1024],
        }
    }
}

impl Memory for Foreign {
    fn read(&mut self, at: usize) -> Option<usize> {
        if at < self.at || at.checked_add(8)? > self.at + self.len {
            // Up to the next page: the one after it may not be there.
            let len = (4096 - at % 4096).min(self.copy.len());
            self.len = sys::read_memory(at, &mut self.copy[..len]);
            self.at = at;
            if self.len < 8 {
                self.len = 0;
                return None;
            }
        }
        let bytes = self.copy.get(at - self.at..at - self.at + 8)?;
        Some(usize::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// The canonical frame address of the frame at `cursor`, whose rule is a simple one.
#[inline(always)]
fn cfa(memory: &mut impl Memory, cursor: Cursor, rule: Rule) -> Option<usize> {
    let cfa = match rule.kind() {
        Kind::Rsp => (cursor.slot + 8).wrapping_add(rule.cfa()),
        Kind::Rbp | Kind::FramePointer => cursor.bp.wrapping_add(rule.cfa()),
        Kind::DerefRbp => memory.read(cursor.bp.wrapping_add(rule.cfa()))?,
        Kind::End | Kind::Complex => return None,
    };
    (cfa.wrapping_sub(8) > cursor.slot).then_some(cfa)
}

/// Where a zero lies in place of the return address of a frame without a caller: how a stack that was made by hand ends.
#[cold]
pub(crate) fn end_word(memory: &mut impl Memory, cursor: Cursor, rule: Rule) -> Option<usize> {
    let slot = cfa(memory, cursor, rule)?.wrapping_sub(8);
    (memory.read(slot)? == 0).then_some(slot)
}

/// The caller of the frame at `cursor`.
#[inline(always)]
pub(crate) fn step(memory: &mut impl Memory, cursor: Cursor, rule: Rule) -> Option<Cursor> {
    if rule.kind() == Kind::Complex {
        return step_complex(memory, cursor);
    }
    let cfa = cfa(memory, cursor, rule)?;
    let slot = cfa.wrapping_sub(8);
    let pc = memory.read(slot)?;
    if pc == 0 {
        return None;
    }
    let bp = match rule.saved_rbp() {
        None => cursor.bp,
        Some(offset) if rule.kind() == Kind::DerefRbp => {
            memory.read(cursor.bp.wrapping_add(offset))?
        }
        Some(offset) => memory.read(cfa.wrapping_add(offset))?,
    };
    Some(Cursor { slot, bp, pc })
}

/// A step through a frame without a simple rule. A signal frame's caller may lie on another stack.
#[cold]
fn step_complex(memory: &mut impl Memory, cursor: Cursor) -> Option<Cursor> {
    let module = modules::find(cursor.pc - 1)?;
    let registers = Registers {
        pc: cursor.pc,
        sp: cursor.slot + 8,
        bp: cursor.bp,
    };
    let caller = cfi::step(&module, registers, &mut |at| memory.read(at))?;
    Some(Cursor {
        slot: caller.sp.wrapping_sub(8),
        bp: caller.bp,
        pc: caller.pc,
    })
}
