//! The engine's interface for crates that know an interpreter's frames.

use heapprof_abi::{FrameWord, RecordingEpoch, StackNumber};

use crate::engine::Engine;
use crate::options::FrameChoice;
use crate::stack::provider::{RegistrationError, StackProvider};

/// The handle for an engine's providers of stacks.
#[derive(Clone, Copy)]
pub struct StackProviders(&'static Engine);

impl Engine {
    /// Returns the handle for the providers of interpreters' frames.
    pub const fn stack_providers(&'static self) -> StackProviders {
        StackProviders(self)
    }
}

impl StackProviders {
    /// Registers a provider, whose functions are called for frames from now on. A provider is never
    /// removed.
    ///
    /// # Errors
    /// The provider is of another version, or the maximum number of providers is registered.
    ///
    /// # Safety
    /// The functions of the provider may be called in any thread, and behave as [`StackProvider`]
    /// describes.
    pub unsafe fn register(self, provider: StackProvider) -> Result<(), RegistrationError> {
        self.0
            .with_guard_and_signals_blocked(|| self.0.scripts.providers.register(provider))
    }

    /// Returns which kinds of frames are recorded.
    pub fn frame_choice(self) -> FrameChoice {
        self.0.scripts.providers.frame_choice()
    }

    /// Whether every allocation is recorded.
    pub fn is_exact(self) -> bool {
        self.0.process.recorded.is_exact()
    }

    /// Arranges that `freed` is called before the block that begins at `address` is freed, even if
    /// the block was not sampled. Returns false if too many blocks are watched. `freed` runs inside
    /// a free, and must not allocate or wait.
    pub fn watch(self, address: usize, freed: fn(usize)) -> bool {
        let filter = self.0.ledger.filter;
        self.0.scripts.watched.watch(address, freed, filter)
    }

    /// Returns the number of the recording. Each recording has a different number.
    #[inline(always)]
    pub fn recording_epoch(self) -> RecordingEpoch {
        self.0.process.recorded.epoch()
    }

    /// Returns the frames of an interpreter in a stack, the newest first: the function, its file
    /// and its line.
    pub fn script_frames(self, stack: StackNumber) -> Vec<(String, String, u32)> {
        let engine = self.0;
        let mut words = Vec::new();
        if engine.ledger.stacks.contains(stack) {
            engine.ledger.stacks.read(stack, &mut words);
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let frame = |word| match FrameWord::from_word(word) {
            FrameWord::Frame(Some(number)) => engine.scripts.names.get(number),
            _ => None,
        };
        let texts = words.into_iter().filter_map(frame);
        texts
            .map(|frame| (text(frame.name), text(frame.file), frame.line))
            .collect()
    }

    /// Arranges that `watcher` is called with the start address of an object, whenever a stack
    /// leads through new code of that object. `watcher` runs inside allocations, so it must not
    /// allocate or wait.
    pub fn on_new_code(self, watcher: fn(usize)) {
        self.0.code.watch(watcher);
    }
}
