//! The providers that are registered in a process, and which of them an event calls.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use crate::options::FrameChoice;
use crate::stack::provider::{RegistrationError, StackProvider};

/// Maximum number of providers.
const MAX_PROVIDERS: usize = 8;

/// The providers of a process. A provider is never removed.
pub(crate) struct ProviderTable {
    slot: [ProviderSlot; MAX_PROVIDERS],
    /// The providers that are called, with one bit for each provider.
    asked: AtomicU32,
    /// The [`StackRequest`] that every event checks, as a number.
    asks: AtomicU8,
    /// The recording's [`FrameChoice`], as a number.
    wanted: AtomicU8,
    /// Whether the recording counts each thread separately.
    by_thread: AtomicBool,
}

struct ProviderSlot {
    state: AtomicU8,
    provider: UnsafeCell<Option<StackProvider>>,
}

const SLOT_FREE: u8 = 0;
const SLOT_TAKEN: u8 = 1;
const SLOT_READY: u8 = 2;
/// State: the provider broke its contract.
const SLOT_BROKEN: u8 = 3;

/// Requests for more data of an allocation's stack than its native frames: whether an interpreter's
/// frames are needed, and whether the stack is counted for its thread. The request is one number,
/// which is zero if native frames are enough.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct StackRequest(u8);

impl StackRequest {
    /// No request: native frames are enough. All bits are zero.
    pub(crate) const NOTHING: Self = Self(0);
    const BY_THREAD: u8 = 1 << 7;

    /// Whether only an interpreter's frames are recorded. They require a call of a provider.
    #[inline(always)]
    pub(crate) fn is_script(self) -> bool {
        self.0 == FrameChoice::Script as u8
    }

    /// Whether an interpreter's frames are recorded together with the native frames.
    #[inline(always)]
    pub(crate) fn is_both(self) -> bool {
        self.0 == FrameChoice::Both as u8
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

// SAFETY: a slot is written once, by the thread that took it, before it is ready.
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
            asked: AtomicU32::new(0),
            asks: AtomicU8::new(StackRequest::NOTHING.0),
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
            // Another thread may have changed `asked` meanwhile, and stored first.
            if asked == self.asked.load(Ordering::SeqCst) {
                break;
            }
        }
    }

    /// Adds a provider, which is called from now on.
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
            // SAFETY: this thread took the slot, and no other thread reads it before it is ready.
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

    /// Returns the provider with this number, if one was registered.
    pub(crate) fn get(&self, i: usize) -> Option<&StackProvider> {
        let slot = self.slot.get(i)?;
        if slot.state.load(Ordering::Acquire) < SLOT_READY {
            return None;
        }
        // SAFETY: a slot that is ready is not written any more.
        unsafe { (*slot.provider.get()).as_ref() }
    }

    /// Returns every provider that was registered, with its number.
    pub(crate) fn all(&self) -> impl Iterator<Item = (usize, &StackProvider)> {
        (0..MAX_PROVIDERS).filter_map(|i| Some((i, self.get(i)?)))
    }

    /// Returns the providers to call, each with its number. If `first` is among them, it comes
    /// first. The others follow, the newest first.
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
        self.asked.fetch_and(!(1 << i), Ordering::AcqRel);
        self.slot[i].state.store(SLOT_BROKEN, Ordering::Release);
        self.update();
    }

    /// Whether a provider was switched off.
    pub(crate) fn is_broken(&self, i: usize) -> bool {
        self.slot[i].state.load(Ordering::Relaxed) == SLOT_BROKEN
    }
}
