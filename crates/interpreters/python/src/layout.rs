//! The offsets of fields in CPython's structures, by minor version.
//!
//! The numbers are `offsetof` values of the 64-bit release builds of 3.8 to 3.14, from CPython's
//! own headers (`Include/internal`). Builds without the GIL (3.13t, 3.14t) have a longer header in
//! every object.

/// The way in which a thread's frames are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameChain {
    /// Frames are objects, and the evaluator is called for each frame (up to 3.10).
    Objects,
    /// A structure on the native stack points to the newest frame. Each frame says whether native
    /// code entered the evaluator there (3.11).
    Entries,
    /// A structure on the native stack points to the newest frame. One call of the evaluator runs
    /// several frames. The last of them is a shim, a frame on the native stack (3.12).
    Shims,
    /// The thread's state points to the newest frame. Runs of frames end with shims as in 3.12
    /// (from 3.13 on).
    Direct,
}

/// The format of a code object's line table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineTableFormat {
    /// Pairs of a number of bytes and a number of lines (3.8, 3.9).
    Pairs,
    /// Pairs of a number of bytes and a number of lines, where -128 stands for no line (3.10).
    Ends,
    /// Entries of several bytes each (from 3.11 on).
    Entries,
}

/// The offset of an interpreter's dictionary of modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModulesOffset {
    /// A fixed offset from the interpreter's beginning.
    Fixed(u64),
    /// The value of the runtime's word with this index is the offset (from 3.13 on).
    RuntimeWord(u64),
}

/// The offsets, in bytes, in the structures of one version.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PythonLayout {
    pub(crate) minor: u8,
    /// Whether only one thread at a time runs Python code.
    pub(crate) has_gil: bool,
    /// The number of bytes by which the header of every object is longer than 16 bytes.
    pub(crate) header: u64,
    pub(crate) chain: FrameChain,
    pub(crate) lines: LineTableFormat,
    /// Offset, in the runtime, of the state of the thread that has the GIL; `None` if this is a
    /// thread-local variable.
    pub(crate) holder: Option<u64>,
    /// Offset, in the runtime, of a flag of 32 bits: whether there is a key for threads' states.
    /// The key follows.
    pub(crate) key_is_made: u64,
    /// Offset, in the runtime, of the flag that says whether Python is initialized.
    pub(crate) initialized: u64,
    /// Size of the runtime in versions that export no version number; `None` in others.
    pub(crate) runtime_size: Option<u64>,
    /// Offset, in a thread's state, of the thread's `pthread_self` value.
    pub(crate) thread_id: u64,
    /// Offset, in a thread's state, of the address of its newest frame, or of the structure that
    /// points to this frame.
    pub(crate) newest: u64,
    /// Offset, in the structure on the native stack, of the pointer to the newest frame.
    pub(crate) newest_in: u64,
    /// Offset, in a frame, of its caller's frame.
    pub(crate) previous: u32,
    /// Offset, in a frame, of the code.
    pub(crate) code: u32,
    /// Offset, in a frame, of the instruction.
    pub(crate) instruction: u32,
    /// Offset, in a frame, of its owner. In 3.11, the field says whether native code entered the
    /// evaluator there.
    pub(crate) owner: u32,
    /// The value of a frame's owner that marks a shim: a frame on the native stack that ends a run
    /// of frames.
    pub(crate) shim: u8,
    /// Offset, in a code object, of its file name. The fields from here to `copies` are offsets in
    /// a code object.
    pub(crate) filename: u32,
    pub(crate) name: u32,
    pub(crate) qualname: Option<u32>,
    pub(crate) first_line: u32,
    pub(crate) line_table: u32,
    pub(crate) instructions: u32,
    /// Offset of a number that is unique to the code object; `None` before 3.12.
    pub(crate) version: Option<u32>,
    /// Offset of the copies of the instructions. There is a copy for each thread that runs the
    /// code; `None` if all threads share the instructions.
    pub(crate) copies: Option<u32>,
    /// Position of the lowest bit of a text's form in the word at [`FORM_OFFSET`].
    pub(crate) form: u32,
    /// Offset, in a text, of its characters if they are ASCII. The next field is the offset of the
    /// characters of other texts.
    pub(crate) ascii: u64,
    pub(crate) other: u64,
    /// Offset, in an interpreter, of its dictionary of modules.
    pub(crate) modules: ModulesOffset,
    /// Offset, in a tuple, of its first element, for a header of 16 bytes.
    pub(crate) elements: u64,
}

