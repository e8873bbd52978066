//! Remembers the contexts of a thread's last walk, so that the next walk visits only changed
//! contexts.
//!
//! A frame is unchanged if its context is unchanged, and if no code was compiled since the last
//! walk. Perl increments `cop_seqmax` in each compilation. While `cop_seqmax` is unchanged, an
//! address of a statement can't be reused by another statement.

use crate::context::{ContextFields, MAX_FRAMES_PER_END};

/// The contexts of a thread's last walk. All zeros if there was none.
#[repr(C)]
pub struct LastWalk {
    interpreter: u64,
    info: u64,
    /// The value of Perl's `cop_seqmax` at the last walk.
    compiled: u32,
    pub(crate) len: u32,
    /// Address of the statement at which a copied interpreter began. The statement belongs to the
    /// original interpreter.
    pub(crate) foreign: u64,
    /// The contexts of frames, the outermost first.
    pub(crate) context: [RememberedContext; MAX_FRAMES_PER_END],
}

/// The fields of a context, as they were at the last walk.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RememberedContext {
    pub(crate) ix: i32,
    pub(crate) flags: u32,
    pub(crate) oldcop: u64,
    pub(crate) retop: u64,
    pub(crate) subject: u64,
}

/// The state of a walk that remembers its contexts.
#[derive(Clone, Copy)]
pub(crate) struct WalkMemo {
    /// The number of the last walk's oldest contexts that are unchanged.
    pub(crate) holds: usize,
    /// The index of the newest unchanged context; -1 if there is none.
    pub(crate) stop: i32,
    /// Number of contexts that the walk has visited. Until the walk ends, these contexts are at the
    /// end of the array of contexts, the newest first.
    met: usize,
}

impl WalkMemo {
    pub(crate) const NOTHING: Self = Self {
        holds: 0,
        stop: -1,
        met: 0,
    };
}

impl LastWalk {
    /// The state before any walk.
    pub const NEW: Self = Self {
        interpreter: 0,
        info: 0,
        compiled: 0,
        len: 0,
        foreign: 0,
        context: [RememberedContext {
            ix: 0,
            flags: 0,
            oldcop: 0,
            retop: 0,
            subject: 0,
        }; MAX_FRAMES_PER_END],
    };

    /// Begins a walk. Forgets the last walk's contexts if anything was compiled since, or if they
    /// belong to another stack.
    #[inline(always)]
    pub(crate) fn begin(&mut self, interpreter: u64, info: u64, compiled: u32) {
        let is_same = (self.interpreter, self.info, self.compiled) == (interpreter, info, compiled);
        if !is_same {
            (self.interpreter, self.info, self.compiled) = (interpreter, info, compiled);
            self.len = 0;
        }
    }

    /// Forgets the last walk.
    pub fn forget(&mut self) {
        (self.interpreter, self.len) = (0, 0);
    }

    /// Whether the last walk was of this interpreter.
    #[inline(always)]
    pub(crate) fn is_of(&self, interpreter: u64) -> bool {
        self.interpreter == interpreter
    }

    /// Whether the last walk was of the stack with this stack info. If so, the stack info can be
    /// read.
    #[inline(always)]
    pub(crate) fn is_on(&self, info: u64) -> bool {
        self.info == info
    }

    /// Whether nothing was compiled since the last walk.
    #[inline(always)]
    pub(crate) fn is_after(&self, compiled: u32) -> bool {
        self.compiled == compiled
    }

    /// Returns the remembered contexts, the outermost first.
    #[inline(always)]
    pub(crate) fn contexts(&self) -> &[RememberedContext] {
        &self.context[..self.len()]
    }

    /// Returns the newest remembered context.
    #[inline(always)]
    pub(crate) fn newest(&self) -> Option<&RememberedContext> {
        self.contexts().last()
    }

    /// Returns the number of remembered contexts.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        (self.len as usize).min(MAX_FRAMES_PER_END)
    }

    /// Remembers the next older context of a walk.
    #[inline(always)]
    pub(crate) fn add(&mut self, memo: &mut WalkMemo, ix: i32, fields: ContextFields) {
        memo.met += 1;
        if let Some(place) = MAX_FRAMES_PER_END.checked_sub(memo.met)
            && place + 1 >= memo.holds
        {
            self.context[place] = RememberedContext {
                ix,
                flags: fields.flags,
                oldcop: fields.oldcop,
                retop: fields.retop,
                subject: fields.subject,
            };
        }
    }

    /// Ends a walk that visited all new contexts and the newest unchanged context. Returns the
    /// number of unchanged frames. The frame of the file's code outside of any sub is counted, too.
    /// The frame of the newest unchanged context is not counted, because its statement may have
    /// changed.
    #[inline(always)]
    pub(crate) fn finish(&mut self, memo: WalkMemo) -> usize {
        let same = memo.holds.saturating_sub(1);
        let len = same + memo.met;
        self.len = 0;
        if len + 2 < MAX_FRAMES_PER_END {
            let from = MAX_FRAMES_PER_END - memo.met;
            self.context.copy_within(from..MAX_FRAMES_PER_END, same);
            self.len = len as u32;
        }
        memo.holds
    }
}
