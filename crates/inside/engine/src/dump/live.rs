//! Requests of `record --live`. They are in a word that `record` writes and every process reads.
//! This module also stores the last request that this process has answered.
//!
//! The word is in a file that is mapped when the recording begins. So a process opens no file to
//! read it, and forked children see it, too.

use std::ffi::CString;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use heapprof_platform::sys::{self, EngineFile};

/// The word with the request of `record --live`, and the last request that was answered.
pub(crate) struct LiveRequests {
    /// The request word. Its upper half is the id of the process from which a profile is requested
    /// (0 means all processes). Its lower half counts the requests.
    word: OnceLock<&'static AtomicU64>,
    /// The value of the request word that was answered last.
    answered: AtomicU64,
    /// Earliest time of the next answer, in nanoseconds of the monotonic clock.
    not_before: AtomicI64,
    /// Whether allocations check the request word, because the engine can't have a thread for this.
    is_inline: AtomicBool,
}

/// Factor by which the pause after an answer is longer than the answer. So answers take less than a
/// tenth of the time.
const ANSWER_TIME_DIVISOR: i64 = 10;
/// Name of the file that contains the request word, in the folder of `DumpOutput::list`.
const REQUEST_FILE_NAME: &[u8] = b"/asked";

impl LiveRequests {
    /// Creates the state before the request word is mapped.
    pub(crate) const fn new() -> Self {
        Self {
            word: OnceLock::new(),
            answered: AtomicU64::new(0),
            not_before: AtomicI64::new(0),
            is_inline: AtomicBool::new(false),
        }
    }

    /// Maps the file with the request word, which is in the folder `list`. If the word is mapped
    /// already, nothing changes.
    pub(crate) fn begin(&self, list: &[u8]) {
        if self.word.get().is_some() {
            return;
        }
        let flags = libc::O_RDONLY | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let path = CString::new([list, REQUEST_FILE_NAME].concat()).unwrap_or_default();
        let word = EngineFile::open(&path, flags, 0).ok();
        if let Some(word) = word.and_then(|file| sys::map_word(&file)) {
            // A request to an earlier image of this process is not meant for this one.
            self.answered
                .store(word.load(Ordering::Relaxed), Ordering::Relaxed);
            let _ = self.word.set(word);
        }
    }

    /// Sets whether allocations check the request word.
    pub(crate) fn check_inline(&self, is_inline: bool) {
        self.is_inline.store(is_inline, Ordering::Relaxed);
    }

    /// Whether allocations check the request word, and the word has a request for this
    /// process.
    pub(crate) fn is_asked_inline(&self) -> bool {
        self.is_inline.load(Ordering::Relaxed) && self.pending_request().is_some()
    }

    /// Returns the request word, if it has an unanswered request for this process, and the pause
    /// after the last answer is over.
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

    /// Records that the request `word` is answered. The answer began at `began`, in nanoseconds.
    pub(crate) fn note_answer(&self, word: u64, began: i64) {
        let now = sys::nanoseconds(libc::CLOCK_MONOTONIC);
        let pause = (now - began).saturating_mul(ANSWER_TIME_DIVISOR);
        self.not_before
            .store(now.saturating_add(pause), Ordering::Relaxed);
        self.answered.store(word, Ordering::Relaxed);
    }
}
