//! The stacks of one thread, when a recording keeps each thread's share: which number the thread
//! has for a stack that all threads share.
//!
//! Stacks are captured and numbered as ever. The thread then looks up its own number for the one
//! that it got, mostly here, and otherwise in the table of stacks.

/// How many stacks are known. It is a power of two.
const KNOWN_STACKS: usize = 256;

/// What a thread knows of its own stacks. All zero is nothing.
pub(crate) struct ThreadStacks {
    /// The number of the thread.
    thread: u32,
    /// A stack that all threads share, and one more; and the thread's own.
    known: [(u32, u32); KNOWN_STACKS],
}

impl ThreadStacks {
    /// The thread's own number for a stack, if it is known.
    #[inline]
    pub(crate) fn get(&self, thread: u32, stack: u32) -> Option<u32> {
        let (known, own) = self.known[stack as usize % KNOWN_STACKS];
        (known == stack.wrapping_add(1) && self.thread == thread).then_some(own)
    }

    /// Remembers the thread's own number for a stack.
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
