//! Providers of stacks: who knows the frames of an interpreter that runs in the program.
//!
//! A provider is asked in two steps. *Capture* runs inside an allocation and gives frames as
//! numbers. *Resolve* makes names of such a frame, when it is new and its code is still there.
//! include/heapprof.h declares both for C.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::options::FrameChoice;

/// A frame of an interpreter, as numbers. Equal frames are the same place in the program.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawFrame {
    /// What is run, as the provider knows it: mostly an address. 0 stands for frames that were left
    /// out.
    pub code: u64,
    /// Where in it.
    pub place: u64,
    /// It differs if other code has come to the same address.
    pub version: u32,
    /// The line, if it is known without looking further.
    pub line: u32,
    /// Whether the interpreter was entered from native code here: 0 if not, 1 if so, and otherwise
    /// the address in the native stack where it was.
    pub entry: u64,
}

/// Where the texts of a frame go. Each ends with a zero.
#[repr(C)]
#[derive(Debug)]
pub struct NamedFrame {
    /// The function's name.
    pub name: *mut c_char,
    /// Bytes for the name.
    pub name_size: usize,
    /// The source file.
    pub file: *mut c_char,
    /// Bytes for the file.
    pub file_size: usize,
    /// The line at which the function begins; 0 if it is not known.
    pub start_line: u32,
    /// The line that runs; 0 if it is not known.
    pub line: u32,
    /// The memory that the provider has for the thread, as [`StackCapture::memory`].
    pub memory: *mut c_void,
    /// How many bytes that are.
    pub memory_size: usize,
}

/// What a provider is given to capture a stack, and what it gives besides frames.
#[repr(C)]
#[derive(Debug)]
pub struct StackCapture {
    /// Where the frames go.
    pub frames: *mut RawFrame,
    /// How many there can be at most.
    pub most: usize,
    /// A number below 2^48 that says what else is known of the stack. 0 stands for nothing.
    pub label: u64,
    /// How many of the oldest frames are the same as in the thread's last stack that this provider
    /// gave. They need not be written again. 0 if the provider does not know.
    pub shared: usize,
    /// Memory of the thread's for this provider, to know what it gave last. It is zero when there
    /// is no last stack.
    pub memory: *mut c_void,
    /// How many bytes that are.
    pub memory_size: usize,
    /// How many bytes the program asked for.
    pub size: usize,
    /// Where the return address of the allocation's function lies on the stack that the thread is
    /// on.
    pub caller: usize,
    /// Where the thread's own stack begins. It may be on another one meanwhile: a coroutine's, or a
    /// signal's.
    pub stack_begin: usize,
    /// Where its own stack ends. Both are 0 if that is not known.
    pub stack_end: usize,
    /// Whether what is allocated is a pool, from which the interpreter takes values of many
    /// functions: 0 if not. The provider's `report` says what is in it.
    pub pool: usize,
}

/// A part of what the pools of an interpreter hold.
#[repr(C)]
#[derive(Debug)]
pub struct PoolPart {
    /// What it is, such as `SV heads (free)`.
    pub name: *const c_char,
    /// How many blocks were allocated for it.
    pub objects: u64,
    /// How many bytes it has.
    pub bytes: u64,
}

/// Where a provider's report goes. The functions get `to`, and copy what they are given.
#[repr(C)]
#[derive(Debug)]
pub struct ReportSink {
    /// What the functions get.
    pub to: *mut c_void,
    /// Takes a part of what pools hold.
    pub part: unsafe extern "C" fn(*mut c_void, *const PoolPart),
    /// Takes a line for the profile's comments.
    pub remark: unsafe extern "C" fn(*mut c_void, *const c_char),
    /// Takes what a part of the memory in use is for, such as `buffers from_number strings`, and
    /// its bytes. Whoever says so also says what the other parts are that it knows of.
    pub account: unsafe extern "C" fn(*mut c_void, *const c_char, u64),
}

