//! A thread's own stack numbers, in a recording that counts each thread separately. Each number
//! stands for a stack that all threads share.
//!
//! Stacks are captured and numbered as in any recording. Then the thread looks up its own number
//! for the captured stack: first in a cache, [`ThreadStacks`], and then in the table of stacks.

use heapprof_abi::{StackNumber, ThreadNumber};

/// Number of entries of the cache. It is a power of two.
const KNOWN_STACKS: usize = 256;
/// An empty entry of the cache.
const NOTHING: (u32, StackNumber) = (0, StackNumber::from_u32(0));

/// A cache of a thread's own numbers of stacks. All zeros are an empty cache.
pub(crate) struct ThreadStacks {
    thread: ThreadNumber,
    /// Entries of the cache. Each one has the number of a stack that all threads share, plus one,
    /// and the thread's own number for it.
    known: [(u32, StackNumber); KNOWN_STACKS],
}

impl ThreadStacks {
    /// Returns the thread's own number for a stack, if it is in the cache.
    #[inline]
    pub(crate) fn get(&self, thread: ThreadNumber, stack: StackNumber) -> Option<StackNumber> {
        let (known, own) = self.known[stack.to_index() % KNOWN_STACKS];
        (known == stack.to_u32().wrapping_add(1) && self.thread == thread).then_some(own)
    }

    /// Puts the thread's own number for a stack into the cache.
    pub(crate) fn put(&mut self, thread: ThreadNumber, stack: StackNumber, own: StackNumber) {
        if self.thread != thread {
            self.known.fill(NOTHING);
            self.thread = thread;
        }
        self.known[stack.to_index() % KNOWN_STACKS] = (stack.to_u32().wrapping_add(1), own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_one_threads() {
        let mut stacks = ThreadStacks {
            thread: ThreadNumber::from_u32(0),
            known: [NOTHING; KNOWN_STACKS],
        };
        let number = StackNumber::from_u32;
        let [one, two] = [1, 2].map(ThreadNumber::from_u32);
        assert_eq!(stacks.get(one, number(0)), None);
        stacks.put(one, number(0), number(10));
        stacks.put(one, number(7), number(17));
        assert_eq!(stacks.get(one, number(0)), Some(number(10)));
        assert_eq!(stacks.get(one, number(7)), Some(number(17)));
        assert_eq!(stacks.get(two, number(7)), None);
        assert_eq!(stacks.get(one, number(7 + 256)), None);
        stacks.put(two, number(7), number(27));
        assert_eq!(stacks.get(two, number(7)), Some(number(27)));
        assert_eq!(stacks.get(two, number(0)), None);
    }
}
