//! Finds which memory a forked child shares with its parent: the inherited pages, the inherited
//! pages that only the child still has, and the allocations on these pages.
//!
//! A fork copies no memory. Parent and child share each page until one of them writes to it; then
//! the kernel copies the page, and each process has its own copy. [`ForkBaseline`] records the
//! pages of a child at its beginning. [`audit_child()`] compares them later. From the recording's
//! ledger it finds the stacks whose allocations are on the pages that are no longer shared.
//!
//! A page also counts as the child's own if all other processes that had it have ended. So children
//! are audited while their parent and siblings live.
//!
//! * `fork_state.rs`: the pages at the fork.
//! * `audit.rs`: the comparison.
//! * `child_allocations.rs`: the allocations on pages that are not shared.
//! * `cache.rs`: memory of another process, of which each page is read once.
//! * `perl.rs`: the values in the arenas of a perl.
//!
//! This crate must not depend on SQLite, the terminal or files of profiles.
#![forbid(unsafe_code)]

mod audit;
mod cache;
mod child_allocations;
mod fork_state;
mod perl;

pub use self::audit::{ForkedChildAudit, audit_child};
pub use self::fork_state::ForkBaseline;
