//! What a forked child shares with its parent: which pages it has inherited, which of them it has
//! alone by now, and whose allocations lie there.
//!
//! A fork copies no memory. Parent and child share each page until one of them writes to it; then
//! the kernel copies the page, and each has its own. [`ForkBaseline`] notes the pages of a child
//! when it begins. [`audit_child()`] compares them later, and says by the recording's books which
//! stacks have allocated what lies on the pages that are not shared any more.
//!
//! A page is said to be a child's own as well if everybody else who had it has ended. So children
//! are looked at while parent and siblings live.
//!
//! * `forked.rs`: the pages at the fork.
//! * `audit_child.rs`: the comparison.
//! * `blame.rs`: the allocations on pages that are not shared.
//! * `cache.rs`: memory of another process, each page read once.
//! * `perl.rs`: what lies in the arenas of a perl.
//!
//! It must never know SQLite, the terminal or files of profiles.
#![forbid(unsafe_code)]

mod audit;
mod blame;
mod cache;
mod forked;
mod perl;

pub use self::audit::{ForkedChildAudit, audit_child};
pub use self::forked::ForkBaseline;
