//! A perl in a process: the addresses of its variables, and the layout of its structures.

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::{DynamicSymbol, LoadedObject};

use crate::layout::{PerlLayout, PerlVersion};

/// How to find the interpreter of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InterpreterLocator {
    /// Each thread has its own interpreter. `pthread_getspecific` returns it for a key, which must
    /// not be used while the pointer to the first interpreter is null.
    Key {
        /// Address of the key for `pthread_getspecific`.
        key: u64,
        /// Address of the pointer to the first interpreter.
        first: u64,
    },
    /// There is one interpreter. The pointer to it is at this address.
    Pointer(u64),
    /// There is one interpreter, and each of its variables is a separate symbol.
    Variables,
}

/// A call of a sub that is written in C (XSUB). Such a call has no context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XsubCall {
    /// Address of the called sub; 0 if there is no call.
    pub sub: u64,
    /// Address of the op that called the sub.
    pub op: u64,
    /// Address of the interpreter's current stack info (Perl's `PERL_SI`) at the time of the call.
    pub info: u64,
    /// The index of the newest context in [`info`](Self::info) at the time of the call.
    pub ix: u32,
}

/// The layout of contexts: Perl's records of the subs, evals and blocks that are running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLayout {
    /// Size of a context in bytes.
    pub size: u64,
    /// The kind of a sub's context: the value of the `mask` bits in the context's first byte.
    pub sub: u8,
    /// The bits with the kind in the first byte of a context.
    pub mask: u8,
    /// Offset of the fields that differ between kinds of contexts.
    pub own: u64,
    /// Offset of the sub's address in a sub's context.
    pub code: u64,
    /// Offset of the address of a required file's name in the context of an `eval`.
    pub name: u64,
}

/// A perl that was found in a process.
#[derive(Clone, Copy, Debug)]
pub struct PerlRuntime {
    /// The perl's version.
    pub version: PerlVersion,
    /// How to find the interpreter of a thread.
    pub locator: InterpreterLocator,
    /// Address of the function `Perl_caller_cx`, which finds the contexts that `caller` shows; 0 if
    /// it is not exported.
    pub caller_cx: u64,
    /// The beginning and end of the loop that runs a program's ops; zeros if they are not known.
    pub run_loop: (u64, u64),
    /// The beginning and end of two functions that allocate arenas: of heads, and of bodies. Zeros
    /// for a function that is not exported.
    pub(crate) arena_code: [(u64, u64); 2],
    /// The beginning and end of the function that allocates slabs of ops; zeros if it is not
    /// exported.
    pub(crate) slab_code: (u64, u64),
    /// Address of the array of op names; 0 if it is not exported.
    op_names: u64,
    pub(crate) layout: PerlLayout,
    /// Whether the layout has the offsets of [`PerlLayout::USUAL`].
    pub(crate) is_usual: bool,
    pub(crate) variable: InterpreterVariables,
}

/// The offsets of an interpreter's variables from its beginning. If each variable is a separate
/// symbol, these are addresses.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InterpreterVariables {
    pub(crate) stack_sp: u64,
    pub(crate) stack_base: u64,
    pub(crate) stack_max: u64,
    pub(crate) op: u64,
    pub(crate) curcop: u64,
    pub(crate) curstackinfo: u64,
    pub(crate) top_env: u64,
    pub(crate) start_env: u64,
    pub(crate) compiling: u64,
    pub(crate) db_sub: u64,
    /// Variable `PL_cop_seqmax`. This field and the fields after it are `None` if this build may
    /// have the variable at another offset.
    pub(crate) cop_seqmax: Option<u64>,
    pub(crate) phase: Option<u64>,
    pub(crate) strtab: Option<u64>,
    pub(crate) arenas: Option<ArenaVariables>,
}

/// The offsets or addresses of the variables that lead to values.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ArenaVariables {
    pub(crate) sv_count: u64,
    pub(crate) sv_root: u64,
    pub(crate) sv_arenaroot: u64,
    pub(crate) body_roots: u64,
    pub(crate) body_arenas: u64,
}

/// The reason why a perl's stacks can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadablePerl {
    /// The layout of this version is not known.
    Version(PerlVersion),
    /// The size of the interpreter (the number in this variant) differs from its size in this
    /// version.
    Size(PerlVersion, u32),
    /// A variable is not exported.
    Variable(PerlVersion),
    /// The numbers of the ops differ from the numbers in this version.
    Ops(PerlVersion),
    /// The perl was built with an option that changes the structures.
    Build(PerlVersion),
}

