//! Captures an interpreter's stack at an allocation, through the interpreter's provider, and
//! compares the stack with the last one.
//!
//! A thread's next stack mostly differs from the last one only in its newest frames. So the last
//! stack is stored as its provider returned it, together with the word of each frame. Only frames
//! that differ get a new word. A cache has the words of recent frames, by the numbers that the
//! provider returned for a frame. A search by the frame's texts would take longer.
//!
//! As with native stacks, a stack's identity is a sum of one term for each word. A term is the
//! word, mixed with the word's distance from the root.

use heapprof_abi::{FrameWord, StackNumber};

use crate::process::EngineProcess;
use crate::stack::capture::{CUT, FRAMES_PER_END, PlacedFrame, hash_term};
use crate::stack::merge::merge_frames;
use crate::stack::pools::PoolStacks;
use crate::stack::provider::{NamedFrame, RawFrame, StackCapture, StackProvider};
use crate::stack::provider_table::{ProviderTable, StackRequest};
use crate::stack::walk::StackBounds;
use crate::stack::watched_blocks::WatchedBlocks;
use crate::tables::script_frames::{ScriptFrame, ScriptFrames};

/// Maximum number of frames of a stack: the frames of both ends, and one frame that stands for the
/// omitted middle.
const MAX_SCRIPT_FRAMES: usize = 2 * FRAMES_PER_END + 1;
/// Number of entries in the cache of frames' words. It is a power of two.
const KNOWN_FRAMES: usize = 2048;
/// Number of words of a provider's own memory.
const PROVIDER_MEMORY_WORDS: usize = 2304;
/// Maximum number of bytes of a function's or file's name, with a zero at the end.
const MAX_TEXT_LEN: usize = 1024;
/// A frame that is stored behind the provider's buffer. It shows whether the provider has written
/// more frames than it may.
const GUARD_FRAME: RawFrame = RawFrame {
    code: 0x5afe_5afe_5afe_5afe,
    place: 0,
    version: 0,
    line: 0,
    entry: 0,
};

/// Number of entries in the cache of stacks by their newest frame. It is a power of two.
const KNOWN_STACKS: usize = 256;

/// The last stack of an interpreter in a thread, and data about its frames. All zeros mean that
/// there is no last stack.
///
/// The fields that every capture reads come first and are close together. So they take few cache
/// lines from the profiled program.
#[repr(C, align(64))]
pub(crate) struct ScriptStack {
    len: usize,
    /// Number of the provider that captured the stack.
    provider: usize,
    /// Word of the stack's label.
    label: u64,
    /// The stack's number, if it has one.
    stack: Option<StackNumber>,
    /// The request for which the stack was captured; [`StackRequest::NOTHING`] if there is no last
    /// stack.
    asked: StackRequest,
    /// Whether a provider has used the field `memory`.
    is_used: bool,
    /// Whether the stack belongs to a pool.
    is_pool: bool,
    /// Whether the word of the newest frame is missing, because it was not needed.
    is_leaf_unknown: bool,
    /// Number of oldest words that this stack shares with the stack whose number is in `stack`.
    shared: usize,
    /// Hash of the newest frame, the label and the callers, from [`stack_key`].
    key: u64,
    /// Number of the native stack that was captured together with this stack.
    native: Option<StackNumber>,
    recent: [(u64, StackNumber); KNOWN_STACKS],
    /// The provider's frames of the last stack, root first.
    raw: [RawFrame; MAX_SCRIPT_FRAMES],
    /// Sums of the hash's terms: entry `n` is the sum for the `n` oldest words.
    sum: [u64; MAX_SCRIPT_FRAMES + 1],
    /// The provider's own memory.
    memory: [u64; PROVIDER_MEMORY_WORDS],
    /// Frames that a provider wrote last, innermost frame first.
    fresh: [RawFrame; MAX_SCRIPT_FRAMES + 1],
    /// The words of the stack, root first, followed by its label's word.
    word: [u64; MAX_SCRIPT_FRAMES + 1],
    known: [KnownScriptFrame; KNOWN_FRAMES],
    name: [u8; MAX_TEXT_LEN],
    file: [u8; MAX_TEXT_LEN],
    /// The native frames that were captured with the stack, innermost first.
    natives: [PlacedFrame; MAX_SCRIPT_FRAMES],
    /// The words of the merged native and interpreter frames, innermost first.
    merged: [u64; 2 * MAX_SCRIPT_FRAMES + 2],
}