/// Offset, in the structure on the native stack, of the address of the caller's structure (3.11).
pub(crate) const OUTER_OFFSET: u64 = 16;
/// Offset, in every object, of the address of its type. This offset and the following ones are for
/// a header of 16 bytes.
pub(crate) const TYPE_OFFSET: u64 = 8;
/// Offset, in texts, bytes objects, tuples and code objects, of their length.
pub(crate) const LENGTH_OFFSET: u64 = 16;
/// Offset, in a text, of its hash.
pub(crate) const HASH_OFFSET: u64 = 24;
/// Offset, in a text, of the word with its form: width, compactness, ASCII.
pub(crate) const FORM_OFFSET: u64 = 32;
/// Offset, in a bytes object, of its first byte.
pub(crate) const BYTES_OFFSET: u64 = 32;

const LAYOUT_3_8: PythonLayout = PythonLayout {
    minor: 8,
    has_gil: true,
    header: 0,
    chain: FrameChain::Objects,
    lines: LineTableFormat::Pairs,
    holder: Some(1368),
    key_is_made: 1392,
    initialized: 12,
    runtime_size: Some(1464),
    thread_id: 176,
    newest: 24,
    newest_in: 0,
    previous: 24,
    code: 32,
    instruction: 104,
    owner: 0,
    shim: 0,
    filename: 104,
    name: 112,
    qualname: None,
    first_line: 40,
    line_table: 120,
    instructions: 0,
    version: None,
    copies: None,
    form: 2,
    ascii: 48,
    other: 72,
    modules: ModulesOffset::Fixed(56),
    elements: 24,
};

const LAYOUT_3_9: PythonLayout = PythonLayout {
    minor: 9,
    modules: ModulesOffset::Fixed(856),
    holder: Some(568),
    key_is_made: 584,
    runtime_size: Some(656),
    ..LAYOUT_3_8
};

const LAYOUT_3_10: PythonLayout = PythonLayout {
    minor: 10,
    lines: LineTableFormat::Ends,
    runtime_size: Some(672),
    instruction: 96,
    ..LAYOUT_3_9
};

const LAYOUT_3_11: PythonLayout = PythonLayout {
    minor: 11,
    chain: FrameChain::Entries,
    lines: LineTableFormat::Entries,
    holder: Some(576),
    key_is_made: 592,
    initialized: 16,
    runtime_size: None,
    thread_id: 152,
    newest: 56,
    newest_in: 8,
    previous: 48,
    code: 32,
    instruction: 56,
    owner: 68,
    shim: 0,
    filename: 112,
    name: 120,
    qualname: Some(128),
    first_line: 72,
    line_table: 136,
    instructions: 184,
    version: None,
    copies: None,
    form: 2,
    ascii: 48,
    other: 72,
    modules: ModulesOffset::Fixed(888),
    ..LAYOUT_3_10
};

const LAYOUT_3_12: PythonLayout = PythonLayout {
    minor: 12,
    chain: FrameChain::Shims,
    holder: None,
    key_is_made: 1544,
    thread_id: 136,
    newest: 56,
    newest_in: 0,
    previous: 8,
    code: 0,
    owner: 70,
    shim: 3,
    first_line: 68,
    instructions: 192,
    version: Some(92),
    ascii: 40,
    other: 56,
    modules: ModulesOffset::Fixed(944),
    ..LAYOUT_3_11
};

const LAYOUT_3_13: PythonLayout = PythonLayout {
    minor: 13,
    chain: FrameChain::Direct,
    key_is_made: 2160,
    initialized: 600,
    thread_id: 152,
    newest: 72,
    instructions: 200,
    modules: ModulesOffset::RuntimeWord(11),
    ..LAYOUT_3_12
};

const LAYOUT_3_14: PythonLayout = PythonLayout {
    minor: 14,
    key_is_made: 2336,
    initialized: 776,
    owner: 74,
    instructions: 208,
    modules: ModulesOffset::RuntimeWord(12),
    elements: 32,
    ..LAYOUT_3_13
};

/// The layout of Python 3.13 without the GIL.
const LAYOUT_3_13T: PythonLayout = PythonLayout {
    has_gil: false,
    header: 16,
    filename: 128,
    name: 136,
    qualname: Some(144),
    first_line: 84,
    line_table: 152,
    instructions: 216,
    version: Some(108),
    ascii: 56,
    other: 72,
    ..LAYOUT_3_13
};

