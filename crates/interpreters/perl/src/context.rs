//! Reads the contexts of a stack, and makes frames of them. Contexts are Perl's records of the
//! subs, evals and blocks that are running.
//!
//! The newest context may be incomplete, because Perl is pushing it at the moment. Then only the
//! fields that Perl sets first are read.

use heapprof_memory::Memory;

use crate::frame::{PerlFrame, PerlFrameKind};
use crate::interpreter::{InterpreterLocator, PerlRuntime};

/// Maximum number of frames that are walked at each end of a deep stack.
pub const MAX_FRAMES_PER_END: usize = 256;

/// Maximum number of contexts in a stack. A higher number counts as damage.
const MAX_CONTEXTS: i32 = 1 << 24;

/// Value of [`ContextReader::debugger`] if there is no debugger. No sub has this address.
pub(crate) const NO_DEBUGGER: u64 = 1;

/// Maximum number of stack infos in a walk. A walk through more stack infos fails.
pub(crate) const MAX_STACK_INFOS: usize = 10_000;

/// Perl's line number of a statement without a line (NOLINE).
pub(crate) const NO_LINE: u32 = u32::MAX;

/// Reads contexts. The fields stay the same during a walk.
#[derive(Clone, Copy)]
pub(crate) struct ContextReader<'a, M> {
    pub(crate) perl: &'a PerlRuntime,
    pub(crate) memory: M,
    /// Address of a special statement, which represents the text that Perl compiles now.
    pub(crate) compiling: u64,
    /// Address of the debugger's sub that calls all other subs, or `NO_DEBUGGER`. `caller` hides
    /// this sub.
    pub(crate) debugger: u64,
    /// Address of the statement at which a copied interpreter began; 0 in an interpreter that is no
    /// copy. The statement belongs to the original interpreter, which may have freed it.
    pub(crate) foreign: u64,
}

/// A stack info: Perl's record of one stack of contexts.
#[derive(Clone, Copy)]
pub(crate) struct StackInfo {
    pub(crate) at: u64,
    pub(crate) contexts: u64,
    /// The index of the newest context; -1 if there is none.
    pub(crate) newest: i32,
    /// The index of the newest sub, format or eval whose context is complete; `None` if this
    /// version does not record it.
    pub(crate) whole: Option<i32>,
    pub(crate) kind: u32,
}

/// The fields of a context that are read.
#[derive(Clone, Copy)]
pub(crate) struct ContextFields {
    /// The kind and its flags; the upper half is Perl's field `blku_u16`.
    pub(crate) flags: u32,
    pub(crate) oldcop: u64,
    pub(crate) retop: u64,
    /// Address of the sub or format to which the context belongs, if it belongs to any.
    pub(crate) subject: u64,
    /// The index of the context of the next older frame, in versions that record it.
    pub(crate) older: i32,
}

/// The role of a context in a walk.
pub(crate) enum ContextRole {
    /// The context is a frame.
    Frame(PerlFrameKind),
    /// The context is a frame that `caller` does not show. The next outer frame has the statement
    /// from which the hidden frame was entered.
    Hidden,
    /// The context is no frame.
    Other,
}