#[derive(Clone, Copy)]
struct KnownScriptFrame {
    raw: RawFrame,
    /// The frame's word; 0 for an empty entry.
    word: u64,
    provider: usize,
}

/// The interpreters in the process: their providers, and all their frames so far.
pub(crate) struct InterpreterTables {
    pub(crate) providers: ProviderTable,
    pub(crate) names: ScriptFrames,
    pub(crate) watched: WatchedBlocks,
    pub(crate) pools: PoolStacks,
}

impl InterpreterTables {
    /// Makes tables without providers and frames.
    pub(crate) const fn new() -> Self {
        Self {
            providers: ProviderTable::new(),
            names: ScriptFrames::new(),
            watched: WatchedBlocks::new(),
            pools: PoolStacks::new(),
        }
    }
}

impl KnownScriptFrame {
    const NOTHING: Self = Self {
        raw: RawFrame {
            code: 0,
            place: 0,
            version: 0,
            line: 0,
            entry: 0,
        },
        word: 0,
        provider: 0,
    };
}

/// An allocation for which a stack is captured.
#[derive(Clone, Copy)]
pub(crate) struct AllocationCall {
    /// Number of bytes that the program allocates.
    pub(crate) size: usize,
    /// Address of the return address of the allocation's function.
    pub(crate) slot: usize,
    /// Bounds of the thread's own stack.
    pub(crate) stack: StackBounds,
}

/// Result of a capture by an interpreter's provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScriptCaptureOutcome {
    /// The thread runs no code of an interpreter.
    Nothing,
    /// The stack equals the thread's last stack.
    Same,
    /// The stack differs from the last stack, but is one of the stacks that were captured shortly
    /// before. The field is its number.
    Recent(StackNumber),
    /// The stack differs from the last stack, and its number is not known.
    Changed,
}

/// Returns a hash of a stack, from the sum of its callers, its newest frame and its label. The hash
/// is never 0.
#[inline(always)]
fn stack_key(callers: u64, leaf: RawFrame, label: u64) -> u64 {
    let mix = |a: u64, b: u64| (a ^ b).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
    let place = mix(callers, leaf.place);
    let code = mix(place, leaf.code ^ leaf.entry);
    let text = mix(code, u64::from(leaf.version) << 32 | u64::from(leaf.line));
    mix(text, label).max(1)
}

impl ScriptStack {
    /// Forgets the last stack, and which provider captured it.
    pub(crate) fn reset(&mut self) {
        (self.len, self.shared, self.stack, self.native) = (0, 0, None, None);
        self.is_leaf_unknown = false;
        // Most threads run no interpreter.
        if self.is_used {
            self.memory.fill(0);
            (self.is_used, self.asked) = (false, StackRequest::NOTHING);
            // Another interpreter may have other code in the same places.
            self.recent.fill((0, StackNumber::from_u32(0)));
            self.known.fill(KnownScriptFrame::NOTHING);
        }
        self.fresh[MAX_SCRIPT_FRAMES] = GUARD_FRAME;
    }

    /// Returns the number of the last stack, if its provider reports that the thread's stack is
    /// unchanged.
    #[inline(always)]
    pub(crate) fn find_unchanged(
        &mut self,
        scripts: &InterpreterTables,
        asked: StackRequest,
    ) -> Option<StackNumber> {
        let stack = self.stack?;
        if self.asked != asked || !asked.is_script() {
            return None;
        }
        let provider = scripts.providers.get_if_asked(self.provider)?;
        let memory = self.memory.as_mut_ptr().cast();
        // SAFETY: the code that registered the provider promised that it can be called in this way.
        let answer =
            unsafe { provider.unchanged?(provider.context, memory, size_of_val(&self.memory)) };
        (answer != 0).then_some(stack)
    }

