//! Reads the values of an arena through the kernel: their heads, and the first words of their
//! bodies.
//!
//! Other threads may change the values meanwhile. A part that can't be read stays zero, because its
//! value was freed.

use heapprof_perl::{BODY_WORDS, HEAD_BYTES, SvBody, SvHead, sharers_of};
use heapprof_platform::sys;

/// A value in an arena. Parts of the value that could not be read are zero.
#[derive(Clone, Copy)]
pub(super) struct ArenaValue {
    /// The index of the value's head in the arena.
    pub(super) place: usize,
    pub(super) head: SvHead,
    pub(super) body: SvBody,
    /// Number of other values that share the value's text.
    pub(super) others: u8,
}

/// Maximum number of heads in an arena.
const MAX_HEADS: usize = 170;

/// The values of an arena.
pub(super) struct ArenaValues {
    values: [Option<ArenaValue>; MAX_HEADS],
    len: usize,
}

impl ArenaValues {
    /// Reads the wanted values among the `count` heads that begin at `first`; `None` if the heads
    /// can't be read.
    pub(super) fn read(
        first: u64,
        count: usize,
        is_wanted: impl Fn(usize, &SvHead) -> bool,
    ) -> Option<Self> {
        let mut read = [0; MAX_HEADS * HEAD_BYTES];
        let bytes = read.get_mut(..count * HEAD_BYTES)?;
        if sys::read_memory(first as usize, bytes) != bytes.len() {
            return None;
        }
        let mut all = Self {
            values: [None; MAX_HEADS],
            len: 0,
        };
        for (place, head) in bytes.as_chunks().0.iter().enumerate() {
            let head = SvHead::new(head);
            if !head.is_free() && is_wanted(place, &head) {
                all.values[all.len] = Some(ArenaValue {
                    place,
                    head,
                    body: [0; BODY_WORDS],
                    others: 0,
                });
                all.len += 1;
            }
        }
        all.read_bodies();
        all.read_sharers();
        Some(all)
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &ArenaValue> {
        self.values[..self.len].iter().flatten()
    }

    fn read_bodies(&mut self) {
        self.read_of(
            |value| value.head.body(),
            |value, body: &[u8; BODY_WORDS * 8]| {
                for (to, word) in value.body.iter_mut().zip(body.as_chunks().0) {
                    *to = u64::from_ne_bytes(*word);
                }
            },
        );
    }

    fn read_sharers(&mut self) {
        let sharers = |value: &ArenaValue| sharers_of(&value.head, &value.body);
        self.read_of(sharers, |value, &[others]: &[u8; 1]| value.others = others);
    }

    /// Reads `N` bytes for each value, at the address that `at` returns for it, and passes the
    /// bytes to `put`. Skips values for which `at` returns `None`.
    fn read_of<const N: usize>(
        &mut self,
        at: impl Fn(&ArenaValue) -> Option<u64>,
        put: impl Fn(&mut ArenaValue, &[u8; N]),
    ) {
        let (mut from, mut of, mut count) = ([0; MAX_HEADS], [0; MAX_HEADS], 0);
        for (i, value) in self.values().enumerate() {
            if let Some(at) = at(value) {
                (from[count], of[count]) = (at, i);
                count += 1;
            }
        }
        let mut read = [[0; N]; MAX_HEADS];
        read_each(&from[..count], &mut read[..count]);
        for (read, &of) in read[..count].iter().zip(&of) {
            if let Some(value) = &mut self.values[of] {
                put(value, read);
            }
        }
    }
}

/// Reads `N` bytes at each address of `from`. Bytes in `to` that can't be read are left unchanged.
/// One system call suffices if all bytes can be read.
fn read_each<const N: usize>(from: &[u64], to: &mut [[u8; N]]) {
    let mut done = 0;
    while done < from.len() {
        done += sys::read_each(&from[done..], &mut to[done..]);
        // The next bytes can't be read, or not as a whole.
        done += 1;
    }
}
