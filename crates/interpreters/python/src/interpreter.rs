//! A CPython in a process: its version, and the way to find the state of the thread that runs it.

use heapprof_memory::Memory;
use heapprof_memory::loaded_modules::LoadedObject;

use crate::layout::{LAYOUTS, ModulesOffset, PythonLayout};

/// A Python version, such as 3.11.7.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonVersion {
    /// The first number.
    pub major: u8,
    /// The second number, on which the layout of structures depends.
    pub minor: u8,
    /// The third number; `None` if this Python does not export it.
    pub micro: Option<u8>,
}

impl core::fmt::Display for PythonVersion {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        match self.micro {
            Some(micro) => write!(f, ".{micro}"),
            None => Ok(()),
        }
    }
}

/// The location of the thread-local variable with a thread's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLocal {
    /// The variable's offset from the thread pointer.
    Offset(i64),
    /// The variable is in a module's thread-local memory. Two words contain the module's number,
    /// and a position in this memory.
    Index {
        /// Address of the two words.
        at: u64,
        /// The variable's offset from the position.
        offset: i64,
    },
}

/// How to find the state of the thread that runs Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CurrentThreadState {
    /// A global variable, at this address, points to the state of the thread that has the GIL.
    Holder(u64),
    /// A thread-local variable points to the thread's state. It is null while the thread does not
    /// have the GIL.
    Own(ThreadLocal),
    /// The location of the thread-local variable is not known.
    Unknown,
}

/// A CPython that was found in a process.
#[derive(Clone, Copy, Debug)]
pub struct PythonRuntime {
    /// The Python's version.
    pub version: PythonVersion,
    /// How to find the state of the thread that runs Python.
    pub current: CurrentThreadState,
    /// The beginning and end of the evaluator's code; zeros if it is not known.
    pub evaluator: (u64, u64),
    /// Address of the variable with the state of the whole process (`_PyRuntime`).
    runtime: u64,
    /// Address of a word about the key for threads' states. The lower half is whether there is a
    /// key, and the upper half is the key.
    key_is_made: u64,
    /// Address of a word that is not 0 if Python is initialized.
    initialized: u64,
    /// Address of the type of code objects.
    pub(crate) code_type: u64,
    pub(crate) layout: &'static PythonLayout,
}

/// The reason why a Python's stacks can't be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreadablePython {
    /// The structures of this version are not known.
    Version(PythonVersion),
    /// This Python exports no version, and no known version has a runtime of its size (in bytes).
    Size(u64),
    /// This Python is a debug build.
    Debug(PythonVersion),
    /// The offsets of structures that this Python exports are not the offsets of its version.
    Offsets(PythonVersion),
    /// A variable is not exported.
    Variable(PythonVersion),
}

impl core::fmt::Display for UnreadablePython {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "the structures of Python {version} are not known")
            }
            Self::Size(size) => write!(
                f,
                "this Python does not report its version, and its runtime of {size} bytes matches \
                 no known version"
            ),
            Self::Debug(version) => write!(f, "this Python {version} is a debug build"),
            Self::Offsets(version) => write!(
                f,
                "this Python {version} was built with options that change its structures"
            ),
            Self::Variable(version) => {
                write!(f, "this Python {version} does not export its variables")
            }
        }
    }
}

/// Lowest value of a version number's last byte in a release candidate. Alphas and betas, which
/// have lower values, may have other structures.
const MIN_RELEASE_CANDIDATE: u64 = 0xc0;
/// Index of the word in `_Py_DebugOffsets` with the flag for a missing GIL.
const FREE_THREADED_WORD: u64 = 2;
/// Symbols that only debug builds export.
const DEBUG_BUILD_SYMBOLS: [&str; 3] = ["_Py_RefTotal", "_Py_GetRefTotal", "_Py_NegativeRefcount"];

