//! Stack providers: code that knows the frames of an interpreter in the program.
//!
//! The engine calls a provider in two steps. *Capture* runs inside an allocation and returns frames
//! as numbers. *Resolve* finds the names of such a frame, when the frame is new and its code still
//! exists. include/heapprof.h declares both for C.

use std::ffi::{CStr, c_char, c_int, c_void};

use heapprof_abi::StackNumber;

/// An interpreter frame, as numbers. Equal frames are at the same position in the program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawFrame {
    /// The running code: a number by which the provider identifies the code, mostly an address. 0
    /// stands for frames that were left out.
    pub code: u64,
    /// The position in the code.
    pub place: u64,
    /// A number that changes when other code replaces the code at the same address.
    pub version: u32,
    /// The line, if the provider knows it without a further search.
    pub line: u32,
    /// Whether native code has entered the interpreter at this frame: 0 if not, 1 if it has, or the
    /// address on the native stack at which it has entered.
    pub entry: u64,
}

/// Buffers for the texts of a frame. Each text ends with a zero.
#[repr(C)]
#[derive(Debug)]
pub struct NamedFrame {
    /// Buffer for the function's name.
    pub name: *mut c_char,
    /// Size of the buffer for the name, in bytes.
    pub name_size: usize,
    /// Buffer for the name of the source file.
    pub file: *mut c_char,
    /// Size of the buffer for the file's name, in bytes.
    pub file_size: usize,
    /// The line at which the function begins; 0 if it is not known.
    pub start_line: u32,
    /// The running line; 0 if it is not known.
    pub line: u32,
    /// The provider's memory for the thread, as in [`StackCapture::memory`].
    pub memory: *mut c_void,
    /// Size of the provider's memory for the thread, in bytes.
    pub memory_size: usize,
}

/// Arguments and results of a provider's `capture`, except the frames.
#[repr(C)]
#[derive(Debug)]
pub struct StackCapture {
    /// Buffer for the frames.
    pub frames: *mut RawFrame,
    /// Maximum number of frames.
    pub most: usize,
    /// Result: a number below 2^48 that stands for the stack's labels. 0 means no labels.
    pub label: u64,
    /// Result: the number of oldest frames that are equal to those of the last stack that this
    /// provider returned for the thread. They need not be written again. 0 if the number is not
    /// known.
    pub shared: usize,
    /// The provider's memory for the thread, for data about the thread's last stack. It is all
    /// zeros if there is no last stack.
    pub memory: *mut c_void,
    /// Size of the provider's memory for the thread, in bytes.
    pub memory_size: usize,
    /// Number of bytes that the program allocates.
    pub size: usize,
    /// Address of the return address of the allocation's function. It is on the stack on which the
    /// thread runs.
    pub caller: usize,
    /// Beginning of the thread's own stack. The thread may run on another stack now: a coroutine's,
    /// or a signal's.
    pub stack_begin: usize,
    /// End of the thread's own stack. Beginning and end are 0 if they are not known.
    pub stack_end: usize,
    /// Result: whether the allocation is a pool, from which the interpreter takes values of many
    /// functions; 0 if not. The provider's `report` describes the content of pools.
    pub pool: usize,
}

/// A part of the content of an interpreter's pools.
#[repr(C)]
#[derive(Debug)]
pub struct PoolPart {
    /// Name of the part, such as `SV heads (free)`.
    pub name: *const c_char,
    /// Number of blocks that were allocated for the part.
    pub objects: u64,
    /// Number of bytes of the part.
    pub bytes: u64,
}

/// Receiver of a provider's report. The functions get `to` as first argument, and copy their other
/// arguments.
#[repr(C)]
#[derive(Debug)]
pub struct ReportSink {
    /// First argument of the functions in this structure.
    pub to: *mut c_void,
    /// Receives a part of the pools' content.
    pub part: unsafe extern "C" fn(*mut c_void, *const PoolPart),
    /// Receives a line for the profile's comments.
    pub remark: unsafe extern "C" fn(*mut c_void, *const c_char),
    /// Receives the purpose of a part of the memory in use, such as `buffers from_number strings`,
    /// and the part's number of bytes. A provider that reports one part also reports all other
    /// parts that it knows.
    pub account: unsafe extern "C" fn(*mut c_void, *const c_char, u64),
}

/// Values with the same stack and labels. A provider that traces values has counted them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TracedValues {
    /// The engine's number for the stack that made the values; [`TracedValues::NO_STACK`] if the
    /// stack is not known.
    pub stack: StackNumber,
    /// Reserved: 0.
    pub reserved: u32,
    /// A frame that stands for an unknown stack.
    pub frame: *const c_char,
    /// A number that stands for the values' labels, like [`StackCapture::label`].
    pub label: u64,
    /// Number of values that were made.
    pub made: u64,
    /// Number of values that are alive.
    pub objects: u64,
    /// Number of bytes of the values that are alive.
    pub bytes: u64,
}