/// The layout of Python 3.14 without the GIL.
const LAYOUT_3_14T: PythonLayout = PythonLayout {
    minor: 14,
    key_is_made: LAYOUT_3_14.key_is_made,
    initialized: LAYOUT_3_14.initialized,
    owner: 78,
    instructions: 232,
    copies: Some(224),
    form: 8,
    modules: LAYOUT_3_14.modules,
    elements: LAYOUT_3_14.elements,
    ..LAYOUT_3_13T
};

/// The layouts of all known versions.
pub(crate) static LAYOUTS: [PythonLayout; 9] = [
    LAYOUT_3_8,
    LAYOUT_3_9,
    LAYOUT_3_10,
    LAYOUT_3_11,
    LAYOUT_3_12,
    LAYOUT_3_13,
    LAYOUT_3_14,
    LAYOUT_3_13T,
    LAYOUT_3_14T,
];

impl PythonLayout {
    /// Returns the owner of a frame from the frame's word at [`owner_word`](Self::owner_word).
    #[inline(always)]
    pub(crate) fn owner_of(&self, word: u64) -> u8 {
        word.to_ne_bytes()[self.owner as usize & 7]
    }

    /// Returns the offset, in a frame, of the word that contains the owner.
    #[inline(always)]
    pub(crate) fn owner_word(&self) -> u32 {
        self.owner & !7
    }

    /// Calls `work` with this layout as a constant, so that the compiler makes separate code for
    /// each version, with the offsets in the instructions.
    #[inline(always)]
    pub(crate) fn as_constant<R>(&self, work: impl FnOnce(&'static Self) -> R) -> R {
        match (self.minor, self.has_gil) {
            (8, _) => work(&LAYOUT_3_8),
            (9, _) => work(&LAYOUT_3_9),
            (10, _) => work(&LAYOUT_3_10),
            (11, _) => work(&LAYOUT_3_11),
            (12, _) => work(&LAYOUT_3_12),
            (13, true) => work(&LAYOUT_3_13),
            (13, false) => work(&LAYOUT_3_13T),
            (_, true) => work(&LAYOUT_3_14),
            (_, false) => work(&LAYOUT_3_14T),
        }
    }

    /// Returns the words that `_Py_DebugOffsets` must have, each as its index and its value. This
    /// structure is the first part of the runtime since 3.13.
    pub(crate) fn expected_debug_offsets(&self) -> &'static [(u64, u64)] {
        match (self.minor, self.has_gil) {
            // Of threads: current_frame, thread_id. Of frames: previous, executable, instr_ptr,
            // owner. Of code: filename, name, qualname, linetable, firstlineno, co_code_adaptive.
            // Of objects: ob_type. Of bytes: ob_size, ob_sval. Of texts: state, length,
            // asciiobject_size.
            (13, true) => &[
                (23, 72),
                (24, 152),
                (29, 8),
                (30, 0),
                (31, 56),
                (33, 70),
                (35, 112),
                (36, 120),
                (37, 128),
                (38, 136),
                (39, 68),
                (43, 200),
                (45, 8),
                (65, 16),
                (66, 32),
                (68, 32),
                (69, 16),
                (70, 40),
            ],
            (13, false) => &[
                (23, 72),
                (24, 152),
                (29, 8),
                (30, 0),
                (31, 56),
                (33, 70),
                (35, 128),
                (36, 136),
                (37, 144),
                (38, 152),
                (39, 84),
                (43, 216),
                (45, 24),
                (65, 32),
                (66, 48),
                (68, 48),
                (69, 32),
                (70, 56),
            ],
            (14, true) => &[
                (26, 72),
                (27, 152),
                (32, 8),
                (33, 0),
                (34, 56),
                (36, 74),
                (40, 112),
                (41, 120),
                (42, 128),
                (43, 136),
                (44, 68),
                (48, 208),
                (51, 8),
                (75, 16),
                (76, 32),
                (78, 32),
                (79, 16),
                (80, 40),
            ],
            // Of code besides: co_tlbc.
            (14, false) => &[
                (26, 72),
                (27, 152),
                (32, 8),
                (33, 0),
                (34, 56),
                (36, 78),
                (40, 128),
                (41, 136),
                (42, 144),
                (43, 152),
                (44, 84),
                (48, 232),
                (49, 224),
                (51, 24),
                (75, 32),
                (76, 48),
                (78, 48),
                (79, 32),
                (80, 56),
            ],
            _ => &[],
        }
    }
}