/// Values of one kind that one stack made, as a provider that traces values counts them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TracedValues {
    /// The number of the stack, as the engine gave it; [`TracedValues::NO_STACK`] if it is not
    /// known.
    pub stack: u32,
    /// 0.
    pub reserved: u32,
    /// The one frame that stands for a stack that is not known.
    pub frame: *const c_char,
    /// A number that says what else is known of them, as for a stack.
    pub label: u64,
    /// How many were made.
    pub made: u64,
    /// How many of them are alive.
    pub objects: u64,
    /// How many bytes these have.
    pub bytes: u64,
}

impl TracedValues {
    /// The stack of what nobody saw being made.
    pub const NO_STACK: u32 = u32::MAX;
    /// Nothing.
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

/// What a provider reported.
#[derive(Default)]
pub(crate) struct ProviderReport {
    /// The parts of its pools: name, objects, bytes.
    pub(crate) parts: Vec<(String, u64, u64)>,
    pub(crate) remarks: Vec<String>,
    /// What parts of the memory in use are for, and their bytes.
    pub(crate) accounts: Vec<(String, u64)>,
}

/// Who knows the frames of an interpreter. The functions get `context`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct StackProvider {
    /// [`StackProvider::VERSION`].
    pub version: u32,
    /// The size of this structure.
    pub size: u32,
    /// The interpreter's name, such as `perl`. A provider takes the place of an earlier one of the
    /// same name.
    pub language: *const c_char,
    /// What the functions get.
    pub context: *mut c_void,
    /// Captures the thread's stack, the innermost frame first. Returns how many frames it has, 0 if
    /// the thread runs no code of the interpreter. It runs inside an allocation, so it must not
    /// allocate, wait or call the interpreter.
    pub capture: unsafe extern "C" fn(*mut c_void, *mut StackCapture) -> usize,
    /// Makes the texts of a frame. Returns 0, or something else if it can't. It runs inside an
    /// allocation, too, in the thread whose frame it is.
    pub resolve: unsafe extern "C" fn(*mut c_void, *const RawFrame, *mut NamedFrame) -> c_int,
    /// Puts the key and the text of the `i`th label that a number stands for into two texts of the
    /// given sizes. Returns 0, or something else if there are not so many. May be missing.
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
    /// Puts into a text of the given size why frames are missing. Returns 0, or something else if
    /// none are. May be missing.
    pub status: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> c_int>,
    /// Where the code begins that runs the interpreter's code; null if it is not known.
    pub run_loop: *const c_void,
    /// How many bytes it has.
    pub run_loop_size: usize,
    /// Says what the interpreter's pools hold at this moment, and whatever else a profile should
    /// say of it. It is called when a profile is written, in any thread, while others go on. May be
    /// missing.
    pub report: Option<unsafe extern "C" fn(*mut c_void, *const ReportSink)>,
    /// What the sample types of values begin with, such as `sv`; null if it traces none.
    pub value_name: *const c_char,
    /// Gives the `i`th row of the values that are alive at this moment. It is called when a profile
    /// is written, in any thread, with 0 first and then with one more each time, until it returns
    /// something else than 0. May be missing.
    pub values: Option<unsafe extern "C" fn(*mut c_void, usize, *mut TracedValues) -> c_int>,
    /// Says whether a capture would give what the thread's last one gave, label, pool and all, by
    /// the memory that the provider has for the thread, and its size. Returns 0 if not, or if that
    /// is not known. It runs where `capture` does, and instead of it. It is missing where what is
    /// captured depends on the size or the caller.
    pub unchanged: Option<unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> c_int>,
}

// SAFETY: whoever registers a provider promises that its functions can be called in any thread.
unsafe impl Send for StackProvider {}
// SAFETY: as above.
unsafe impl Sync for StackProvider {}

impl StackProvider {
    /// The version of these structures.
    pub const VERSION: u32 = 1;

    /// The interpreter's name.
    pub(crate) fn language(&self) -> &str {
        if self.language.is_null() {
            return "script";
        }
        // SAFETY: whoever registers a provider promises that the text stays.
        let text = unsafe { CStr::from_ptr(self.language) };
        text.to_str().unwrap_or("script")
    }

