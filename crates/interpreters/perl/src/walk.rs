//! Walks a Perl stack from the innermost frame to the outermost one. The frames are those that
//! Perl's `caller` shows, and more.
//!
//! Perl has a stack of contexts (subs, evals, loops, blocks) for each stack info. It makes a new
//! stack info for each callback from C code that must not see the old stack (a sort, a tie, a
//! DESTROY). The statement of the innermost frame is `PL_curcop`. The statement of any other frame
//! is the one from which the next inner context was entered. `Perl_caller_cx` in Perl's `pp_ctl.c`
//! works in the same way.

use heapprof_memory::Memory;

use crate::context::{
    ContextFields, ContextReader, ContextRole, MAX_FRAMES_PER_END, MAX_STACK_INFOS, NO_DEBUGGER,
    NO_LINE, StackInfo, debugger_of,
};
use crate::frame::{PerlFrame, PerlFrameKind};
use crate::interpreter::PerlRuntime;
use crate::last::{LastWalk, WalkMemo};
use crate::layout::PerlLayout;

/// The kind of stack info (PERLSI_REQUIRE) for which no callback frame is made. It belongs to a
/// BEGIN, whose own frame is enough.
const BEGIN_INFO_KIND: u32 = 9;
/// Receives the frames of a walk.
pub trait PerlFrameSink {
    /// Forgets all frames received so far, because the walk begins again.
    fn restart(&mut self);

    /// Receives the next outer frame; the first call is for the innermost frame. There are at most
    /// [`MAX_FRAMES_PER_END`] calls.
    fn newest(&mut self, frame: PerlFrame);

    /// Receives a frame near the root of a deep stack: a stack with more frames than
    /// [`newest`](Self::newest) receives. The outermost frame comes first. `callers` is the number
    /// of frames that this function has received before. There are at most [`MAX_FRAMES_PER_END`]
    /// calls.
    fn oldest(&mut self, callers: usize, frame: PerlFrame);
}

/// The results of a walk, without the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerlWalkSummary {
    /// The number of the running op, or 0.
    pub op: u16,
    /// Perl's phase: 0 constructing, 1 starting, 2 checking, 3 initialising, 4 running, 5 ending,
    /// 6 freeing everything. `None` if it is not known.
    pub phase: Option<u8>,
    /// Whether Perl compiles a text at the innermost frame.
    pub compiles: bool,
    /// Whether there were contexts to walk.
    pub is_walked: bool,
    /// Whether `Perl_caller_cx` would show the same contexts at this moment.
    pub is_comparable: bool,
    /// The number of frames that were passed to [`PerlFrameSink::newest`].
    pub newest: usize,
    /// The number of frames that were passed to [`PerlFrameSink::oldest`].
    pub oldest: usize,
    /// Whether frames between the two ends were left out.
    pub is_cut: bool,
    /// The number of oldest frames that are unchanged since the last walk. They were not passed to
    /// the sink.
    pub shared: usize,
}

/// The arguments of a walk of subs.
struct SubWalk<'a> {
    contexts: u64,
    ix: i32,
    /// The index of the newest context that is unchanged since the last walk. The walk ends there.
    stop: i32,
    cop: u64,
    count: &'a mut usize,
    /// Whether the walk adds no callback frame after the outermost frame of this stack of contexts.
    has_no_callback: bool,
    memo: Option<&'a mut WalkMemo>,
    last: &'a mut LastWalk,
}

/// Value in place of a context's index: a walk has reached the frames that are unchanged since the
/// last walk.
const REACHED_LAST_WALK: i32 = -2;

