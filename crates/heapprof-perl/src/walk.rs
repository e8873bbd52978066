//! From the innermost frame of a Perl stack to the outermost one: what `caller` says, and more.
//!
//! Perl keeps a stack of contexts (subs, evals, loops, blocks) for each stack info, and a new stack
//! info for each call back from C that must not see the old stack (a sort, a tie, a DESTROY). The
//! statement of a frame is that of `PL_curcop` for the innermost one, and then the one that the
//! next inner context was entered from. `Perl_caller_cx` in Perl's `pp_ctl.c` goes the same way.
//!
//! Nothing is read of a context that Perl may be in the middle of pushing, except what it sets
//! first.

use heapprof_memory::Memory;

use crate::frame::{Frame, Kind};
use crate::interpreter::Perl;

/// So many frames are walked at each end of a deep stack.
pub const EACH_END: usize = 256;

/// Stack infos after which a walk gives up.
const MOST_INFOS: usize = 10_000;
/// The kind of a stack info (PERLSI_REQUIRE) that is made for BEGIN, whose frame says enough.
const FOR_BEGIN: u32 = 9;
/// No stack of contexts is as long.
const MOST_CONTEXTS: i32 = 1 << 24;

/// Takes the frames of a walk.
pub trait Sink {
    /// The next outer frame, beginning with the innermost one. There are [`EACH_END`] at most.
    fn newest(&mut self, frame: Frame);

    /// A frame at the other end of a stack that has more frames: so many of its own callers are
    /// before it. It begins with 0. There are [`EACH_END`] at most.
    fn oldest(&mut self, callers: usize, frame: Frame);
}

/// What a walk found besides the frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaf {
    /// The op that runs, or 0.
    pub op: u16,
    /// Perl's phase: 0 constructing, 1 starting, 2 checking, 3 initialising, 4 running, 5 ending,
    /// 6 freeing everything. `None` if it is not known.
    pub phase: Option<u8>,
    /// Whether Perl compiles at the innermost frame.
    pub compiles: bool,
    /// Whether there were contexts to look at, so that Perl can say the same.
    pub is_walked: bool,
    /// How many frames were given to [`Sink::newest`].
    pub newest: usize,
    /// How many frames were given to [`Sink::oldest`].
    pub oldest: usize,
    /// Whether frames between the two were left out.
    pub is_cut: bool,
}

/// What stays the same in a walk.
#[derive(Clone, Copy)]
struct Walk<'a, M> {
    perl: &'a Perl,
    memory: M,
    /// The statement that stands for what is being compiled.
    compiling: u64,
    /// The sub of the debugger that calls all others, or 0. `caller` hides it.
    debugger: u64,
}

/// A stack info.
#[derive(Clone, Copy)]
struct Info {
    at: u64,
    contexts: u64,
    /// The index of the newest context; -1 if there is none.
    newest: i32,
    /// The index of the newest frame that is whole; `None` if this version does not tell.
    whole: Option<i32>,
    kind: u32,
}

/// What a context is to a walk.
enum Found {
    /// A frame.
    Frame(Kind),
    /// A frame that `caller` does not show. The statement that it was entered from counts.
    Hidden,
    /// No frame.
    Other,
}