impl core::fmt::Display for UnreadablePerl {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "the structures of perl {version} are not known")
            }
            Self::Size(version, size) => write!(
                f,
                "this perl {version} has an interpreter of {size} bytes, which no known perl of \
                 that version has"
            ),
            Self::Variable(version) => {
                write!(f, "this perl {version} does not export its variables")
            }
            Self::Ops(version) => write!(
                f,
                "this perl {version} has ops that other perls do not have"
            ),
            Self::Build(version) => write!(
                f,
                "this perl {version} was built with options that change its structures"
            ),
        }
    }
}

impl PerlRuntime {
    /// Finds the perl in `object`; `None` if there is none. If the `executable` has copies of the
    /// perl's variables, the copies are used.
    pub fn find<M: Memory>(
        memory: M,
        object: LoadedObject,
        executable: Option<LoadedObject>,
    ) -> Option<Result<Self, UnreadablePerl>> {
        Self::find_with(memory, object, executable, None)
    }

    /// Finds the perl in `object`, like [`find`](Self::find). `given` is the layout to use, if a
    /// layout was made from the headers of this perl.
    pub fn find_with<M: Memory>(
        memory: M,
        object: LoadedObject,
        executable: Option<LoadedObject>,
        given: Option<PerlLayout>,
    ) -> Option<Result<Self, UnreadablePerl>> {
        let symbol = |name: &str| object.symbol(memory, name);
        // Every perl has these variables, whatever it was built with.
        let (revision, version) = (symbol("PL_revision")?, symbol("PL_version")?);
        let subversion = symbol("PL_subversion")?;
        let byte = |symbol: DynamicSymbol| memory.u8(symbol.address);
        let version = PerlVersion {
            revision: byte(revision)?,
            version: byte(version)?,
            subversion: byte(subversion)?,
        };
        let address = |name: &str| symbol(name).map_or(0, |symbol| symbol.address);
        let variable_at = |name: &str| {
            let copy = executable.and_then(|executable| executable.symbol(memory, name));
            match address(name) {
                0 => 0,
                own => copy.map_or(own, |copy| copy.address),
            }
        };
        let (key, first) = (variable_at("PL_thr_key"), variable_at("PL_curinterp"));
        let context = match (key, first, variable_at("PL_curstackinfo")) {
            (key, first, _) if key != 0 && first != 0 => InterpreterLocator::Key { key, first },
            (_, _, curstackinfo) if curstackinfo != 0 => InterpreterLocator::Variables,
            (_, first, _) if first != 0 => InterpreterLocator::Pointer(first),
            _ => return Some(Err(UnreadablePerl::Variable(version))),
        };
        let has_interpreter = context != InterpreterLocator::Variables;
        let Some(mut layout) = given.or_else(|| PerlLayout::for_version(version, has_interpreter))
        else {
            return Some(Err(UnreadablePerl::Version(version)));
        };
        let size = symbol("PL_interp_size").and_then(|symbol| memory.u16(symbol.address));
        if let (Some(size), Some(known)) = (size.map(u32::from), layout.interpreter_size)
            && size != known
        {
            return Some(Err(UnreadablePerl::Size(version, size)));
        }
        let mut options = [0; 4096];
        let read = memory.text(address("PL_bincompat_options"), &mut options);
        let options = &options[..read.unwrap_or(0)];
        let was_built_with =
            |option: &[u8]| options.windows(option.len()).any(|part| part == option);
        // A layout from the perl's own headers accounts for the other options.
        let has = |option: &[u8]| given.is_none() && was_built_with(option);
        if has(b"DEBUG_LEAKING_SCALARS") {
            // The head of each value is longer.
            return Some(Err(UnreadablePerl::Build(version)));
        }
        if has(b"USE_LONG_DOUBLE") || has(b"USE_QUADMATH") {
            // A number that may stand in the place of a glob's package is 16 bytes.
            layout.gv_stash = 0x30;
            // Bodies may be longer for the same reason.
            layout.body_number = None;
        }
        let variable = match context {
            InterpreterLocator::Variables => by_name(&variable_at),
            _ => by_offset(&layout),
        };
        let Some(mut variable) = variable else {
            return Some(Err(UnreadablePerl::Variable(version)));
        };
        let has_long_heads = was_built_with(b"DEBUG_LEAKING_SCALARS");
        if has_long_heads || PerlLayout::for_version(version, has_interpreter).is_none() {
            // The structures in such a perl's arenas are not known.
            variable.arenas = None;
        }
        if has(b"SAWAMPERSAND") && has_interpreter {
            // This build has some variables that the table lacks.
            (variable.phase, variable.cop_seqmax) = (None, None);
            (variable.strtab, variable.arenas) = (None, None);
        }
        let code = |name: &str| code_of(memory, object, name);
        let perl = Self {
            version,
            locator: context,
            caller_cx: address("Perl_caller_cx"),
            run_loop: Self::run_loop_of(memory, object),
            arena_code: ["Perl_more_sv", "Perl_more_bodies"].map(code),
            slab_code: code("Perl_Slab_Alloc"),
            op_names: address("PL_op_name"),
            layout,
            is_usual: layout.is_usual(),
            variable,
        };
        Some(match perl.has_ops(memory) {
            true => Ok(perl),
            false => Err(UnreadablePerl::Ops(version)),
        })
    }