impl PythonRuntime {
    /// Finds the Python in `object`; `None` if there is none.
    pub fn find<M: Memory>(
        memory: M,
        object: LoadedObject,
    ) -> Option<Result<Self, UnreadablePython>> {
        let symbol = |name: &str| object.symbol(memory, name);
        let runtime = symbol("_PyRuntime")?;
        let number = symbol("Py_Version").and_then(|symbol| memory.u64(symbol.address));
        let (version, layout) = match number {
            Some(number) => {
                let byte = |shift: u32| (number >> shift) as u8;
                let version = PythonVersion {
                    major: byte(24),
                    minor: byte(16),
                    micro: Some(byte(8)),
                };
                // Versions that may lack the GIL say so at the beginning of the runtime.
                let says_none = || memory.u64(runtime.address + 8 * FREE_THREADED_WORD) == Some(1);
                let has_gil = version.minor < 13 || !says_none();
                let is_known = |layout: &&PythonLayout| {
                    let is_final = number & 0xff >= MIN_RELEASE_CANDIDATE;
                    let is_it = (layout.minor, layout.has_gil) == (version.minor, has_gil);
                    version.major == 3 && is_it && is_final
                };
                let Some(layout) = LAYOUTS.iter().find(is_known) else {
                    return Some(Err(UnreadablePython::Version(version)));
                };
                (version, layout)
            }
            // 3.8, 3.9 and 3.10 differ in the runtime's size.
            None => {
                let is_known = |layout: &&PythonLayout| layout.runtime_size == Some(runtime.size);
                let Some(layout) = LAYOUTS.iter().find(is_known) else {
                    return Some(Err(UnreadablePython::Size(runtime.size)));
                };
                let version = PythonVersion {
                    major: 3,
                    minor: layout.minor,
                    micro: None,
                };
                (version, layout)
            }
        };
        if DEBUG_BUILD_SYMBOLS
            .iter()
            .any(|name| symbol(name).is_some())
        {
            return Some(Err(UnreadablePython::Debug(version)));
        }
        let Some(code_type) = symbol("PyCode_Type") else {
            return Some(Err(UnreadablePython::Variable(version)));
        };
        let evaluator = symbol("_PyEval_EvalFrameDefault").map_or((0, 0), |symbol| {
            (symbol.address, symbol.address + symbol.size)
        });
        let current = match layout.holder {
            Some(holder) => CurrentThreadState::Holder(runtime.address + holder),
            None => {
                let names = ["PyThreadState_GetUnchecked", "_PyThreadState_UncheckedGet"];
                let getter = names.iter().find_map(|name| symbol(name));
                let found = getter.and_then(|getter| variable_of(memory, getter.address));
                found.map_or(CurrentThreadState::Unknown, CurrentThreadState::Own)
            }
        };
        let python = Self {
            version,
            current,
            evaluator,
            runtime: runtime.address,
            key_is_made: runtime.address + layout.key_is_made,
            initialized: runtime.address + layout.initialized,
            code_type: code_type.address,
            layout,
        };
        Some(python.check_debug_offsets(memory))
    }

    /// Makes a Python of which only the layout is known, for tests.
    #[cfg(test)]
    pub(crate) fn with_layout(layout: &'static PythonLayout) -> Self {
        Self {
            version: PythonVersion {
                major: 3,
                minor: layout.minor,
                micro: None,
            },
            current: CurrentThreadState::Unknown,
            evaluator: (0, 0),
            runtime: 0,
            key_is_made: 0,
            initialized: 0,
            code_type: 0,
            layout,
        }
    }

    /// Checks the offsets of structures that this Python exports. Returns an error if they differ
    /// from the offsets of its version.
    fn check_debug_offsets<M: Memory>(self, memory: M) -> Result<Self, UnreadablePython> {
        const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
        if self.layout.minor < 13 {
            return Ok(self);
        }
        let word = |number: u64| memory.u64(self.runtime + 8 * number);
        if word(0) != Some(COOKIE) {
            return Err(UnreadablePython::Offsets(self.version));
        }
        if word(FREE_THREADED_WORD) != Some(u64::from(!self.layout.has_gil)) {
            return Err(UnreadablePython::Offsets(self.version));
        }
        let is_so = |&(number, reported): &(u64, u64)| word(number) == Some(reported);
        match self.layout.expected_debug_offsets().iter().all(is_so) {
            true => Ok(self),
            false => Err(UnreadablePython::Offsets(self.version)),
        }
    }

    /// Whether only one thread at a time runs Python code. A Python without the GIL allocates all
    /// objects with its own allocator.
    pub fn has_gil(&self) -> bool {
        self.layout.has_gil
    }

    /// Returns the key for `pthread_getspecific` under which each thread stores its state; `None`
    /// if there is no key at this moment.
    pub fn key<M: Memory>(&self, memory: M) -> Option<u32> {
        let made = memory.u64(self.key_is_made)?;
        // The key is in the upper half, behind the number that says whether there is one.
        (made as u32 != 0).then_some((made >> 32) as u32)
    }

    /// Whether Python is initialized.
    pub fn is_initialized<M: Memory>(&self, memory: M) -> bool {
        let found = memory.u32(self.initialized);
        found.is_some_and(|initialized| initialized != 0)
    }

    /// Returns the dictionary of modules of the interpreter to which a thread's state belongs.
    pub(crate) fn modules<M: Memory>(&self, memory: M, state: u64) -> Option<u64> {
        /// Offset, in a thread's state, of the address of its interpreter. It is the same in all
        /// versions.
        const INTERPRETER_OFFSET: u64 = 16;
        let offset = match self.layout.modules {
            ModulesOffset::Fixed(offset) => offset,
            ModulesOffset::RuntimeWord(word) => memory.u64(self.runtime + 8 * word)?,
        };
        memory.u64(
            memory
                .u64(state + INTERPRETER_OFFSET)?
                .checked_add(offset)?,
        )
    }

