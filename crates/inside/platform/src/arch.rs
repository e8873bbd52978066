//! The code that depends on the processor. No other code in this crate uses registers or
//! instructions.
//!
//! Each supported processor has a folder that exports the same names as `x86_64`. Other processors
//! use `portable.rs` and `unprepared.rs`.

#[cfg(not(any(target_arch = "x86_64", miri)))]
mod portable;
#[cfg(any(not(target_arch = "x86_64"), miri))]
mod unprepared;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(not(any(target_arch = "x86_64", miri, shuttle)))]
pub(crate) use portable::CLOCK_FUNCTION_NAME;
#[cfg(not(any(target_arch = "x86_64", miri)))]
pub use portable::call;
#[cfg(miri)]
pub use unprepared::call;
#[cfg(any(not(target_arch = "x86_64"), miri))]
pub use unprepared::{has_shadow_stack, prefetch, undisturbed};
#[cfg(all(
    feature = "late-library",
    target_arch = "x86_64",
    not(any(miri, shuttle))
))]
pub use x86_64::TLS_MODULE;
#[cfg(all(target_arch = "x86_64", not(any(miri, shuttle))))]
pub(crate) use x86_64::{CLOCK_FUNCTION_NAME, THREAD_SLOT_LEN, thread_slot};
#[cfg(all(target_arch = "x86_64", not(miri)))]
pub use x86_64::{call, has_shadow_stack, prefetch, undisturbed};
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::{call_on_stack, clone_on_stack};