    /// Captures the thread's stack at an allocation.
    #[inline(always)]
    pub(crate) fn capture(
        &mut self,
        scripts: &InterpreterTables,
        asked: StackRequest,
        process: &EngineProcess,
        call: AllocationCall,
    ) -> ScriptCaptureOutcome {
        // The provider of the last stack is called first.
        for (i, provider) in scripts.providers.providers_to_ask(self.provider) {
            if self.provider != i || self.asked != asked {
                self.reset();
                self.provider = i;
                self.asked = asked;
            }
            self.is_used = true;
            let mut capture = StackCapture {
                frames: self.fresh.as_mut_ptr(),
                most: MAX_SCRIPT_FRAMES,
                label: 0,
                shared: 0,
                memory: self.memory.as_mut_ptr().cast(),
                memory_size: size_of_val(&self.memory),
                size: call.size,
                caller: call.slot,
                stack_begin: call.stack.start,
                stack_end: call.stack.end,
                pool: 0,
            };
            // SAFETY: the code that registered the provider promised that it can be called in this
            // way.
            let len = unsafe { (provider.capture)(provider.context, &raw mut capture) };
            self.is_pool = capture.pool != 0;
            let (shared, label) = (capture.shared, FrameWord::Label(i, capture.label).to_word());
            let is_same = shared == len && len == self.len && len > 0 && label == self.label;
            if let (true, true, Some(stack)) = (is_same, asked.is_script(), self.stack) {
                return ScriptCaptureOutcome::Recent(stack);
            }
            // Mostly only the newest frame differs.
            if len == self.len && shared + 1 == len && asked.is_script() {
                let leaf = self.fresh[0];
                let key = stack_key(self.sum[shared], leaf, label);
                let recent = &self.recent[(key >> 56) as usize % KNOWN_STACKS];
                if recent.0 == key {
                    let is_same = key == self.key && self.stack == Some(recent.1);
                    (self.label, self.key) = (label, key);
                    if !is_same {
                        (self.stack, self.is_leaf_unknown) = (Some(recent.1), true);
                        self.raw[shared] = leaf;
                    }
                    return ScriptCaptureOutcome::Recent(recent.1);
                }
            }
            match self.take(i, len, shared, label, scripts, process) {
                ScriptCaptureOutcome::Nothing => continue,
                found => return found,
            }
        }
        ScriptCaptureOutcome::Nothing
    }

    /// Replaces the thread's last stack by a stack that a provider has captured.
    #[inline(never)]
    fn take(
        &mut self,
        i: usize,
        len: usize,
        shared: usize,
        label: u64,
        scripts: &InterpreterTables,
        process: &EngineProcess,
    ) -> ScriptCaptureOutcome {
        let InterpreterTables {
            providers, names, ..
        } = scripts;
        let Some(provider) = providers.get(i) else {
            return ScriptCaptureOutcome::Nothing;
        };
        if len > MAX_SCRIPT_FRAMES
            || shared > len.min(self.len)
            || self.fresh[MAX_SCRIPT_FRAMES] != GUARD_FRAME
        {
            // Data that the provider overwrote further on is lost. At least it writes nothing more.
            self.reset();
            providers.switch_off(i);
            return ScriptCaptureOutcome::Nothing;
        }
        if len == 0 {
            return ScriptCaptureOutcome::Nothing;
        }
        if self.is_leaf_unknown {
            self.is_leaf_unknown = false;
            let leaf = self.len - 1;
            if shared > leaf {
                // The frame still exists, so its texts do, too.
                let word = self.find_frame_word(self.raw[leaf], provider, names, process);
                self.put(leaf, word);
            } else {
                self.len = leaf;
            }
            // The stack that has the number begins with all of these words.
            self.shared = self.len;
        }
        let old = (self.len, std::mem::replace(&mut self.label, label));
        let is_same = self.replace(len, shared, provider, names, process);
        self.key = stack_key(self.sum[len - 1], self.raw[len - 1], label);
        match is_same && old == (len, label) {
            true => ScriptCaptureOutcome::Same,
            false => ScriptCaptureOutcome::Changed,
        }
    }