    /// The labels that a number stands for, each a key and a text.
    pub(crate) fn labels(&self, label: u64) -> Vec<(String, String)> {
        let Some(get) = self.label else {
            return Vec::new();
        };
        let mut labels = Vec::new();
        while labels.len() < MAX_LABELS {
            let (mut key, mut text) = ([0; 64], [0; 256]);
            let (size, text_size) = (key.len() - 1, text.len() - 1);
            // SAFETY: the texts have so much room, and one byte more, which stays zero.
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

    /// What it says at this moment.
    pub(crate) fn report(&self) -> ProviderReport {
        let mut reported = ProviderReport::default();
        if let Some(ask) = self.report {
            let report = ReportSink {
                to: (&raw mut reported).cast(),
                part: take_part,
                remark: take_remark,
                account: take_account,
            };
            // SAFETY: whoever registered the provider promised that it can be asked so.
            unsafe { ask(self.context, &raw const report) };
        }
        reported
    }

    /// What the sample types of its values begin with, if it traces values.
    pub(crate) fn value_name(&self) -> Option<&str> {
        if self.value_name.is_null() || self.values.is_none() {
            return None;
        }
        // SAFETY: whoever registers a provider promises that the text stays.
        let name = unsafe { CStr::from_ptr(self.value_name) };
        name.to_str().ok()
    }

    /// The `i`th row of its values.
    pub(crate) fn value(&self, i: usize) -> Option<TracedValues> {
        let mut value = TracedValues::NONE;
        // SAFETY: whoever registered the provider promised that it can be asked so.
        let answer = unsafe { self.values?(self.context, i, &raw mut value) };
        (answer == 0).then_some(value)
    }

    /// Why frames are missing, if some are.
    pub(crate) fn status(&self) -> Option<String> {
        let mut text = [0; 512];
        // SAFETY: the text has so much room, and one byte more, which stays zero.
        let answer = unsafe { self.status?(self.context, text.as_mut_ptr().cast(), 511) };
        (answer == 0).then(|| text_until_zero(&text))
    }
}

/// As much of a text as is kept.
fn cut_text(text: &CStr) -> String {
    let bytes = text.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_TEXT_BYTES)]).into_owned()
}

unsafe extern "C" fn take_part(to: *mut c_void, part: *const PoolPart) {
    // SAFETY: `to` is what was given with this function, and the provider gives a part.
    let (reported, part) = unsafe { (&mut *to.cast::<ProviderReport>(), &*part) };
    if reported.parts.len() < MAX_PARTS && !part.name.is_null() {
        // SAFETY: the provider gives a text with a zero at its end.
        let name = cut_text(unsafe { CStr::from_ptr(part.name) });
        reported.parts.push((name, part.objects, part.bytes));
    }
}

unsafe extern "C" fn take_remark(to: *mut c_void, text: *const c_char) {
    // SAFETY: `to` is what was given with this function.
    let reported = unsafe { &mut *to.cast::<ProviderReport>() };
    if reported.remarks.len() < MAX_REMARKS && !text.is_null() {
        // SAFETY: the provider gives a text with a zero at its end.
        let text = unsafe { CStr::from_ptr(text) };
        reported.remarks.push(cut_text(text));
    }
}

unsafe extern "C" fn take_account(to: *mut c_void, name: *const c_char, bytes: u64) {
    // SAFETY: `to` is what was given with this function.
    let reported = unsafe { &mut *to.cast::<ProviderReport>() };
    if reported.accounts.len() < MAX_PARTS && !name.is_null() {
        // SAFETY: the provider gives a text with a zero at its end.
        let name = cut_text(unsafe { CStr::from_ptr(name) });
        reported.accounts.push((name, bytes));
    }
}

/// More labels than this are a mistake.
const MAX_LABELS: usize = 16;
/// So are more parts than this.
const MAX_PARTS: usize = 256;
/// The most bytes of a part's name or of a remark.
const MAX_TEXT_BYTES: usize = 512;
/// And more remarks.
const MAX_REMARKS: usize = 32;

