//! A thread's own stacks, in a recording that keeps each thread's share: the numbers that the
//! thread has for stacks that all threads share.
//!
//! Stacks are captured and numbered as in any recording. The thread then looks up its own number
//! for the stack that it got, mostly here, and otherwise in the table of stacks.

/// Number of stacks whose number is remembered. It is a power of two.
const KNOWN_STACKS: usize = 256;

/// A cache of a thread's own numbers of stacks. All zeros are an empty cache.
pub(crate) struct ThreadStacks {
    /// Number of the thread.
    thread: u32,
    /// Number of a stack that all threads share, plus one; and the thread's own number for it.
    known: [(u32, u32); KNOWN_STACKS],
}

impl ThreadStacks {
    /// Returns the thread's own number for a stack, if it is in the cache.
    #[inline]
    pub(crate) fn get(&self, thread: u32, stack: u32) -> Option<u32> {
        let (known, own) = self.known[stack as usize % KNOWN_STACKS];
        (known == stack.wrapping_add(1) && self.thread == thread).then_some(own)
    }

    /// Puts the thread's own number for a stack into the cache.
    pub(crate) fn put(&mut self, thread: u32, stack: u32, own: u32) {
        if self.thread != thread {
            self.known.fill((0, 0));
            self.thread = thread;
        }
        self.known[stack as usize % KNOWN_STACKS] = (stack.wrapping_add(1), own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_one_threads() {
        let mut stacks = ThreadStacks {
            thread: 0,
            known: [(0, 0); KNOWN_STACKS],
        };
        assert_eq!(stacks.get(1, 0), None);
        stacks.put(1, 0, 10);
        stacks.put(1, 7, 17);
        assert_eq!((stacks.get(1, 0), stacks.get(1, 7)), (Some(10), Some(17)));
        assert_eq!((stacks.get(2, 7), stacks.get(1, 7 + 256)), (None, None));
        stacks.put(2, 7, 27);
        assert_eq!((stacks.get(2, 7), stacks.get(2, 0)), (Some(27), None));
    }
}