impl TracedValues {
    /// Stack of values whose creation was not traced.
    pub const NO_STACK: StackNumber = StackNumber::from_u32(u32::MAX);
    /// A row without values and without a stack.
    pub const NONE: Self = Self {
        stack: Self::NO_STACK,
        reserved: 0,
        frame: std::ptr::null(),
        label: 0,
        made: 0,
        objects: 0,
        bytes: 0,
    };
}

/// Content of a provider's report.
#[derive(Default)]
pub(crate) struct ProviderReport {
    /// Parts of the provider's pools: name, objects, bytes.
    pub(crate) parts: Vec<(String, u64, u64)>,
    pub(crate) remarks: Vec<String>,
    /// Purposes of parts of the memory in use, and their bytes.
    pub(crate) accounts: Vec<(String, u64)>,
}

/// A provider of an interpreter's stacks. Its functions get `context` as first argument.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackProvider {
    /// Version of these structures: [`StackProvider::VERSION`].
    pub version: u32,
    /// Size of this structure in bytes.
    pub size: u32,
    /// Name of the interpreter, such as `perl`. A provider replaces an earlier provider with the
    /// same name.
    pub language: *const c_char,
    /// First argument of the functions in this structure.
    pub context: *mut c_void,
    /// Captures the thread's stack, the innermost frame first. Returns the number of frames, or 0
    /// if the thread runs no code of the interpreter. The function runs inside an allocation, so it
    /// must not allocate, wait or call the interpreter.
    pub capture: unsafe extern "C" fn(*mut c_void, *mut StackCapture) -> usize,
    /// Finds the texts of a frame. Returns 0, or another number if it can't. Like `capture`, the
    /// function runs inside an allocation, in the thread to which the frame belongs.
    pub resolve: unsafe extern "C" fn(*mut c_void, *const RawFrame, *mut NamedFrame) -> c_int,
    /// Writes the key and the text of a label into two buffers of the given sizes. The arguments
    /// are a number that stands for labels, and the label's index among them. Returns 0, or another
    /// number if there are no more labels. May be missing.
    pub label: Option<
        unsafe extern "C" fn(
            *mut c_void,
            u64,
            i: usize,
            key: *mut c_char,
            key_size: usize,
            text: *mut c_char,
            text_size: usize,
        ) -> c_int,
    >,
    /// Writes the reason why frames are missing into a buffer of the given size. Returns 0, or
    /// another number if no frames are missing. This function may be missing.
    pub status: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> c_int>,
    /// Beginning of the native code that runs the interpreter's code; null if it is not known.
    pub run_loop: *const c_void,
    /// Number of bytes of the run loop's code.
    pub run_loop_size: usize,
    /// Reports the current content of the interpreter's pools, and other facts for a profile. The
    /// engine calls it when it writes a profile, in any thread, while other threads run. May be
    /// missing.
    pub report: Option<unsafe extern "C" fn(*mut c_void, *const ReportSink)>,
    /// Prefix of the names of the sample types for values, such as `sv`; null if the provider
    /// traces no values.
    pub value_name: *const c_char,
    /// Stores a row of the values that are alive at this moment. Returns 0, or another number if
    /// there are no more rows. The engine calls it when it writes a profile, in any thread, with
    /// the row's index: first 0, then 1, and so on. May be missing.
    pub values: Option<unsafe extern "C" fn(*mut c_void, usize, *mut TracedValues) -> c_int>,
    /// Whether a capture would return the same result as the thread's last capture, including label
    /// and pool. The arguments are the provider's memory for the thread, and its size. Returns 0 if
    /// the result would differ, or if that is not known. The engine calls it instead of `capture`.
    /// It must be missing if captures depend on the size or the caller.
    pub unchanged: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int>,
}

// SAFETY: code that registers a provider promises that its functions can be called in any thread.
unsafe impl Send for StackProvider {}
// SAFETY: as for `Send`.
unsafe impl Sync for StackProvider {}

impl StackProvider {
    /// Version of these structures.
    pub const VERSION: u32 = 1;