impl PerlRuntime {
    /// Walks the stack of the interpreter at `interpreter` (0 if each variable is a separate
    /// symbol). While it walks, no other thread may run the interpreter. Returns `None` if the
    /// interpreter runs nothing or can't be read. In this case, the frames that the sink has
    /// received are invalid.
    ///
    /// `last` holds the thread's last walk. Frames that have not changed since then are not walked
    /// again.
    #[inline(always)]
    pub fn walk<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        last: &mut LastWalk,
        sink: &mut impl PerlFrameSink,
    ) -> Option<PerlWalkSummary> {
        let (variable, layout) = (&self.variable, &self.layout);
        let read = |at: u64| memory.u64(interpreter.wrapping_add(at));
        let mut leaf = PerlWalkSummary::default();
        if let Some(at) = variable.phase {
            leaf.phase = memory
                .u8(interpreter.wrapping_add(at))
                .filter(|&phase| phase <= 6);
        }
        let first = read(variable.curstackinfo)?;
        let compiled = match variable.cop_seqmax {
            Some(at) => Some(memory.u32(interpreter.wrapping_add(at))?),
            None => None,
        };
        if first == 0 {
            // The interpreter was just made, or is gone and the memory has zeros.
            return None;
        }
        // The memory of a freed interpreter may contain anything.
        let stack = [variable.stack_base, variable.stack_sp, variable.stack_max];
        let [base, top, end] = [read(stack[0])?, read(stack[1])?, read(stack[2])?];
        let mut cop = read(variable.curcop)?;
        if base == 0 || base > top || top > end || (base | top | cop | first) & 7 != 0 {
            return None;
        }
        if leaf.phase == Some(6) {
            last.forget();
            sink.newest(PerlFrame::from_kind(PerlFrameKind::Destruct));
            leaf.newest = 1;
            return Some(leaf);
        }
        let op = read(variable.op)?;
        if op != 0 {
            leaf.op = memory.u16(op + u64::from(layout.op_type))? & 0x1ff;
        }
        let mut walk = ContextReader {
            perl: self,
            memory,
            compiling: self.compiling(interpreter),
            debugger: debugger_of(self, memory, read(variable.db_sub)?)?.max(NO_DEBUGGER),
            foreign: 0,
        };
        walk.foreign = walk.foreign_of(interpreter, first, cop)?;
        last.foreign = walk.foreign;
        leaf.compiles = cop == walk.compiling;
        // Before an interpreter runs anything, its statement is that of the compiled text.
        let has_begun = leaf.phase.is_none_or(|phase| phase >= 2);
        if leaf.compiles && has_begun && self.place_on_stack(memory, interpreter).is_none() {
            last.forget();
            return None;
        }
        if leaf.compiles && memory.u32(cop + u64::from(layout.cop_line))? == NO_LINE {
            // Perl makes a constant sub, and compiles no text. Perl has stored the running
            // statement elsewhere.
            leaf.compiles = false;
            cop = 0;
        }
        let same = match compiled {
            Some(compiled) if walk.debugger == NO_DEBUGGER && !leaf.compiles => {
                last.begin(interpreter, first, compiled);
                true
            }
            _ => false,
        };
        if !same {
            last.forget();
        }
        match walk.walk_contexts(first, cop, op, same, last, sink, leaf) {
            Some(walked)
                if walked.newest + walked.shared + 2 < MAX_FRAMES_PER_END || walked.shared == 0 =>
            {
                Some(walked)
            }
            // The stack has become deep.
            Some(_) => walk.walk_anew(first, cop, op, last, sink, leaf),
            None => {
                last.forget();
                None
            }
        }
    }
}