    /// Whether a state belongs to the thread with the `pthread_self` value `thread`.
    pub fn is_state_of<M: Memory>(&self, memory: M, state: u64, thread: u64) -> bool {
        memory.u64(state + self.layout.thread_id) == Some(thread)
    }
}

/// Reads the code of a function that returns a thread-local variable, on x86-64. Returns the
/// variable's location.
fn variable_of<M: Memory>(memory: M, code: u64) -> Option<ThreadLocal> {
    let mut bytes = [0; 48];
    if !memory.read(code, &mut bytes) {
        return None;
    }
    let number = |at: usize| {
        let four = bytes.get(at..)?.first_chunk()?;
        Some(i64::from(i32::from_le_bytes(*four)))
    };
    // endbr64
    let begin = if bytes.starts_with(&[0xf3, 0x0f, 0x1e, 0xfa]) {
        4
    } else {
        0
    };
    // mov fs:number, rax
    if bytes[begin..].starts_with(&[0x64, 0x48, 0x8b, 0x04, 0x25]) {
        return Some(ThreadLocal::Offset(number(begin + 5)?));
    }
    // lea number(rip), rdi; call __tls_get_addr; mov number(rax), rax
    let find = |from: usize, wanted: &[u8]| {
        let found = bytes[from..].windows(wanted.len());
        let mut found = found.enumerate().filter(|(_, bytes)| *bytes == wanted);
        found.next().map(|(at, _)| from + at + wanted.len())
    };
    let lea = find(begin, &[0x48, 0x8d, 0x3d])?;
    let at = code.wrapping_add(lea as u64 + 4);
    let at = at.wrapping_add_signed(number(lea)?);
    let load = find(lea + 4, &[0x48, 0x8b])?;
    let offset = match *bytes.get(load)? {
        0x00 => 0,
        0x40 => i64::from(*bytes.get(load + 1)? as i8),
        0x80 => number(load + 1)?,
        _ => return None,
    };
    Some(ThreadLocal::Index { at, offset })
}

/// Maximum distance, in bytes, from a static thread-local variable up to the thread pointer.
const MAX_STATIC_TLS: u64 = 64 << 10;

impl ThreadLocal {
    /// Returns the offset of the variable from the thread pointer, if it is equal in all threads.
    /// `None` if it differs, as in a library that was loaded later. `thread` is the thread pointer
    /// of the calling thread.
    ///
    /// This reads structures of libc on x86-64. The word after the thread pointer is the address of
    /// an array. For each module it has the address of the module's thread-local memory, in glibc
    /// followed by another word.
    pub fn offset<M: Memory>(self, memory: M, thread: u64, is_glibc: bool) -> Option<i64> {
        let (at, offset) = match self {
            Self::Offset(offset) => return Some(offset),
            Self::Index { at, offset } => (at, offset),
        };
        const MAX_MODULES: u64 = 100_000;
        let (module, place) = (memory.u64(at)?, memory.u64(at.wrapping_add(8))?);
        let modules = memory.u64(thread + 8)?;
        if module == 0 || module > MAX_MODULES {
            return None;
        }
        let entry_len = if is_glibc { 16 } else { 8 };
        let block = memory.u64(modules.wrapping_add(entry_len * module))?;
        let address = block.wrapping_add(place).wrapping_add_signed(offset);
        let before = thread.wrapping_sub(address);
        (0..=MAX_STATIC_TLS)
            .contains(&before)
            .then(|| -(before as i64))
            .filter(|_| block != u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct ByteMemory(&'static [u8]);

    impl Memory for ByteMemory {
        fn read(self, at: u64, to: &mut [u8]) -> bool {
            let Some(from) = at.checked_sub(0x1000) else {
                return false;
            };
            for (i, byte) in to.iter_mut().enumerate() {
                *byte = self.0.get(from as usize + i).copied().unwrap_or(0xcc);
            }
            true
        }
    }

    #[test]
    fn a_getter_says_where_its_variable_is() {
        let executable: &[u8] = &[0x64, 0x48, 0x8b, 0x04, 0x25, 0xf8, 0xff, 0xff, 0xff, 0xc3];
        assert_eq!(
            variable_of(ByteMemory(executable), 0x1000),
            Some(ThreadLocal::Offset(-8))
        );
        // The code of the getter in 3.12.1.
        let library: &[u8] = &[
            0x48, 0x83, 0xec, 0x08, 0x66, 0x48, 0x8d, 0x3d, 0xf4, 0xc9, 0x26, 0x00, 0x66, 0x66,
            0x48, 0xe8, 0xdc, 0x10, 0xe3, 0xff, 0x48, 0x8b, 0x00, 0x48, 0x83, 0xc4, 0x08, 0xc3,
        ];
        assert_eq!(
            variable_of(ByteMemory(library), 0x1000),
            Some(ThreadLocal::Index {
                at: 0x1000 + 12 + 0x26_c9f4,
                offset: 0
            })
        );
        assert_eq!(variable_of(ByteMemory(&[0xc3]), 0x1000), None);
    }
}
