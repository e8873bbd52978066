//! Hashing for the tables of this crate. A library inside a user's program uses these tables, too.
//! So the seed does not come from a clock: the program may define its own `clock_gettime`, or
//! forbid the system call by a filter.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;

/// A map whose hashes can't be foreseen from outside the process.
pub(crate) type HashMap<K, V> = std::collections::HashMap<K, V, RandomState>;

/// Makes hashers from one seed. The seed comes from the addresses at which the kernel has put the
/// stack and the code.
#[derive(Clone, Debug)]
pub(crate) struct RandomState(FixedState);

impl Default for RandomState {
    fn default() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
        let on_stack = 0u8;
        let stack = std::ptr::from_ref(&on_stack).addr() as u64;
        let code = std::ptr::from_ref(&COUNT).addr() as u64;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let seed = stack.rotate_left(32) ^ code ^ count.wrapping_mul(ODD);
        Self(FixedState::with_seed(seed))
    }
}

impl BuildHasher for RandomState {
    type Hasher = <FixedState as BuildHasher>::Hasher;

    #[inline]
    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_seed_of_its_own() {
        let [one, other] = [RandomState::default(), RandomState::default()];
        assert_ne!(one.hash_one("name"), other.hash_one("name"));
        assert_eq!(one.hash_one("name"), one.clone().hash_one("name"));
    }
}
