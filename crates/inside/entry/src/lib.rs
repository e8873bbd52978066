//! Decides whether a jump may replace the first instructions of an allocator's function, and moves
//! these instructions.
//!
//! An allocator that is linked into a program is called directly, so no symbol leads a call to a
//! hook. A jump at the function's entry does. The instructions below the jump move to a trampoline,
//! through which the hook calls the function.
//!
//! A jump has five bytes. [`EntryPlan::new`] refuses a function if a jump there could change what
//! the program does:
//!
//! * code outside these bytes leads into them: a branch, a call that returns there, or a name,
//! * the function is shorter, and other code follows,
//! * a call through a pointer would have to move. It would return into the copy, of which no
//!   unwinder knows. A direct call moves as a push of its old return address and a jump.
//! * the function loops to its first instruction, which would call the hook in each round.
//!
//! If neither the function nor one that it calls leads out of the file, or through a pointer, its
//! compiler has seen all of it. Then it knows which registers the function leaves alone, and may
//! let the callers keep values in them (GCC's `-fipa-ra`). [`EntryPlan::keeps_registers`] says so:
//! the hook has to restore all registers.
#![forbid(unsafe_code)]

mod code;
mod filter;
mod plan;
mod refusal;
#[cfg(test)]
mod tests;
mod trampoline;

pub use code::FunctionCode;
pub use filter::branch_by_filter;
pub use plan::{EntryPlan, calls_one_of};
pub use refusal::EntryRefusal;
pub use trampoline::Trampoline;

/// Number of bytes of a jump to any address within 2 GiB.
pub const JUMP_LEN: usize = 5;

/// Returns the bytes of a jump at `at` that leads to `to`; `None` if that is too far.
#[must_use]
pub fn jump(at: u64, to: u64) -> Option<[u8; JUMP_LEN]> {
    let distance = to
        .wrapping_sub(at.wrapping_add(JUMP_LEN as u64))
        .cast_signed();
    let distance = i32::try_from(distance).ok()?.to_le_bytes();
    let [a, b, c, d] = distance;
    Some([0xe9, a, b, c, d])
}