/// The text in `bytes`, up to a zero.
pub(crate) fn text_until_zero(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// How many providers there can be.
pub(crate) const MAX_PROVIDERS: usize = 8;

/// Why a provider can't be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegistrationError {
    /// It is of another version, or some of it is missing.
    Invalid,
    /// There are as many as there can be.
    Full,
}

/// The providers of a process. Each stays for good.
pub(crate) struct ProviderTable {
    slot: [ProviderSlot; MAX_PROVIDERS],
    /// A bit for each provider that is asked.
    asked: AtomicU32,
    /// What every event looks at: [`StackRequest`] as a number.
    asks: AtomicU8,
    /// What a recording asks for, as a number.
    wanted: AtomicU8,
    /// Whether it keeps each thread's share.
    by_thread: AtomicBool,
}

struct ProviderSlot {
    state: AtomicU8,
    provider: UnsafeCell<Option<StackProvider>>,
}

const SLOT_FREE: u8 = 0;
const SLOT_TAKEN: u8 = 1;
const SLOT_READY: u8 = 2;
/// It gave what it must not give.
const SLOT_BROKEN: u8 = 3;

/// What is to be found out of an allocation's stack besides its native frames: which frames of an
/// interpreter, and whose stack it is. No event looks at more than this to know that there is
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StackRequest(u8);

impl StackRequest {
    /// Nothing. All zero is this one.
    pub(crate) const NOTHING: Self = Self(0);
    const BY_THREAD: u8 = 1 << 7;

    /// Whether an interpreter's frames are kept alone, which somebody is to be asked for.
    #[inline(always)]
    pub(crate) fn is_script(self) -> bool {
        self.0 == FrameChoice::Script as u8
    }

    /// Whether they are kept with the native ones.
    #[inline(always)]
    pub(crate) fn is_both(self) -> bool {
        self.0 == FrameChoice::Both as u8
    }

    /// What is asked of the stack that all threads share; `None` if nothing is.
    #[inline(always)]
    pub(crate) fn for_all_threads(self) -> Option<Self> {
        let shared = Self(self.0 & !Self::BY_THREAD);
        (shared != Self::NOTHING).then_some(shared)
    }

    /// Whether each thread has stacks of its own.
    #[inline(always)]
    pub(crate) fn is_by_thread(self) -> bool {
        self.0 & Self::BY_THREAD != 0
    }
}

// SAFETY: a slot is written once, by whoever took it, before it is ready.
unsafe impl Sync for ProviderSlot {}

impl ProviderSlot {
    const fn new() -> Self {
        Self {
            state: AtomicU8::new(SLOT_FREE),
            provider: UnsafeCell::new(None),
        }
    }
}

impl ProviderTable {
    /// Nobody is registered.
    pub(crate) const fn new() -> Self {
        Self {
            slot: [const { ProviderSlot::new() }; MAX_PROVIDERS],
            asked: AtomicU32::new(0),
            asks: AtomicU8::new(StackRequest::NOTHING.0),
            wanted: AtomicU8::new(FrameChoice::Native as u8),
            by_thread: AtomicBool::new(false),
        }
    }

    /// What is to be found out besides native frames; `None` if nothing is.
    #[inline(always)]
    pub(crate) fn stack_request(&self) -> Option<StackRequest> {
        let asked = StackRequest(self.asks.load(Ordering::Relaxed));
        (asked != StackRequest::NOTHING).then_some(asked)
    }

    /// Says what a recording keeps of stacks, and whether it keeps each thread's share.
    pub(crate) fn set_request(&self, frames: FrameChoice, by_thread: bool) {
        self.wanted.store(frames as u8, Ordering::Relaxed);
        self.by_thread.store(by_thread, Ordering::Relaxed);
        self.update();
    }

    /// Whether the recording keeps each thread's share.
    pub(crate) fn is_by_thread(&self) -> bool {
        self.by_thread.load(Ordering::Relaxed)
    }