    /// Sets the word at `at`.
    fn put(&mut self, at: usize, word: u64) {
        self.word[at] = word;
        self.sum[at + 1] = self.sum[at].wrapping_add(hash_term(word, at));
    }

    /// Replaces the last stack by a captured stack. Both stacks share at least the `shared` oldest
    /// frames. Returns whether the last stack has all frames of the captured stack.
    #[inline(always)]
    fn replace(
        &mut self,
        len: usize,
        shared: usize,
        provider: &StackProvider,
        names: &ScriptFrames,
        process: &EngineProcess,
    ) -> bool {
        let same = |&at: &usize| self.raw[at] == self.fresh[len - 1 - at];
        let known = (shared..len.min(self.len)).take_while(same).count();
        let same = shared + known;
        self.shared = self.shared.min(same);
        for at in same..len {
            let raw = self.fresh[len - 1 - at];
            let word = self.find_frame_word(raw, provider, names, process);
            self.raw[at] = raw;
            self.put(at, word);
        }
        self.len = len;
        self.word[len] = self.label;
        same == len
    }

    /// Returns the word of a frame.
    #[inline]
    fn find_frame_word(
        &mut self,
        raw: RawFrame,
        provider: &StackProvider,
        names: &ScriptFrames,
        process: &EngineProcess,
    ) -> u64 {
        if raw.code == 0 {
            return CUT;
        }
        let mixed = raw.code ^ raw.place.rotate_left(20) ^ u64::from(raw.line) << 40;
        let mixed = mixed ^ u64::from(raw.version).rotate_left(8);
        let place = mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let place = place as usize & (KNOWN_FRAMES - 1);
        let known = self.known[place];
        // The entry of a frame does not change its name.
        let raw = RawFrame { entry: 0, ..raw };
        if known.word != 0 && known.raw == raw && known.provider == self.provider {
            return known.word;
        }
        let word = self.resolve(raw, provider, names, process);
        self.known[place] = KnownScriptFrame {
            raw,
            word,
            provider: self.provider,
        };
        word
    }

