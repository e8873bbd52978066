//! What `record --live` asks for: a word that `record` writes and every process reads, and what
//! this process has answered.
//!
//! The word is in a file that is mapped when the recording begins. So whoever looks at it opens no
//! file, and forked children see it, too.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::platform::sys::{self, EngineFile};

/// What was asked and answered.
pub(crate) struct LiveRequests {
    /// In its upper half which process is asked (0 is all), in its lower half how often somebody
    /// has asked.
    word: OnceLock<&'static AtomicU64>,
    /// The word that was answered last.
    answered: AtomicU64,
    /// The time before which there is no other answer, in nanoseconds since some moment.
    not_before: AtomicI64,
    /// Whether allocations look at the word, because no thread of ours can.
    is_inline: AtomicBool,
}

/// An answer takes at most one part in so many of the time.
const ANSWER_TIME_DIVISOR: i64 = 10;
/// The name of the word's file in the folder of the list.
const REQUEST_FILE_NAME: &[u8] = b"/asked";

impl LiveRequests {
    /// Nobody asks.
    pub(crate) const fn new() -> Self {
        Self {
            word: OnceLock::new(),
            answered: AtomicU64::new(0),
            not_before: AtomicI64::new(0),
            is_inline: AtomicBool::new(false),
        }
    }

    /// Looks for the word's file in this folder. A word that is mapped already stays.
    pub(crate) fn begin(&self, list: &[u8]) {
        if self.word.get().is_some() {
            return;
        }
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let path = CString::new([list, REQUEST_FILE_NAME].concat()).unwrap_or_default();
        let word = EngineFile::open(&path, flags, 0).ok();
        if let Some(word) = word.and_then(|file| sys::map_word(&file)) {
            // What was asked of an earlier image is not asked of this one.
            self.answered
                .store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            let _ = self.word.set(word);
        }
    }

    /// Lets allocations look at the word, or no longer.
    pub(crate) fn check_inline(&self, is_inline: bool) {
        self.is_inline.store(is_inline, Ordering::Relaxed);
    }

    /// Whether allocations look at the word, and it asks something of this process.
    pub(crate) fn is_asked_inline(&self) -> bool {
        self.is_inline.load(Ordering::Relaxed) && self.pending_request().is_some()
    }

    /// The word, if it asks something of this process that is not answered yet.
    pub(crate) fn pending_request(&self) -> Option<u64> {
        let word = self.word.get()?.load(Ordering::Relaxed);
        let is_new = word != self.answered.load(Ordering::Relaxed);
        let whom = (word >> 32) as i32;
        let is_asked = is_new && (whom == 0 || whom == sys::process_id());
        let is_time = || {
            let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
            now >= self.not_before.load(Ordering::Relaxed)
        };
        (is_asked && is_time()).then_some(word)
    }

    /// Notes the answer to `word`, which began at `began`.
    pub(crate) fn note_answer(&self, word: u64, began: i64) {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let pause = (now - began).saturating_mul(ANSWER_TIME_DIVISOR);
        self.not_before
            .store(now.saturating_add(pause), Ordering::Relaxed);
        self.answered.store(word, Ordering::Relaxed);
    }
}