impl Perl {
    /// Walks the stack of the interpreter at `interpreter` (0 if its parts are variables by
    /// themselves), which the calling thread runs, or which is at rest. `None` if it runs nothing
    /// or can't be read; what the sink got then means nothing.
    #[inline(always)]
    pub fn walk<M: Memory>(
        &self,
        memory: M,
        interpreter: u64,
        sink: &mut impl Sink,
    ) -> Option<Leaf> {
        let (variable, layout) = (&self.variable, &self.layout);
        let read = |at: u64| memory.u64(interpreter.wrapping_add(at));
        let mut leaf = Leaf::default();
        if let Some(at) = variable.phase {
            leaf.phase = memory.u8(interpreter.wrapping_add(at)).filter(|&phase| phase <= 6);
        }
        let alone = |kind: Kind| Frame {
            code: kind.code(0),
            cop: 0,
            version: 0,
            line: 0,
            from_c: false,
            context: 0,
        };
        let first = read(variable.curstackinfo)?;
        if first == 0 {
            // The interpreter was just made, or is gone.
            if !matches!(leaf.phase, Some(0 | 1)) {
                return None;
            }
            sink.newest(alone(Kind::Start));
            leaf.newest = 1;
            return Some(leaf);
        }
        // An interpreter that was freed may hold anything.
        let stack = [variable.stack_base, variable.stack_sp, variable.stack_max];
        let [base, top, end] = [read(stack[0])?, read(stack[1])?, read(stack[2])?];
        let cop = read(variable.curcop)?;
        if base == 0 || base > top || top > end || (base | top | cop | first) & 7 != 0 {
            return None;
        }
        if leaf.phase == Some(6) {
            sink.newest(alone(Kind::Destruct));
            leaf.newest = 1;
            return Some(leaf);
        }
        let op = read(variable.op)?;
        if op != 0 {
            leaf.op = memory.u16(op + u64::from(layout.op_type))? & 0x1ff;
        }
        let walk = Walk {
            perl: self,
            memory,
            compiling: self.compiling(interpreter),
            debugger: walk_debugger(self, memory, read(variable.db_sub)?)?,
        };
        leaf.compiles = cop == walk.compiling;
        walk.go(first, cop, op, sink, leaf)
    }
}

/// The sub that the debugger calls all others through, 0 without a debugger.
#[inline(always)]
fn walk_debugger<M: Memory>(perl: &Perl, memory: M, glob: u64) -> Option<u64> {
    if glob == 0 {
        return Some(0);
    }
    let parts = memory.u64(glob + u64::from(perl.layout.sv_u))?;
    match parts {
        0 => Some(0),
        _ => memory.u64(parts + u64::from(perl.layout.gp_cv)),
    }
}