    /// What the recording keeps of stacks.
    pub(crate) fn frame_choice(&self) -> FrameChoice {
        FrameChoice::from_number(self.wanted.load(Ordering::Relaxed))
    }

    fn update(&self) {
        loop {
            let asked = self.asked.load(Ordering::SeqCst);
            let frames = match self.frame_choice() {
                FrameChoice::Native => 0,
                _ if asked == 0 => 0,
                frames => frames as u8,
            };
            let by_thread = match self.is_by_thread() {
                true => StackRequest::BY_THREAD,
                false => 0,
            };
            self.asks.store(frames | by_thread, Ordering::SeqCst);
            // Another thread may have changed it meanwhile, and stored first.
            if asked == self.asked.load(Ordering::SeqCst) {
                break;
            }
        }
    }

    /// Adds a provider, which is asked from now on.
    pub(crate) fn register(&self, provider: StackProvider) -> Result<(), RegistrationError> {
        let is_whole = provider.size as usize >= size_of::<StackProvider>();
        if provider.version != StackProvider::VERSION || !is_whole {
            return Err(RegistrationError::Invalid);
        }
        for (i, slot) in self.slot.iter().enumerate() {
            let took = slot.state.compare_exchange(
                SLOT_FREE,
                SLOT_TAKEN,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if took.is_err() {
                continue;
            }
            // SAFETY: this thread took the slot, and nobody reads it before it is ready.
            unsafe { *slot.provider.get() = Some(provider) };
            slot.state.store(SLOT_READY, Ordering::Release);
            self.asked.fetch_or(1 << i, Ordering::AcqRel);
            for (j, other) in self.all() {
                if j != i && other.language() == provider.language() {
                    self.asked.fetch_and(!(1 << j), Ordering::AcqRel);
                }
            }
            self.update();
            return Ok(());
        }
        Err(RegistrationError::Full)
    }

    /// The provider with this number, if it was registered.
    pub(crate) fn get(&self, i: usize) -> Option<&StackProvider> {
        let slot = self.slot.get(i)?;
        if slot.state.load(Ordering::Acquire) < SLOT_READY {
            return None;
        }
        // SAFETY: a slot that is ready is not written any more.
        unsafe { (*slot.provider.get()).as_ref() }
    }

    /// Every provider that was registered, with its number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &StackProvider)> {
        (0..MAX_PROVIDERS).filter_map(|i| Some((i, self.get(i)?)))
    }

    /// The providers to ask, each with its number: `first`, if it is one of them, and then the
    /// newest first.
    #[inline(always)]
    pub(crate) fn providers_to_ask(
        &self,
        first: usize,
    ) -> impl Iterator<Item = (usize, &StackProvider)> {
        let mut asked = self.asked.load(Ordering::Acquire);
        let mut preferred = asked & 1u32.wrapping_shl(first as u32);
        std::iter::from_fn(move || {
            let from = if preferred != 0 { preferred } else { asked };
            let i = from.checked_ilog2()? as usize;
            preferred = 0;
            asked &= !(1 << i);
            Some((i, self.get(i)?))
        })
    }

    /// The provider with this number, if it is asked.
    #[inline(always)]
    pub(crate) fn get_if_asked(&self, i: usize) -> Option<&StackProvider> {
        let is_asked = self.asked.load(Ordering::Acquire) & 1u32.wrapping_shl(i as u32) != 0;
        let slot = self.slot.get(i).filter(|_| is_asked)?;
        // SAFETY: it is asked since its slot is ready, and that is not written any more.
        unsafe { (*slot.provider.get()).as_ref() }
    }

    /// Asks a provider no more, because it gave what it must not give.
    #[cold]
    pub(crate) fn switch_off(&self, i: usize) {
        self.asked.fetch_and(!(1 << i), Ordering::AcqRel);
        self.slot[i].state.store(SLOT_BROKEN, Ordering::Release);
        self.update();
    }

    /// Whether a provider was switched off.
    pub(crate) fn is_broken(&self, i: usize) -> bool {
        self.slot[i].state.load(Ordering::Relaxed) == SLOT_BROKEN
    }
}