impl<M: Memory> ContextReader<'_, M> {
    /// Walks the whole stack, without skipping frames that are unchanged since the last walk.
    #[cold]
    #[inline(never)]
    fn walk_anew(
        self,
        first: u64,
        cop: u64,
        op: u64,
        last: &mut LastWalk,
        sink: &mut impl PerlFrameSink,
        leaf: PerlWalkSummary,
    ) -> Option<PerlWalkSummary> {
        last.forget();
        sink.restart();
        self.walk_contexts(first, cop, op, false, last, sink, leaf)
    }

    #[expect(clippy::too_many_arguments, reason = "they are what the walk knows")]
    #[inline(never)]
    fn walk_contexts(
        self,
        first: u64,
        mut cop: u64,
        op: u64,
        remembers: bool,
        last: &mut LastWalk,
        sink: &mut impl PerlFrameSink,
        mut leaf: PerlWalkSummary,
    ) -> Option<PerlWalkSummary> {
        let layout = &self.perl.layout;
        if leaf.compiles {
            if self.file(cop)? == 0 {
                // There is no text yet.
                sink.newest(self.frame(PerlFrameKind::Start, 0, 0, false, 0)?);
                leaf.newest = 1;
                return Some(leaf);
            }
            sink.newest(self.frame(PerlFrameKind::Compile, 0, cop, false, 0)?);
            leaf.newest = 1;
        }
        leaf.is_walked = true;
        let mut at = first;
        for _ in 0..MAX_STACK_INFOS {
            let info = self.info(at)?;
            if info.at == first {
                // As long as there is no whole frame, `Perl_caller_cx` also shows what is being
                // pushed.
                leaf.is_comparable = info.whole != Some(-1) || info.newest < 0;
            }
            // Above the newest whole frame are blocks, or a context that Perl is pushing or
            // popping.
            let (mut ix, mut chain) = match info.whole {
                Some(whole) if info.at == first => (whole, true),
                _ => (info.newest, false),
            };
            let has_no_callback = info.kind == layout.si_is_main || info.kind == BEGIN_INFO_KIND;
            // Stacks in several parts are walked as a whole.
            let is_whole = info.at == first && info.kind == layout.si_is_main;
            let mut memo = match info.whole {
                Some(whole) if remembers && is_whole => Some(match self.perl.is_usual {
                    true => self.match_last_walk::<true>(info, whole, last),
                    false => self.match_last_walk::<false>(info, whole, last),
                }),
                _ => {
                    last.len = 0;
                    None
                }
            };
            let stop = memo.as_ref().map_or(-1, |memo| memo.stop);
            while ix >= 0 {
                if chain {
                    let subs = SubWalk {
                        contexts: info.contexts,
                        ix,
                        stop,
                        cop,
                        count: &mut leaf.newest,
                        has_no_callback,
                        memo: memo.as_mut(),
                        last: &mut *last,
                    };
                    (ix, cop) = match self.perl.is_usual {
                        true => self.walk_subs::<true>(subs, sink)?,
                        false => self.walk_subs::<false>(subs, sink)?,
                    };
                    if ix == REACHED_LAST_WALK {
                        leaf.shared = last.finish(memo?);
                        return Some(leaf);
                    }
                    if leaf.newest + 2 >= MAX_FRAMES_PER_END {
                        last.len = 0;
                        return self.walk_from_root(info, ix, cop, sink, leaf);
                    }
                    if ix < 0 {
                        break;
                    }
                }
                let context = self.context(info, ix);
                let fields = self.fields(context)?;
                let mut found = self.classify(fields);
                if info.whole.is_none()
                    && info.at == first
                    && ix == info.newest
                    && let ContextRole::Frame(kind) = found
                {
                    found =
                        self.role_if_incomplete(kind, (op != 0).then_some(leaf.op), leaf.compiles);
                }
                if leaf.newest == 0
                    && fields.retop == 0
                    && fields.oldcop == self.compiling
                    && let ContextRole::Frame(PerlFrameKind::EvalBlock) = found
                {
                    // Perl computes a constant while it compiles, in an eval of its own.
                    found = ContextRole::Frame(PerlFrameKind::Compile);
                }
                let here = ix;
                ix = match info.whole {
                    // Where the index of the next older frame is known, contexts between them are
                    // no frames.
                    Some(whole) if ix <= whole => {
                        chain = true;
                        if fields.older >= ix || fields.older < -1 {
                            return None;
                        }
                        fields.older
                    }
                    _ => ix - 1,
                };
                match found {
                    ContextRole::Other => continue,
                    ContextRole::Hidden => {}
                    ContextRole::Frame(kind) => {
                        let statement = self.statement(cop, here);
                        let mut frame = self.frame_of(kind, context, fields, statement)?;
                        // The callback's own frame shows that C code called.
                        frame.from_c &= ix >= 0 || has_no_callback;
                        sink.newest(frame);
                        leaf.newest += 1;
                        if let Some(memo) = &mut memo {
                            last.add(memo, here, fields);
                            if here == stop {
                                leaf.shared = last.finish(*memo);
                                return Some(leaf);
                            }
                        }
                    }
                }
                cop = fields.oldcop;
                if leaf.newest + 2 >= MAX_FRAMES_PER_END {
                    last.len = 0;
                    return self.walk_from_root(info, ix, cop, sink, leaf);
                }
            }
            if info.kind == layout.si_is_main {
                if let Some(memo) = memo {
                    last.finish(memo);
                }
                break;
            }
            if info.kind != BEGIN_INFO_KIND {
                let callback = PerlFrameKind::Callback(info.kind.wrapping_add(1) as u8);
                sink.newest(self.frame(callback, 0, self.statement(cop, -1), true, 0)?);
                leaf.newest += 1;
            }
            at = self.memory.u64(info.at + u64::from(layout.si_prev))?;
            if at == 0 {
                break;
            }
            if leaf.newest + 2 >= MAX_FRAMES_PER_END {
                last.len = 0;
                let info = self.info(at)?;
                return self.walk_from_root(info, info.newest, cop, sink, leaf);
            }
        }
        if leaf.newest == 0 && (op == 0 || self.foreign != 0 && cop == self.foreign) {
            // The program that embeds this perl runs code of its own.
            return None;
        }
        sink.newest(self.frame(PerlFrameKind::Main, 0, self.statement(cop, -1), false, 0)?);
        leaf.newest += 1;
        Some(leaf)
    }

    /// Counts the last walk's contexts that are unchanged, from the outermost one.
    ///
    /// Each context has the index of the next older frame's context. So an unchanged context whose
    /// next older context is unchanged, too, still has the same callers.
    #[inline(always)]
    fn match_last_walk<const USUAL: bool>(
        self,
        info: StackInfo,
        whole: i32,
        last: &LastWalk,
    ) -> WalkMemo {
        let layout = match USUAL {
            true => &PerlLayout::USUAL,
            false => &self.perl.layout,
        };
        let fields = [
            layout.cx_type,
            layout.cx_oldcop,
            layout.cx_sub_retop,
            layout.cx_sub_cv,
            layout.cx_sub_older.unwrap_or_default(),
        ];
        let mut memo = WalkMemo::NOTHING;
        let mut older = -1;
        for remembered in &last.context[..last.len()] {
            if remembered.ix > whole {
                break;
            }
            let ix = remembered.ix as u64;
            let context = info.contexts + ix * u64::from(layout.cx_size);
            let Some([flags, oldcop, retop, of, next]) = self.memory.fields(context, fields) else {
                break;
            };
            let is_same = flags as u32 == remembered.flags
                && oldcop == remembered.oldcop
                && retop == remembered.retop
                && of == remembered.subject
                && next as i32 == older;
            if !is_same {
                break;
            }
            older = remembered.ix;
            memo.holds += 1;
        }
        memo.stop = older;
        memo
    }

    /// Walks frames of subs, up to the first context of another kind. Most frames are subs that
    /// called one another.
    ///
    /// With `USUAL`, the walk uses constant offsets, which releases since 5.32 have in common. It
    /// then takes a third of the instructions that it takes otherwise.
    #[inline(always)]
    fn walk_subs<const USUAL: bool>(
        self,
        subs: SubWalk<'_>,
        sink: &mut impl PerlFrameSink,
    ) -> Option<(i32, u64)> {
        let layout = match USUAL {
            true => &PerlLayout::USUAL,
            false => &self.perl.layout,
        };
        let (mut ix, mut cop) = (subs.ix, subs.cop);
        let mut count = *subs.count;
        let mut memo = subs.memo;
        while ix >= 0 && count + 2 < MAX_FRAMES_PER_END {
            let context = subs.contexts + ix as u64 * u64::from(layout.cx_size);
            let [flags, oldcop, retop, of, older] = self.memory.fields(
                context,
                [
                    layout.cx_type,
                    layout.cx_oldcop,
                    layout.cx_sub_retop,
                    layout.cx_sub_cv,
                    layout.cx_sub_older.unwrap_or_default(),
                ],
            )?;
            let kind = flags as u32 & (layout.cx_type_mask | layout.cx_is_fake);
            let is_special = cop == self.compiling || self.statement(cop, ix) == 0;
            if kind != layout.cx_is_sub || of == self.debugger || is_special {
                break;
            }
            let statement = [layout.cop_line, layout.cop_seq];
            let Some([line, version]) = self.memory.fields(cop, statement) else {
                break;
            };
            let (line, version, older) = (line as u32, version as u32, older as i32);
            if version == 0 {
                break;
            }
            if older >= ix || older < -1 {
                return None;
            }
            let from_c = retop == 0 && (older >= 0 || subs.has_no_callback);
            sink.newest(PerlFrame {
                code: PerlFrameKind::Sub.code(of),
                cop,
                version,
                line,
                from_c,
                context,
            });
            count += 1;
            if let Some(memo) = &mut memo {
                let fields = ContextFields {
                    flags: flags as u32,
                    oldcop,
                    retop,
                    subject: of,
                    older,
                };
                subs.last.add(memo, ix, fields);
                if ix == subs.stop {
                    ix = REACHED_LAST_WALK;
                    break;
                }
            }
            (ix, cop) = (older, oldcop);
        }
        *subs.count = count;
        Some((ix, cop))
    }
}
