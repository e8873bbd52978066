//! Memory for words that are written once and never freed: stacks, and the texts of frames.

use heapprof_platform::pages::PageSource;
use heapprof_platform::sys;
use heapprof_platform::table_file::TableLifetime;

/// Memory for words that are never freed.
pub(crate) struct WordMemory {
    at: *mut u64,
    left: usize,
    /// Number of bytes mapped so far.
    mapped: usize,
}

// SAFETY: what is handed out belongs to the caller that got it, and the rest is reached only
// through this.
unsafe impl Send for WordMemory {}

impl WordMemory {
    /// Creates memory without any mapping yet.
    pub(crate) const fn new() -> Self {
        Self {
            at: std::ptr::null_mut(),
            left: 0,
            mapped: 0,
        }
    }

    /// Returns `words` zeroed words, which are never freed; `None` if there is no memory.
    pub(crate) fn take(&mut self, words: usize, pages: &PageSource) -> Option<*mut u64> {
        if words > self.left {
            // A chunk is a quarter of what there is, and a large page once that is as much.
            let chunk = (self.mapped / 4).next_power_of_two();
            let chunk = chunk.clamp(64 << 10, sys::LARGE_PAGE_SIZE);
            let new = pages.map_dense(chunk, TableLifetime::Lasting).cast::<u64>();
            if new.is_null() {
                return None;
            }
            self.mapped += chunk;
            (self.at, self.left) = (new, chunk / 8);
        }
        let at = self.at;
        // SAFETY: `words` are left behind `at`.
        self.at = unsafe { at.add(words) };
        self.left -= words;
        Some(at)
    }

    /// Returns the number of mapped bytes, the number of unused bytes, and the address of the first
    /// unused byte.
    pub(crate) fn extent(&self) -> (usize, usize, *const u8) {
        let rest = self.at.cast_const().cast();
        (self.mapped, self.left * size_of::<u64>(), rest)
    }
}
