//! The providers that are registered in a process, and which of them an event calls.
//!
//! A provider is registered again when its interpreter's library was unloaded and loaded again. It
//! keeps its slot then, so a program may do that as often as it likes.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::options::FrameChoice;
use crate::stack::provider::{RegistrationError, StackProvider};

/// Maximum number of providers.
const MAX_PROVIDERS: usize = 8;

/// The providers of a process. A provider is never removed.
pub(crate) struct ProviderTable {
    slot: [ProviderSlot; MAX_PROVIDERS],
    /// The run loop of the provider in each slot.
    run_loop: [RunLoop; MAX_PROVIDERS],
    /// The providers that are called, with one bit for each provider.
    asked: AtomicU32,
    /// The [`StackRequest`] that every event checks, as a number.
    asks: AtomicU8,
    /// Number of registrations so far.
    registrations: AtomicU32,
    /// The recording's [`FrameChoice`], as a number.
    wanted: AtomicU8,
    /// Whether the recording counts each thread separately.
    by_thread: AtomicBool,
}

struct ProviderSlot {
    state: AtomicU8,
    /// The provider as it was registered first.
    provider: UnsafeCell<Option<StackProvider>>,
}

/// The addresses of the code that runs an interpreter's code. They change when the interpreter's
/// library is loaded again.
struct RunLoop {
    begin: AtomicU64,
    /// The end of the code; 0 while the addresses change.
    end: AtomicU64,
}

impl RunLoop {
    const fn new() -> Self {
        Self {
            begin: AtomicU64::new(0),
            end: AtomicU64::new(0),
        }
    }

    /// Sets the addresses to those of a provider. Only one thread at a time may call this.
    fn set(&self, provider: &StackProvider) {
        let begin = provider.run_loop as u64;
        self.end.store(0, Ordering::Release);
        self.begin.store(begin, Ordering::Release);
        let end = begin.saturating_add(provider.run_loop_size as u64);
        self.end.store(end, Ordering::Release);
    }

    /// Returns the addresses; an empty range if they change at this moment.
    fn get(&self) -> Range<u64> {
        let end = self.end.load(Ordering::Acquire);
        let begin = self.begin.load(Ordering::Acquire);
        // The end is set to 0 before the beginning changes, so an end that is still there belongs
        // to the beginning.
        match self.end.load(Ordering::Acquire) == end {
            true => begin..end,
            false => 0..0,
        }
    }
}

const SLOT_FREE: u8 = 0;
const SLOT_TAKEN: u8 = 1;
const SLOT_READY: u8 = 2;
/// State: the provider broke its contract.
const SLOT_BROKEN: u8 = 3;
/// State: a thread registers the provider again. It may be called meanwhile.
const SLOT_MOVING: u8 = 4;

/// A request for more data of a stack than its native frames: an interpreter's frames, a separate
/// number for the thread, or both. The request is one number, which is zero if native frames are
/// enough.
///
/// A request for an interpreter's frames also has the last bits of the number of registrations. A
/// thread forgets its last stack if that stack's request is another one. So it does not take code
/// of an unloaded interpreter for code that has its address now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackRequest(u8);

impl StackRequest {
    /// No request: native frames are enough. All bits are zero.
    pub(crate) const NOTHING: Self = Self(0);
    const SCRIPT: u8 = 1 << 0;
    const BOTH: u8 = 1 << 1;
    const REGISTRATIONS: u8 = 0b1_1111 << 2;
    const BY_THREAD: u8 = 1 << 7;

    fn new(frames: FrameChoice, by_thread: bool, registrations: u32) -> Self {
        let registrations = (registrations << 2) as u8 & Self::REGISTRATIONS;
        let frames = match frames {
            FrameChoice::Native => 0,
            FrameChoice::Script => Self::SCRIPT | registrations,
            FrameChoice::Both => Self::BOTH | registrations,
        };
        Self(frames | if by_thread { Self::BY_THREAD } else { 0 })
    }