    /// Returns the beginning and end of the loop that runs the ops of the perl in `object`; zeros
    /// if it is not known. The layout of the perl need not be known.
    pub fn run_loop_of<M: Memory>(memory: M, object: LoadedObject) -> (u64, u64) {
        code_of(memory, object, "Perl_runops_standard")
    }

    /// Returns the base to which the offsets of the variables are added: `at`, the address of the
    /// interpreter, or 0 if each variable is a separate symbol.
    #[inline]
    pub fn base_of(&self, at: u64) -> u64 {
        match self.locator {
            InterpreterLocator::Variables => 0,
            _ => at,
        }
    }

    /// Returns the [base](Self::base_of) of the process's first interpreter; `None` if there is no
    /// interpreter yet.
    pub fn first_interpreter<M: Memory>(&self, memory: M) -> Option<u64> {
        match self.locator {
            InterpreterLocator::Variables => Some(0),
            InterpreterLocator::Pointer(at) | InterpreterLocator::Key { first: at, .. } => {
                memory.u64(at).filter(|&first| first != 0)
            }
        }
    }

    /// Returns the size of an interpreter in bytes; `None` if each variable is a separate symbol.
    pub fn interpreter_size(&self) -> Option<u64> {
        let has_one = self.locator != InterpreterLocator::Variables;
        self.layout
            .interpreter_size
            .filter(|_| has_one)
            .map(u64::from)
    }

    /// Returns the layout of contexts.
    pub fn contexts(&self) -> ContextLayout {
        let layout = &self.layout;
        ContextLayout {
            size: layout.cx_size.into(),
            sub: (layout.cx_is_sub & layout.cx_type_mask) as u8,
            mask: layout.cx_type_mask as u8,
            own: layout.cx_sub_retop.into(),
            code: layout.cx_sub_cv.into(),
            name: layout.cx_eval_namesv.into(),
        }
    }

    /// Whether another perl has the same layout, and the same way to find an interpreter.
    pub fn reads_same_places(&self, other: &Self) -> bool {
        (self.layout, self.locator) == (other.layout, other.locator)
    }

    /// Whether this perl has the op numbers of the layout. Op numbers differ between most releases.
    pub fn has_ops<M: Memory>(&self, memory: M) -> bool {
        let layout = &self.layout;
        let is = |op: u32, wanted: &str| {
            let mut room = [0; 24];
            let name = memory.u64(self.op_names + 8 * u64::from(op));
            let n = name.and_then(|name| memory.text(name, &mut room));
            n.is_some_and(|n| room[..n] == *wanted.as_bytes())
        };
        self.op_names == 0
            || is(layout.op_require, "require")
                && is(layout.op_dofile, "dofile")
                && is(layout.op_entereval, "entereval")
                && is(layout.op_nextstate, "nextstate")
                && is(layout.op_dbstate, "dbstate")
                && is(layout.op_max, "freed")
    }

    /// Returns this perl with another layout. Tests use it to try wrong layouts.
    #[must_use]
    pub fn with_layout(self, layout: PerlLayout) -> Self {
        let variable = match self.locator {
            InterpreterLocator::Variables => self.variable,
            _ => by_offset(&layout).unwrap_or(self.variable),
        };
        Self {
            layout,
            is_usual: layout.is_usual(),
            variable,
            ..self
        }
    }

    /// Copies the name of an op, such as `concat`, into `to`. Returns the length of the name.
    pub fn op_name<M: Memory>(&self, memory: M, op: u16, to: &mut [u8]) -> Option<usize> {
        if op == 0 || u32::from(op) >= self.layout.op_max || self.op_names == 0 {
            return None;
        }
        let name = memory.u64(self.op_names + 8 * u64::from(op))?;
        memory.text(name, to)
    }