impl<M: Memory> ContextReader<'_, M> {
    #[inline(always)]
    pub(crate) fn context(self, info: StackInfo, ix: i32) -> u64 {
        info.contexts + ix as u64 * u64::from(self.perl.layout.cx_size)
    }

    #[inline(always)]
    pub(crate) fn info(self, at: u64) -> Option<StackInfo> {
        let (layout, memory) = (&self.perl.layout, self.memory);
        let int = |offset: u32| memory.u32(at + u64::from(offset)).map(|int| int as i32);
        let info = StackInfo {
            at,
            contexts: memory.u64(at + u64::from(layout.si_cxstack))?,
            newest: int(layout.si_cxix)?,
            whole: match layout.si_cxsubix {
                Some(offset) => Some(int(offset)?),
                None => None,
            },
            kind: int(layout.si_type)? as u32,
        };
        let most = int(layout.si_cxmax)?;
        let is_sound = at & 7 == 0
            && info.contexts & 7 == 0
            && (info.contexts != 0 || info.newest < 0)
            && (-1..=most).contains(&info.newest)
            && most < MAX_CONTEXTS
            && info
                .whole
                .is_none_or(|whole| whole >= -1 && whole <= info.newest);
        is_sound.then_some(info)
    }

    /// Reads the fields of a context. Their meaning depends on its kind.
    #[inline(always)]
    pub(crate) fn fields(self, context: u64) -> Option<ContextFields> {
        let layout = &self.perl.layout;
        let [flags, oldcop, retop, of, older] = self.memory.fields(
            context,
            [
                layout.cx_type,
                layout.cx_oldcop,
                layout.cx_sub_retop,
                layout.cx_sub_cv,
                layout.cx_sub_older.unwrap_or(layout.cx_type),
            ],
        )?;
        Some(ContextFields {
            flags: flags as u32,
            oldcop,
            retop,
            subject: of,
            older: older as i32,
        })
    }

    /// Returns the role of a context.
    #[inline(always)]
    pub(crate) fn classify(self, fields: ContextFields) -> ContextRole {
        let layout = &self.perl.layout;
        let kind = fields.flags & layout.cx_type_mask;
        if kind == layout.cx_is_sub && fields.flags & layout.cx_is_fake == 0 {
            return match fields.subject == self.debugger {
                true => ContextRole::Hidden,
                false => ContextRole::Frame(PerlFrameKind::Sub),
            };
        }
        self.classify_non_sub(fields, kind)
    }

    /// Returns the role of a context that does not belong to a sub.
    #[inline(never)]
    pub(crate) fn classify_non_sub(self, fields: ContextFields, kind: u32) -> ContextRole {
        let layout = &self.perl.layout;
        if kind == layout.cx_is_eval {
            if layout.cx_is_try.is_some_and(|bit| fields.flags & bit != 0) {
                return ContextRole::Other;
            }
            ContextRole::Frame(self.eval_kind(fields.flags >> 23))
        } else if kind == layout.cx_is_format {
            ContextRole::Frame(PerlFrameKind::Format)
        } else {
            ContextRole::Other
        }
    }

    /// Returns the kind of an eval, by the op that has begun it.
    #[inline(always)]
    pub(crate) fn eval_kind(self, op: u32) -> PerlFrameKind {
        let layout = &self.perl.layout;
        match op {
            op if op == layout.op_entereval => PerlFrameKind::EvalString,
            op if op == layout.op_require => PerlFrameKind::Require,
            op if op == layout.op_dofile => PerlFrameKind::DoFile,
            _ => PerlFrameKind::EvalBlock,
        }
    }

    /// Returns the role of the newest context in a version that does not record whether a context
    /// is complete. Perl pushes the context of an eval in two steps, and allocates memory between
    /// them.
    #[cold]
    pub(crate) fn role_if_incomplete(
        self,
        kind: PerlFrameKind,
        op: Option<u16>,
        compiles: bool,
    ) -> ContextRole {
        let is_eval = matches!(
            kind,
            PerlFrameKind::EvalBlock
                | PerlFrameKind::EvalString
                | PerlFrameKind::Require
                | PerlFrameKind::DoFile
        );
        let (true, Some(op), false) = (is_eval, op, compiles) else {
            return ContextRole::Frame(kind);
        };
        match self.eval_kind(op.into()) {
            // The eval's file is not there yet. The context still has the file of an earlier eval.
            PerlFrameKind::EvalString => ContextRole::Frame(PerlFrameKind::EvalString),
            PerlFrameKind::Require | PerlFrameKind::DoFile => {
                ContextRole::Frame(PerlFrameKind::EvalBlock)
            }
            _ => ContextRole::Frame(kind),
        }
    }

    /// Returns the frame of a context. `cop` is the address of the frame's statement.
    #[inline(always)]
    pub(crate) fn frame_of(
        self,
        kind: PerlFrameKind,
        context: u64,
        fields: ContextFields,
        cop: u64,
    ) -> Option<PerlFrame> {
        let (of, from_c) = match kind {
            PerlFrameKind::Sub | PerlFrameKind::Format => (fields.subject, fields.retop == 0),
            PerlFrameKind::EvalString => (0, fields.retop == 0),
            PerlFrameKind::Require | PerlFrameKind::DoFile => {
                let name = u64::from(self.perl.layout.cx_eval_namesv);
                (self.memory.u64(context + name)?, false)
            }
            _ => (0, false),
        };
        self.frame(kind, of, cop, from_c, context)
    }

    #[inline(always)]
    pub(crate) fn frame(
        self,
        kind: PerlFrameKind,
        of: u64,
        cop: u64,
        from_c: bool,
        context: u64,
    ) -> Option<PerlFrame> {
        let (mut line, mut version) = (0, 0);
        if cop != 0 {
            let layout = &self.perl.layout;
            let fields = [layout.cop_line, layout.cop_seq];
            let [of_line, of_version] = self.memory.fields(cop, fields)?;
            (line, version) = (of_line as u32, of_version as u32);
            if line == NO_LINE {
                line = 0;
            }
            // The text that is being compiled has no number yet, nor do copies of the statement for
            // it.
            if cop == self.compiling || version == 0 {
                version = self.version_of_file(cop)?;
            }
        }
        Some(PerlFrame {
            code: kind.code(of),
            cop,
            version,
            line,
            from_c,
            context,
        })
    }

    /// Returns the address of a frame's statement, or 0 if the statement may have been freed. `ix`
    /// is the index of the frame's context; -1 if it has none.
    ///
    /// The statement at which a copied interpreter began may have been freed. C code calls the
    /// first sub of a copy, mostly in an eval, so only the two oldest contexts can have this
    /// statement. In inner frames, an equal address belongs to a statement of the copy itself.
    #[inline(always)]
    pub(crate) fn statement(self, cop: u64, ix: i32) -> u64 {
        match cop == self.foreign && ix <= 1 {
            true => 0,
            false => cop,
        }
    }

    /// Returns the address of the statement at which a copied interpreter began; 0 if the
    /// interpreter is the first one, or if the stack does not show the statement.
    ///
    /// C code calls the first sub of a copied interpreter, so the oldest context was entered from
    /// this statement.
    #[inline(always)]
    pub(crate) fn foreign_of(self, interpreter: u64, first: u64, cop: u64) -> Option<u64> {
        match self.perl.locator {
            InterpreterLocator::Key { first: pointer, .. }
                if self.memory.u64(pointer)? != interpreter =>
            {
                self.foreign_of_copy(first, cop)
            }
            _ => Some(0),
        }
    }

    #[inline(never)]
    fn foreign_of_copy(self, first: u64, cop: u64) -> Option<u64> {
        let layout = &self.perl.layout;
        let mut found = cop;
        let mut at = first;
        for _ in 0..MAX_STACK_INFOS {
            let info = self.info(at)?;
            if info.newest >= 0 {
                let oldest = self.fields(self.context(info, 0))?;
                let is_frame = !matches!(self.classify(oldest), ContextRole::Other);
                let is_called_by_c = is_frame && oldest.retop == 0;
                found = if is_called_by_c { oldest.oldcop } else { 0 };
            }
            if info.kind == layout.si_is_main {
                // The statement that stands for the compiled text is the interpreter's own.
                return Some(if found == self.compiling { 0 } else { found });
            }
            at = self.memory.u64(info.at + u64::from(layout.si_prev))?;
            if at == 0 {
                break;
            }
        }
        Some(0)
    }

    /// Returns the address of the text with a statement's file name, or of the glob that has it; 0
    /// if there is none.
    #[inline(always)]
    pub(crate) fn file(self, cop: u64) -> Option<u64> {
        let layout = &self.perl.layout;
        let offset = layout.cop_file.or(layout.cop_filegv)?;
        self.memory.u64(cop + u64::from(offset))
    }

    /// Returns a hash of the file name of the special statement `cop`, which represents each file
    /// while Perl compiles it. The hash distinguishes these files.
    #[cold]
    pub(crate) fn version_of_file(self, cop: u64) -> Option<u32> {
        let mut room = [0; 256];
        let n = self.perl.file(self.memory, cop, &mut room).unwrap_or(0);
        let mix = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        Some(room[..n].iter().fold(0x811c_9dc5, mix))
    }
}

/// Returns the address of the debugger's sub that calls all other subs; 0 without a debugger.
#[inline(always)]
pub(crate) fn debugger_of<M: Memory>(perl: &PerlRuntime, memory: M, glob: u64) -> Option<u64> {
    if glob == 0 {
        return Some(0);
    }
    let parts = memory.u64(glob + u64::from(perl.layout.sv_u))?;
    match parts {
        0 => Some(0),
        _ => memory.u64(parts + u64::from(perl.layout.gp_cv)),
    }
}

impl PerlRuntime {
    /// Whether `context` looks like a sub's context, but belongs to code in a regular expression.
    pub fn is_fake<M: Memory>(&self, memory: M, context: u64) -> bool {
        let layout = &self.layout;
        let flags = memory.u8(context.wrapping_add(layout.cx_type.into()));
        flags.is_some_and(|flags| {
            let flags = u32::from(flags);
            flags & layout.cx_type_mask == layout.cx_is_sub && flags & layout.cx_is_fake != 0
        })
    }
}