    /// Whether this is the same code for the same interpreter as `other`. Only the run loop may lie
    /// elsewhere.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let identity = |provider: &Self| {
            let Self {
                version,
                size,
                language: _,
                context,
                capture,
                resolve,
                label,
                status,
                run_loop: _,
                run_loop_size: _,
                report,
                value_name,
                values,
                unchanged,
            } = *provider;
            (
                (version, size, context, capture as usize, resolve as usize),
                (
                    label.map(|function| function as usize),
                    status.map(|function| function as usize),
                    report.map(|function| function as usize),
                    values.map(|function| function as usize),
                    unchanged.map(|function| function as usize),
                ),
                value_name,
            )
        };
        identity(self) == identity(other) && self.language() == other.language()
    }

    /// Returns the interpreter's name.
    pub(crate) fn language(&self) -> &str {
        if self.language.is_null() {
            return "script";
        }
        // SAFETY: code that registers a provider promises that the text stays.
        let text = unsafe { CStr::from_ptr(self.language) };
        text.to_str().unwrap_or("script")
    }

    /// Returns the labels for which a number stands, each as a key and a text.
    pub(crate) fn labels(&self, label: u64) -> Vec<(String, String)> {
        let Some(get) = self.label else {
            return Vec::new();
        };
        let mut labels = Vec::new();
        while labels.len() < MAX_LABELS {
            let (mut key, mut text) = ([0; 64], [0; 256]);
            let (size, text_size) = (key.len() - 1, text.len() - 1);
            // SAFETY: the buffers have room for these sizes, and one byte more, which stays zero.
            let answer = unsafe {
                get(
                    self.context,
                    label,
                    labels.len(),
                    key.as_mut_ptr().cast(),
                    size,
                    text.as_mut_ptr().cast(),
                    text_size,
                )
            };
            if answer != 0 {
                break;
            }
            labels.push((text_until_zero(&key), text_until_zero(&text)));
        }
        labels
    }

    /// Returns the provider's current report.
    pub(crate) fn report(&self) -> ProviderReport {
        let mut reported = ProviderReport::default();
        if let Some(ask) = self.report {
            let report = ReportSink {
                to: (&raw mut reported).cast(),
                part: take_part,
                remark: take_remark,
                account: take_account,
            };
            // SAFETY: the code that registered the provider promised that it can be called in this
            // way.
            unsafe { ask(self.context, &raw const report) };
        }
        reported
    }

    /// Returns the prefix of the names of the sample types for values, if the provider traces
    /// values.
    pub(crate) fn value_name(&self) -> Option<&str> {
        if self.value_name.is_null() || self.values.is_none() {
            return None;
        }
        // SAFETY: code that registers a provider promises that the text stays.
        let name = unsafe { CStr::from_ptr(self.value_name) };
        name.to_str().ok()
    }

    /// Returns row `i` of the provider's values.
    pub(crate) fn value(&self, i: usize) -> Option<TracedValues> {
        let mut value = TracedValues::NONE;
        // SAFETY: the code that registered the provider promised that it can be called in this way.
        let answer = unsafe { self.values?(self.context, i, &raw mut value) };
        (answer == 0).then_some(value)
    }

    /// Returns the reason why frames are missing; `None` if no frames are missing.
    pub(crate) fn status(&self) -> Option<String> {
        let mut text = [0; 512];
        // SAFETY: the buffer has room for this size, and one byte more, which stays zero.
        let answer = unsafe { self.status?(self.context, text.as_mut_ptr().cast(), 511) };
        (answer == 0).then(|| text_until_zero(&text))
    }
}

/// Returns a text, cut to [`MAX_TEXT_BYTES`] bytes.
fn cut_text(text: &CStr) -> String {
    let bytes = text.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]).into_owned()
}

unsafe extern "C" fn take_part(to: *mut c_void, part: *const PoolPart) {
    // SAFETY: `to` was passed together with this function, and the provider passes a part.
    let (reported, part) = unsafe { (&mut *to.cast::<ProviderReport>(), &*part) };
    if reported.parts.len() < MAX_PARTS && !part.name.is_null() {
        // SAFETY: the provider passes a text with a zero at its end.
        let name = cut_text(unsafe { CStr::from_ptr(part.name) });
        reported.parts.push((name, part.objects, part.bytes));
    }
}

unsafe extern "C" fn take_remark(to: *mut c_void, text: *const c_char) {
    // SAFETY: `to` was passed together with this function.
    let reported = unsafe { &mut *to.cast::<ProviderReport>() };
    if reported.remarks.len() < MAX_REMARKS && !text.is_null() {
        // SAFETY: the provider passes a text with a zero at its end.
        let text = unsafe { CStr::from_ptr(text) };
        reported.remarks.push(cut_text(text));
    }
}

unsafe extern "C" fn take_account(to: *mut c_void, name: *const c_char, bytes: u64) {
    // SAFETY: `to` was passed together with this function.
    let reported = unsafe { &mut *to.cast::<ProviderReport>() };
    if reported.accounts.len() < MAX_PARTS && !name.is_null() {
        // SAFETY: the provider passes a text with a zero at its end.
        let name = cut_text(unsafe { CStr::from_ptr(name) });
        reported.accounts.push((name, bytes));
    }
}

/// Maximum number of labels of a stack. A larger number is an error of the provider.
const MAX_LABELS: usize = 16;
/// Maximum number of parts or purposes in a report. A larger number is an error of the provider.
const MAX_PARTS: usize = 256;
/// Maximum number of bytes of a part's name or of a remark.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum number of remarks in a report. A larger number is an error of the provider.
const MAX_REMARKS: usize = 32;

/// Returns the text in `bytes`, up to a zero.
pub(crate) fn text_until_zero(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// The reason why a provider could not be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationError {
    /// The provider has another version, or is incomplete.
    Invalid,
    /// The maximum number of providers is registered already.
    Full,
}