    #[cold]
    fn resolve(
        &mut self,
        raw: RawFrame,
        provider: &StackProvider,
        names: &ScriptFrames,
        process: &EngineProcess,
    ) -> u64 {
        (self.name[0], self.file[0]) = (0, 0);
        // The last byte stays zero, whatever the provider writes.
        let mut named = NamedFrame {
            name: self.name.as_mut_ptr().cast(),
            name_size: MAX_TEXT_LEN - 1,
            file: self.file.as_mut_ptr().cast(),
            file_size: MAX_TEXT_LEN - 1,
            start_line: 0,
            line: raw.line,
            memory: self.memory.as_mut_ptr().cast(),
            memory_size: size_of_val(&self.memory),
        };
        // SAFETY: the code that registered the provider promised that it can be called in this way.
        let answer = unsafe { (provider.resolve)(provider.context, &raw, &raw mut named) };
        let (start_line, line) = (named.start_line, named.line);
        let until_zero = |text: &'_ [u8; MAX_TEXT_LEN]| {
            let end = text[..MAX_TEXT_LEN - 1].iter().position(|&byte| byte == 0);
            end.unwrap_or(MAX_TEXT_LEN - 1)
        };
        let (name, file) = (until_zero(&self.name), until_zero(&self.file));
        let is_named = answer == 0 && name != 0;
        names.word(
            process,
            ScriptFrame {
                name: if is_named {
                    &self.name[..name]
                } else {
                    b"(unnamed)"
                },
                file: if answer == 0 { &self.file[..file] } else { b"" },
                start_line,
                line,
            },
        )
    }

    /// Returns the stack's hash. It depends on the native stack that was captured with it, on its
    /// words, and on its label.
    #[inline(always)]
    pub(crate) fn hash(&self) -> u64 {
        let sum = self.sum[self.len];
        let label = hash_term(self.label, MAX_SCRIPT_FRAMES);
        let native = self.native.map_or(0, |native| self.hash_of_entries(native));
        sum.wrapping_add(label).wrapping_add(native)
    }

    /// Returns the part of a merged stack's hash that comes from the native stack, and from the
    /// addresses at which native code entered the interpreter. It distinguishes merged stacks with
    /// equal frames.
    #[cold]
    fn hash_of_entries(&self, native: StackNumber) -> u64 {
        let frames = self.raw[..self.len].iter().enumerate();
        let entered = frames.filter(|(_, raw)| raw.entry != 0);
        let terms = entered.map(|(at, _)| hash_term(1, MAX_SCRIPT_FRAMES + 2 + at));
        terms.fold(
            hash_term(u64::from(native.to_u32()), MAX_SCRIPT_FRAMES + 1),
            u64::wrapping_add,
        )
    }

    /// Returns the stack's number, if it has one.
    #[inline(always)]
    pub(crate) fn stack(&self) -> Option<StackNumber> {
        self.stack
    }

    /// Returns the words of the stack, root first, its label last.
    pub(crate) fn words(&self) -> &[u64] {
        &self.word[..=self.len]
    }

    /// Returns the number of oldest words that this stack shares with the stack whose number
    /// [`stack`](Self::stack) returns.
    pub(crate) fn shared_words(&self) -> usize {
        self.shared
    }

    /// Whether the last stack belongs to a pool.
    #[inline(always)]
    pub(crate) fn is_pool(&self) -> bool {
        self.is_pool
    }

    /// Adds the stack to `pools` under its number, if it belongs to a pool.
    #[inline(always)]
    pub(crate) fn note_pool(&self, pools: &PoolStacks, stack: Option<StackNumber>) {
        if let (true, Some(stack)) = (self.is_pool, stack) {
            pools.note(self.provider, stack);
        }
    }

    /// Notes the number that the stack got.
    #[inline(always)]
    pub(crate) fn note_number(&mut self, stack: Option<StackNumber>) {
        (self.stack, self.shared) = (stack, if stack.is_some() { self.len } else { 0 });
        if let (Some(stack), None) = (stack, self.native) {
            self.recent[(self.key >> 56) as usize % KNOWN_STACKS] = (self.key, stack);
        }
    }

    /// Returns the number of the native stack that was captured together with this stack.
    pub(crate) fn native(&self) -> Option<StackNumber> {
        self.native
    }

    /// Notes the number of the native stack that was captured with this stack. Returns whether the
    /// number is the same as the last time.
    #[inline(always)]
    pub(crate) fn note_native(&mut self, native: Option<StackNumber>) -> bool {
        let before = std::mem::replace(&mut self.native, native);
        if before.is_some() != native.is_some() {
            // The stack with the number has other words than this one.
            (self.stack, self.shared) = (None, 0);
        }
        before == native
    }

    /// Merges the interpreter's frames into the native stack with [`merge_frames`], innermost frame
    /// first. `walk` writes the native stack into an array, innermost frame first.
    #[cold]
    pub(crate) fn merge(
        &mut self,
        providers: &ProviderTable,
        walk: impl FnOnce(&mut [PlacedFrame; MAX_SCRIPT_FRAMES]) -> usize,
    ) -> &[u64] {
        let run_loop = providers.run_loop(self.provider);
        let natives = walk(&mut self.natives);
        let frames = self.raw[..self.len].iter().zip(&self.word).rev();
        let frames = frames.map(|(raw, &word)| (raw.entry, word));
        let n = merge_frames(
            self.label,
            &self.natives[..natives],
            frames,
            run_loop,
            &mut self.merged,
        );
        &self.merged[..n]
    }
}
