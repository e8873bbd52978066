//! Measures runs of a program with different allocators, and computes the peak of a recorded run.
//!
//! [`select_allocators`] finds the allocators that are installed, [`run_with`] measures one run
//! with one of them, and [`RecordedRun`] has the numbers from the profiles of a recorded run.
#![forbid(unsafe_code)]
// The rules are for programs. Tests write where nobody else does.
#![cfg_attr(test, allow(clippy::disallowed_methods))]

mod allocator;
mod error;
mod heap;
mod run;

pub use allocator::{AllocatorSelection, AllocatorSetup, select_allocators};
pub use error::{AllocatorError, RunError};
pub use heap::RecordedRun;
pub use run::{LoadedAllocator, RunSetup, run_with, warm_up};
