//! Walks the oldest frames of a deep stack, from the root.

use heapprof_memory::Memory;

use crate::context::{ContextReader, ContextRole, MAX_FRAMES_PER_END, MAX_STACK_INFOS, StackInfo};
use crate::frame::PerlFrameKind;
use crate::walk::{PerlFrameSink, PerlWalkSummary};

impl<M: Memory> ContextReader<'_, M> {
    /// Walks the oldest frames of a deep stack, from the root up to the context `stop` of `info`.
    /// An earlier walk from the innermost frame has stopped at this context, at the statement
    /// `stopped_at`.
    #[cold]
    #[inline(never)]
    pub(crate) fn walk_from_root(
        self,
        info: StackInfo,
        stop: i32,
        stopped_at: u64,
        sink: &mut impl PerlFrameSink,
        mut leaf: PerlWalkSummary,
    ) -> Option<PerlWalkSummary> {
        let layout = &self.perl.layout;
        leaf.is_cut = true;
        let mut root = info;
        for _ in 0..MAX_STACK_INFOS {
            if root.kind == layout.si_is_main {
                break;
            }
            match self.memory.u64(root.at + u64::from(layout.si_prev))? {
                0 => break,
                at => root = self.info(at)?,
            }
        }
        if root.kind != layout.si_is_main {
            // The stack begins further away than a walk goes.
            return Some(leaf);
        }
        let last = if root.at == info.at {
            stop
        } else {
            root.newest
        };
        // The frame whose current statement is not known yet.
        let mut waiting = Some((PerlFrameKind::Main, None));
        for ix in 0..=last {
            let context = self.context(root, ix);
            let fields = self.fields(context)?;
            let found = self.classify(fields);
            if matches!(found, ContextRole::Other) {
                continue;
            }
            let cop = fields.oldcop;
            if let Some((kind, of)) = waiting.take() {
                if leaf.oldest == MAX_FRAMES_PER_END {
                    return Some(leaf);
                }
                let frame = match of {
                    None => self.frame(kind, 0, self.statement(cop, -1), false, 0)?,
                    Some((ix, context, fields)) => {
                        self.frame_of(kind, context, fields, self.statement(cop, ix))?
                    }
                };
                sink.oldest(leaf.oldest, frame);
                leaf.oldest += 1;
            }
            if let ContextRole::Frame(kind) = found {
                waiting = Some((kind, Some((ix, context, fields))));
            }
        }
        if let (Some((kind, of)), true) = (waiting, root.at == info.at)
            && leaf.oldest < MAX_FRAMES_PER_END
        {
            // The two ends have met.
            let frame = match of {
                None => self.frame(kind, 0, stopped_at, false, 0)?,
                Some((_, context, fields)) => self.frame_of(kind, context, fields, stopped_at)?,
            };
            sink.oldest(leaf.oldest, frame);
            leaf.oldest += 1;
            leaf.is_cut = false;
        }
        Some(leaf)
    }
}