    /// Whether only an interpreter's frames are recorded. They require a call of a provider.
    #[inline(always)]
    pub(crate) fn is_script(self) -> bool {
        self.0 & Self::SCRIPT != 0
    }

    /// Whether an interpreter's frames are recorded together with the native frames.
    #[inline(always)]
    pub(crate) fn is_both(self) -> bool {
        self.0 & Self::BOTH != 0
    }

    /// Returns the request without the part about threads: the request for a stack that all threads
    /// share. `None` if nothing is left.
    #[inline(always)]
    pub(crate) fn for_all_threads(self) -> Option<Self> {
        let shared = Self(self.0 & !Self::BY_THREAD);
        (shared != Self::NOTHING).then_some(shared)
    }

    /// Whether each thread has separate stacks.
    #[inline(always)]
    pub(crate) fn is_by_thread(self) -> bool {
        self.0 & Self::BY_THREAD != 0
    }
}

// SAFETY: a slot's provider is written once, by the thread that took it, before it is ready.
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
    /// Makes a table without providers.
    pub(crate) const fn new() -> Self {
        Self {
            slot: [const { ProviderSlot::new() }; MAX_PROVIDERS],
            run_loop: [const { RunLoop::new() }; MAX_PROVIDERS],
            asked: AtomicU32::new(0),
            asks: AtomicU8::new(StackRequest::NOTHING.0),
            registrations: AtomicU32::new(0),
            wanted: AtomicU8::new(FrameChoice::Native as u8),
            by_thread: AtomicBool::new(false),
        }
    }

    /// Returns the request for more than native frames; `None` if native frames are enough.
    #[inline(always)]
    pub(crate) fn stack_request(&self) -> Option<StackRequest> {
        let asked = StackRequest(self.asks.load(Ordering::Relaxed));
        (asked != StackRequest::NOTHING).then_some(asked)
    }

    /// Sets which kinds of frames are recorded, and whether the recording counts each thread
    /// separately.
    pub(crate) fn set_request(&self, frames: FrameChoice, by_thread: bool) {
        self.wanted.store(frames as u8, Ordering::Relaxed);
        self.by_thread.store(by_thread, Ordering::Relaxed);
        self.update();
    }

    /// Whether the recording counts each thread separately.
    pub(crate) fn is_by_thread(&self) -> bool {
        self.by_thread.load(Ordering::Relaxed)
    }

    /// Returns which kinds of frames are recorded.
    pub(crate) fn frame_choice(&self) -> FrameChoice {
        FrameChoice::from_number(self.wanted.load(Ordering::Relaxed))
    }

    fn update(&self) {
        loop {
            let registrations = self.registrations.load(Ordering::SeqCst);
            let asked = self.asked.load(Ordering::SeqCst);
            let frames = match asked {
                0 => FrameChoice::Native,
                _ => self.frame_choice(),
            };
            let request = StackRequest::new(frames, self.is_by_thread(), registrations);
            self.asks.store(request.0, Ordering::SeqCst);
            // Another thread may have changed them meanwhile, and stored first.
            if registrations == self.registrations.load(Ordering::SeqCst)
                && asked == self.asked.load(Ordering::SeqCst)
            {
                break;
            }
        }
    }

    /// Adds a provider, which is called from now on. A provider that is registered already keeps
    /// its slot, and only its run loop changes.
    pub(crate) fn register(&self, provider: StackProvider) -> Result<(), RegistrationError> {
        let is_whole = provider.size as usize >= size_of::<StackProvider>();
        if provider.version != StackProvider::VERSION || !is_whole {
            return Err(RegistrationError::Invalid);
        }
        let moved = (0..MAX_PROVIDERS).find(|&i| self.move_provider(i, &provider));
        let added = moved.or_else(|| (0..MAX_PROVIDERS).find(|&i| self.add_provider(i, provider)));
        let i = added.ok_or(RegistrationError::Full)?;
        self.asked.fetch_or(1 << i, Ordering::SeqCst);
        if self.is_broken(i) {
            // It was switched off meanwhile.
            self.asked.fetch_and(!(1 << i), Ordering::SeqCst);
        }
        for (j, other) in self.all() {
            if j != i && other.language() == provider.language() {
                self.asked.fetch_and(!(1 << j), Ordering::SeqCst);
            }
        }
        self.registrations.fetch_add(1, Ordering::SeqCst);
        self.update();
        Ok(())
    }

    /// Sets the run loop of slot `i`, if the slot has this provider. Returns whether the run loop
    /// was set.
    fn move_provider(&self, i: usize, provider: &StackProvider) -> bool {
        if !self.get(i).is_some_and(|old| old.is_same(provider)) {
            return false;
        }
        let slot = &self.slot[i];
        let change = |from, to| {
            slot.state
                .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
        };
        if !change(SLOT_READY, SLOT_MOVING) {
            return false;
        }
        self.run_loop[i].set(provider);
        // Unless the provider broke its contract meanwhile.
        change(SLOT_MOVING, SLOT_READY)
    }

    /// Stores a provider in slot `i`, if the slot is free. Returns whether the provider was stored.
    fn add_provider(&self, i: usize, provider: StackProvider) -> bool {
        let slot = &self.slot[i];
        let took =
            slot.state
                .compare_exchange(SLOT_FREE, SLOT_TAKEN, Ordering::AcqRel, Ordering::Relaxed);
        if took.is_err() {
            return false;
        }
        self.run_loop[i].set(&provider);
        // SAFETY: this thread took the slot, and no other thread reads it before it is ready.
        unsafe { *slot.provider.get() = Some(provider) };
        slot.state.store(SLOT_READY, Ordering::Release);
        true
    }

    /// Returns the provider with this number, if one was registered.
    pub(crate) fn get(&self, i: usize) -> Option<&StackProvider> {
        let slot = self.slot.get(i)?;
        if slot.state.load(Ordering::Acquire) < SLOT_READY {
            return None;
        }
        // SAFETY: a slot that is ready is not written any more.
        unsafe { (*slot.provider.get()).as_ref() }
    }

    /// Returns the addresses of a provider's run loop; an empty range if they are not known.
    pub(crate) fn run_loop(&self, i: usize) -> Range<u64> {
        self.run_loop.get(i).map_or(0..0, RunLoop::get)
    }

    /// Returns every provider that was registered, with its number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &StackProvider)> {
        (0..MAX_PROVIDERS).filter_map(|i| Some((i, self.get(i)?)))
    }

    /// Returns the providers to call, each with its number. If `first` is among them, it comes
    /// first. The others follow, the one that was added last first.
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

    /// Returns the provider with this number, if it is to be called.
    #[inline(always)]
    pub(crate) fn get_if_asked(&self, i: usize) -> Option<&StackProvider> {
        let is_asked = self.asked.load(Ordering::Acquire) & 1u32.wrapping_shl(i as u32) != 0;
        let slot = self.slot.get(i).filter(|_| is_asked)?;
        // SAFETY: a provider is called only after its slot is ready, and a slot that is ready is
        // not written any more.
        unsafe { (*slot.provider.get()).as_ref() }
    }

    /// Stops calling a provider, because it broke its contract.
    #[cold]
    pub(crate) fn switch_off(&self, i: usize) {
        self.slot[i].state.store(SLOT_BROKEN, Ordering::SeqCst);
        self.asked.fetch_and(!(1 << i), Ordering::SeqCst);
        self.update();
    }

    /// Whether a provider was switched off.
    pub(crate) fn is_broken(&self, i: usize) -> bool {
        self.slot[i].state.load(Ordering::SeqCst) == SLOT_BROKEN
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{CStr, c_int, c_void};

    use super::*;
    use crate::stack::provider::{NamedFrame, RawFrame, StackCapture};

    unsafe extern "C" fn capture(_: *mut c_void, _: *mut StackCapture) -> usize {
        0
    }

    unsafe extern "C" fn resolve(_: *mut c_void, _: *const RawFrame, _: *mut NamedFrame) -> c_int {
        1
    }

    fn provider(language: &'static CStr, run_loop: usize) -> StackProvider {
        StackProvider {
            version: StackProvider::VERSION,
            size: size_of::<StackProvider>() as u32,
            language: language.as_ptr(),
            context: std::ptr::null_mut(),
            capture,
            resolve,
            label: None,
            status: None,
            run_loop: run_loop as *const c_void,
            run_loop_size: 0x10,
            report: None,
            value_name: std::ptr::null(),
            values: None,
            unchanged: None,
        }
    }

    fn numbers_to_ask(table: &ProviderTable) -> Vec<usize> {
        let nothing_first = MAX_PROVIDERS;
        table
            .providers_to_ask(nothing_first)
            .map(|(i, _)| i)
            .collect()
    }

    #[test]
    fn a_provider_that_is_registered_again_keeps_its_slot() {
        let table = ProviderTable::new();
        table.set_request(FrameChoice::Script, false);
        table.register(provider(c"perl", 0x1000)).unwrap();
        let mut last = None;
        for round in 1..=3 * MAX_PROVIDERS {
            let begin = 0x1000 * round;
            table.register(provider(c"python", begin)).unwrap();
            assert_eq!(table.run_loop(1), begin as u64..begin as u64 + 0x10);
            // Threads forget the stacks of the library that was unloaded.
            let request = table.stack_request();
            assert!(request.is_some_and(StackRequest::is_script));
            assert_ne!(request, last);
            last = request;
        }
        assert_eq!(numbers_to_ask(&table), [1, 0]);
        assert_eq!(table.all().count(), 2);
    }

    #[test]
    fn a_provider_replaces_another_one_of_its_language() {
        let table = ProviderTable::new();
        let other = StackProvider {
            context: std::ptr::dangling_mut(),
            ..provider(c"perl", 0x2000)
        };
        for (provider, slot) in [(provider(c"perl", 0x1000), 0), (other, 1), (other, 1)] {
            table.register(provider).unwrap();
            assert_eq!(numbers_to_ask(&table), [slot]);
        }
        table.register(provider(c"perl", 0x3000)).unwrap();
        assert_eq!(numbers_to_ask(&table), [0]);
        assert_eq!(table.run_loop(0), 0x3000..0x3010);
    }

    #[test]
    fn a_broken_provider_stays_broken() {
        let table = ProviderTable::new();
        for i in 0..MAX_PROVIDERS {
            table.register(provider(c"perl", 0x1000)).unwrap();
            table.switch_off(i);
            assert!(table.is_broken(i) && numbers_to_ask(&table).is_empty());
        }
        let full = table.register(provider(c"perl", 0x1000));
        assert_eq!(full, Err(RegistrationError::Full));
    }

    #[test]
    fn a_request_for_native_frames_is_nothing() {
        let table = ProviderTable::new();
        table.register(provider(c"perl", 0x1000)).unwrap();
        assert!(table.stack_request().is_none());
        table.set_request(FrameChoice::Native, true);
        let request = table.stack_request().unwrap();
        assert!(request.is_by_thread() && request.for_all_threads().is_none());
        for (frames, is_both) in [(FrameChoice::Script, false), (FrameChoice::Both, true)] {
            table.set_request(frames, true);
            let request = table.stack_request().unwrap();
            assert!(request.is_by_thread());
            let shared = request.for_all_threads().unwrap();
            assert!(!shared.is_by_thread());
            assert_eq!((shared.is_script(), shared.is_both()), (!is_both, is_both));
        }
    }
}
