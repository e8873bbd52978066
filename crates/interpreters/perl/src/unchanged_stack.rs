//! Walks a stack quickly in the two most common cases: only the statement of the innermost sub has
//! changed since the last walk, or there is no sub.

use heapprof_memory::Memory;

use crate::context::ContextReader;
use crate::frame::{PerlFrame, PerlFrameKind};
use crate::interpreter::{InterpreterLocator, PerlRuntime};
use crate::last::LastWalk;
use crate::layout::PerlLayout;
use crate::walk::PerlWalkSummary;

const USUAL_LAYOUT: PerlLayout = PerlLayout::USUAL;

impl PerlRuntime {
    /// Walks the stack of the interpreter at `interpreter` in two common cases. In the first case,
    /// all frames are unchanged since the last walk, except that the innermost frame may have
    /// another statement. In the second case, there is only one frame, for code outside of any sub.
    /// Returns the innermost frame, or `None` if the whole stack must be [walked](Self::walk).
    ///
    /// The result is the same as in a whole walk. Steps whose result is certain in these cases are
    /// left out.
    #[inline(always)]
    pub fn walk_unchanged<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        last: &mut LastWalk,
    ) -> Option<(PerlFrame, PerlWalkSummary)> {
        if !self.is_usual
            || !last.is_of(interpreter)
            || self.locator == InterpreterLocator::Variables
        {
            return None;
        }
        let variable = &self.variable;
        let offset = |at: u64| at as u32;
        let [first, cop, op, compiled, base, top, end, debugger, phase] = memory.fields(
            interpreter,
            [
                offset(variable.curstackinfo),
                offset(variable.curcop),
                offset(variable.op),
                offset(variable.cop_seqmax?),
                offset(variable.stack_base),
                offset(variable.stack_sp),
                offset(variable.stack_max),
                offset(variable.db_sub),
                offset(variable.phase?),
            ],
        )?;
        let compiling = self.compiling(interpreter);
        let is_sound = base <= top && top <= end && (cop | op) & 7 == 0;
        let has_statement = cop != 0 && cop != compiling && debugger == 0;
        // Perl's last phase frees everything.
        if !is_sound || !has_statement || !last.is_on(first) || phase as u8 >= 6 {
            return None;
        }
        let [contexts, number, kind] = memory.fields(
            first,
            [
                self.layout.si_cxstack,
                self.layout.si_cxsubix?,
                self.layout.si_type,
            ],
        )?;
        if kind as u32 != self.layout.si_is_main {
            return None;
        }
        let mut leaf = PerlWalkSummary {
            phase: Some(phase as u8),
            is_walked: true,
            is_comparable: true,
            newest: 1,
            ..PerlWalkSummary::default()
        };
        if op != 0 {
            leaf.op = memory.u16(op + u64::from(self.layout.op_type))? & 0x1ff;
        }
        if number as i32 == -1 {
            let [line, version] =
                memory.fields(cop, [USUAL_LAYOUT.cop_line, USUAL_LAYOUT.cop_seq])?;
            if op == 0 || version as u32 == 0 || cop == last.foreign {
                return None;
            }
            last.len = 0;
            let frame = PerlFrame {
                code: PerlFrameKind::Main.code(0),
                cop,
                version: version as u32,
                line: line as u32,
                from_c: false,
                context: 0,
            };
            return Some((frame, leaf));
        }
        let newest = last.newest()?;
        let may_be_gone = cop == last.foreign && newest.ix <= 1;
        let is_same = last.is_after(compiled as u32) && number as i32 == newest.ix;
        if !is_same || may_be_gone {
            return None;
        }
        let kind = newest.flags & (USUAL_LAYOUT.cx_type_mask | USUAL_LAYOUT.cx_is_fake);
        if kind != USUAL_LAYOUT.cx_is_sub
            || !ContextReader::are_all_unchanged(memory, contexts, last)
        {
            return None;
        }
        let [line, version] = memory.fields(cop, [USUAL_LAYOUT.cop_line, USUAL_LAYOUT.cop_seq])?;
        if version as u32 == 0 {
            return None;
        }
        leaf.shared = last.len();
        let frame = PerlFrame {
            code: PerlFrameKind::Sub.code(newest.subject),
            cop,
            version: version as u32,
            line: line as u32,
            from_c: newest.retop == 0,
            context: 0,
        };
        Some((frame, leaf))
    }
}

impl<M: Memory> ContextReader<'_, M> {
    /// Whether no context of the last walk has changed.
    #[inline(always)]
    fn are_all_unchanged(memory: M, contexts: u64, last: &LastWalk) -> bool {
        let mut older = -1;
        for remembered in last.contexts() {
            let context = contexts + remembered.ix as u64 * u64::from(USUAL_LAYOUT.cx_size);
            let fields = [
                USUAL_LAYOUT.cx_type,
                USUAL_LAYOUT.cx_oldcop,
                USUAL_LAYOUT.cx_sub_retop,
                USUAL_LAYOUT.cx_sub_older.unwrap_or_default(),
                USUAL_LAYOUT.cx_sub_cv,
            ];
            let Some([flags, oldcop, retop, next, of]) = memory.fields(context, fields) else {
                return false;
            };
            let differs = (oldcop ^ remembered.oldcop)
                | (retop ^ remembered.retop)
                | (of ^ remembered.subject)
                | u64::from((flags as u32 ^ remembered.flags) | (next as i32 ^ older) as u32);
            if differs != 0 {
                return false;
            }
            older = remembered.ix;
        }
        true
    }
}