    /// Returns the number of different ops.
    pub fn ops(&self) -> u16 {
        self.layout.op_max as u16
    }

    /// Returns an address on the stack of the thread that runs an interpreter; `None` if no thread
    /// runs it, or if it only runs code that can't die.
    pub fn place_on_stack<M: Memory>(&self, memory: M, interpreter: u64) -> Option<u64> {
        let start = interpreter.wrapping_add(self.variable.start_env);
        let place = memory.u64(interpreter.wrapping_add(self.variable.top_env))?;
        Some(place).filter(|&place| place != 0 && place != start)
    }

    /// Whether an interpreter is still in a call of a sub that is written in C. This is true if the
    /// interpreter still runs the op of the call, and the number of contexts is unchanged.
    pub fn is_in_call<M: Memory>(&self, memory: M, interpreter: u64, call: &XsubCall) -> bool {
        let read = |at: u64| memory.u64(interpreter.wrapping_add(at));
        let is_same = [read(self.variable.op), read(self.variable.curstackinfo)]
            == [Some(call.op), Some(call.info)];
        let ix = || memory.u32(call.info + u64::from(self.layout.si_cxix));
        call.sub != 0 && is_same && ix() == Some(call.ix)
    }

    /// Returns the address of a special statement of the interpreter. It represents the text that
    /// Perl compiles now.
    pub(crate) fn compiling(&self, interpreter: u64) -> u64 {
        interpreter.wrapping_add(self.variable.compiling)
    }
}

/// Returns the beginning and end of a function's code; zeros if it has no symbol.
fn code_of<M: Memory>(memory: M, object: LoadedObject, name: &str) -> (u64, u64) {
    let symbol = object.symbol(memory, name);
    symbol.map_or((0, 0), |of| (of.address, of.address + of.size))
}

/// Returns the offsets of the variables in an interpreter that is one structure.
fn by_offset(layout: &PerlLayout) -> Option<InterpreterVariables> {
    let at = |offset: Option<u32>| offset.map(u64::from);
    Some(InterpreterVariables {
        stack_sp: at(layout.stack_sp)?,
        stack_base: at(layout.stack_base)?,
        stack_max: at(layout.stack_max)?,
        op: at(layout.op)?,
        curcop: at(layout.curcop)?,
        curstackinfo: at(layout.curstackinfo)?,
        top_env: at(layout.top_env)?,
        start_env: at(layout.start_env)?,
        compiling: at(layout.compiling)?,
        db_sub: at(layout.db_sub)?,
        cop_seqmax: at(layout.cop_seqmax),
        phase: at(layout.phase),
        strtab: at(layout.strtab),
        arenas: arenas([
            at(layout.sv_count),
            at(layout.sv_root),
            at(layout.sv_arenaroot),
            at(layout.body_roots),
            at(layout.body_arenas),
        ]),
    })
}

/// Returns the addresses of the variables, if each variable is a separate symbol.
fn by_name(address: &impl Fn(&str) -> u64) -> Option<InterpreterVariables> {
    let at = |name: &str| Some(address(name)).filter(|&at| at != 0);
    Some(InterpreterVariables {
        stack_sp: at("PL_stack_sp")?,
        stack_base: at("PL_stack_base")?,
        stack_max: at("PL_stack_max")?,
        op: at("PL_op")?,
        curcop: at("PL_curcop")?,
        curstackinfo: at("PL_curstackinfo")?,
        top_env: at("PL_top_env")?,
        start_env: at("PL_start_env")?,
        compiling: at("PL_compiling")?,
        db_sub: at("PL_DBsub")?,
        cop_seqmax: at("PL_cop_seqmax"),
        phase: at("PL_phase"),
        strtab: at("PL_strtab"),
        arenas: arenas([
            at("PL_sv_count"),
            at("PL_sv_root"),
            at("PL_sv_arenaroot"),
            at("PL_body_roots"),
            at("PL_body_arenas"),
        ]),
    })
}

fn arenas(at: [Option<u64>; 5]) -> Option<ArenaVariables> {
    let [
        Some(sv_count),
        Some(sv_root),
        Some(sv_arenaroot),
        Some(body_roots),
        Some(body_arenas),
    ] = at
    else {
        return None;
    };
    Some(ArenaVariables {
        sv_count,
        sv_root,
        sv_arenaroot,
        body_roots,
        body_arenas,
    })
}