impl<M: Memory> Walk<'_, M> {
    #[inline(always)]
    fn go(
        self,
        first: u64,
        mut cop: u64,
        op: u64,
        sink: &mut impl Sink,
        mut leaf: Leaf,
    ) -> Option<Leaf> {
        let layout = &self.perl.layout;
        if leaf.compiles {
            if self.file(cop)? == 0 {
                // There is no text yet.
                sink.newest(self.frame(Kind::Start, 0, 0, false, 0)?);
                leaf.newest = 1;
                return Some(leaf);
            }
            sink.newest(self.frame(Kind::Compile, 0, cop, false, 0)?);
            leaf.newest = 1;
        }
        leaf.is_walked = true;
        let mut at = first;
        for _ in 0..MOST_INFOS {
            let info = self.info(at)?;
            let (mut ix, mut chain) = (info.newest, false);
            let mut called_back = false;
            while ix >= 0 {
                let context = self.context(info, ix);
                let mut found = self.look(context)?;
                if info.at == first && !chain {
                    found = match (info.whole, found) {
                        // Perl is in the middle of pushing it, or of popping it.
                        (Some(whole), Found::Frame(_)) if ix > whole => Found::Hidden,
                        (None, Found::Frame(kind)) if ix == info.newest => {
                            self.half_pushed(kind, op, leaf)?
                        }
                        (_, found) => found,
                    };
                }
                // Where older contexts are known by number, those between are no frames.
                let next = match info.whole {
                    Some(whole) if ix > whole => ix - 1,
                    Some(_) => {
                        chain = true;
                        let at = context + u64::from(layout.cx_sub_older.unwrap_or_default());
                        let older = self.memory.u32(at)? as i32;
                        if older >= ix || older < -1 {
                            return None;
                        }
                        older
                    }
                    None => ix - 1,
                };
                match found {
                    Found::Other => {
                        ix = next;
                        continue;
                    }
                    Found::Hidden => {}
                    Found::Frame(kind) => {
                        let frame = self.frame_of(kind, context, cop)?;
                        called_back |= frame.from_c;
                        sink.newest(frame);
                        leaf.newest += 1;
                    }
                }
                cop = self.memory.u64(context + u64::from(layout.cx_oldcop))?;
                ix = next;
                if leaf.newest + 2 >= EACH_END {
                    return self.go_on_from_root(info, ix, sink, leaf);
                }
            }
            if info.kind == layout.si_is_main {
                break;
            }
            if info.kind != FOR_BEGIN {
                let callback = Kind::Callback(info.kind.wrapping_add(1) as u8);
                sink.newest(self.frame(callback, 0, cop, !called_back, 0)?);
                leaf.newest += 1;
            }
            at = self.memory.u64(info.at + u64::from(layout.si_prev))?;
            if at == 0 {
                break;
            }
            if leaf.newest + 2 >= EACH_END {
                let info = self.info(at)?;
                return self.go_on_from_root(info, info.newest, sink, leaf);
            }
        }
        if leaf.newest == 0 && op == 0 {
            // The program that holds this perl runs code of its own.
            return None;
        }
        sink.newest(self.frame(Kind::Main, 0, cop, false, 0)?);
        leaf.newest += 1;
        Some(leaf)
    }

    /// Walks the other end of a deep stack, up to the context `stop` of `info`, where the walk from
    /// the leaf stopped.
    #[cold]
    #[inline(never)]
    fn go_on_from_root(
        self,
        info: Info,
        stop: i32,
        sink: &mut impl Sink,
        mut leaf: Leaf,
    ) -> Option<Leaf> {
        let layout = &self.perl.layout;
        leaf.is_cut = true;
        let mut root = info;
        for _ in 0..MOST_INFOS {
            if root.kind == layout.si_is_main {
                break;
            }
            match self.memory.u64(root.at + u64::from(layout.si_prev))? {
                0 => break,
                at => root = self.info(at)?,
            }
        }
        if root.kind != layout.si_is_main {
            // The stack begins further away than anybody looks.
            return Some(leaf);
        }
        let last = if root.at == info.at { stop } else { root.newest };
        // The frame that waits for the statement that it runs.
        let mut waiting = Some((Kind::Main, 0));
        for ix in 0..=last {
            let context = self.context(root, ix);
            let found = self.look(context)?;
            if matches!(found, Found::Other) {
                continue;
            }
            let cop = self.memory.u64(context + u64::from(layout.cx_oldcop))?;
            if let Some((kind, of)) = waiting.take() {
                if leaf.oldest == EACH_END {
                    return Some(leaf);
                }
                let frame = match of {
                    0 => self.frame(kind, 0, cop, false, 0)?,
                    of => self.frame_of(kind, of, cop)?,
                };
                sink.oldest(leaf.oldest, frame);
                leaf.oldest += 1;
            }
            if let Found::Frame(kind) = found {
                waiting = Some((kind, context));
            }
        }
        // The statement of the last one is in a frame that is left out.
        Some(leaf)
    }

    #[inline(always)]
    fn context(self, info: Info, ix: i32) -> u64 {
        info.contexts + ix as u64 * u64::from(self.perl.layout.cx_size)
    }

    #[inline(always)]
    fn info(self, at: u64) -> Option<Info> {
        let (layout, memory) = (&self.perl.layout, self.memory);
        let int = |offset: u32| memory.u32(at + u64::from(offset)).map(|int| int as i32);
        let info = Info {
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
            && most < MOST_CONTEXTS
            && info.whole.is_none_or(|whole| whole >= -1 && whole <= info.newest);
        is_sound.then_some(info)
    }

    /// What a context is.
    #[inline(always)]
    fn look(self, context: u64) -> Option<Found> {
        let layout = &self.perl.layout;
        let flags = u32::from(self.memory.u8(context + u64::from(layout.cx_type))?);
        let kind = flags & layout.cx_type_mask;
        Some(if kind == layout.cx_is_sub {
            if flags & layout.cx_is_fake != 0 {
                return Some(Found::Other);
            }
            if self.debugger != 0
                && self.memory.u64(context + u64::from(layout.cx_sub_cv))? == self.debugger
            {
                return Some(Found::Hidden);
            }
            Found::Frame(Kind::Sub)
        } else if kind == layout.cx_is_eval {
            if layout.cx_is_try.is_some_and(|bit| flags & bit != 0) {
                return Some(Found::Other);
            }
            let op = u32::from(self.memory.u16(context + u64::from(layout.cx_u16))?) >> 7;
            Found::Frame(self.eval(op))
        } else if kind == layout.cx_is_format {
            Found::Frame(Kind::Format)
        } else {
            Found::Other
        })
    }

    /// What an eval is that this op began.
    #[inline(always)]
    fn eval(self, op: u32) -> Kind {
        let layout = &self.perl.layout;
        match op {
            op if op == layout.op_entereval => Kind::EvalString,
            op if op == layout.op_require => Kind::Require,
            op if op == layout.op_dofile => Kind::DoFile,
            _ => Kind::EvalBlock,
        }
    }

    /// The newest context in a version that does not tell whether it is whole. Perl pushes the
    /// context of an eval in two steps, and allocates between them.
    #[cold]
    fn half_pushed(self, kind: Kind, op: u64, leaf: Leaf) -> Option<Found> {
        let is_eval = matches!(
            kind,
            Kind::EvalBlock | Kind::EvalString | Kind::Require | Kind::DoFile
        );
        if !is_eval || op == 0 || leaf.compiles {
            return Some(Found::Frame(kind));
        }
        Some(match self.eval(leaf.op.into()) {
            // Its file is not there yet. What the context says of it is of an earlier one.
            Kind::EvalString => Found::Frame(Kind::EvalString),
            Kind::Require | Kind::DoFile => Found::Frame(Kind::EvalBlock),
            _ => Found::Frame(kind),
        })
    }

    /// The frame of a context, whose statement is `cop`.
    #[inline(always)]
    fn frame_of(self, kind: Kind, context: u64, cop: u64) -> Option<Frame> {
        let layout = &self.perl.layout;
        let word = |offset: u32| self.memory.u64(context + u64::from(offset));
        let (of, returns) = match kind {
            Kind::Sub | Kind::Format => (word(layout.cx_sub_cv)?, word(layout.cx_sub_retop)?),
            Kind::EvalString => (0, word(layout.cx_eval_retop)?),
            Kind::Require | Kind::DoFile => (word(layout.cx_eval_namesv)?, 1),
            _ => (0, 1),
        };
        self.frame(kind, of, cop, returns == 0, context)
    }

    #[inline(always)]
    fn frame(self, kind: Kind, of: u64, cop: u64, from_c: bool, context: u64) -> Option<Frame> {
        let (mut line, mut version) = (0, 0);
        if cop != 0 {
            let layout = &self.perl.layout;
            line = self.memory.u32(cop + u64::from(layout.cop_line))?;
            version = self.memory.u32(cop + u64::from(layout.cop_seq))?;
            // What is being compiled has no number yet, nor do copies of the statement for it.
            if cop == self.compiling || version == 0 {
                version = self.version_of_file(cop)?;
            }
        }
        Some(Frame {
            code: kind.code(of),
            cop,
            version,
            line,
            from_c,
            context,
        })
    }

    /// Where the text of a statement's file is, or the glob that has it; 0 if there is none.
    #[inline(always)]
    fn file(self, cop: u64) -> Option<u64> {
        let layout = &self.perl.layout;
        let offset = layout.cop_file.or(layout.cop_filegv)?;
        self.memory.u64(cop + u64::from(offset))
    }

    /// A number for the file that is being compiled: one statement stands for all of them.
    #[cold]
    fn version_of_file(self, cop: u64) -> Option<u32> {
        let mut room = [0; 256];
        let n = self.perl.file(self.memory, cop, &mut room).unwrap_or(0);
        let mix = |hash: u32, &byte: &u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
        Some(room[..n].iter().fold(0x811c_9dc5, mix))
    }
}

impl Perl {
    /// Whether the context at `context` only stands for the code in a regular expression.
    pub fn is_fake<M: Memory>(&self, memory: M, context: u64) -> bool {
        let layout = &self.layout;
        let flags = memory.u8(context.wrapping_add(layout.cx_type.into()));
        flags.is_some_and(|flags| {
            let flags = u32::from(flags);
            flags & layout.cx_type_mask == layout.cx_is_sub && flags & layout.cx_is_fake != 0
        })
    }
}
