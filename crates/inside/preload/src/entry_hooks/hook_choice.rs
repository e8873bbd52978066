//! Chooses the hook of a function by what it does.

use heapprof_allocators::AllocatorCall;

use super::calls::{call_hook, can_keep_registers, keeping_hook, resize_hook, resizes};
use super::fast_calls::{allocation_hook, free_hook};

/// Returns the address of the hook for a function that does this; `None` stands for the loader's
/// function for changes of its list. The hook restores all registers if the function's callers rely
/// on that. Returns `None` if the processor can't do so.
pub(super) fn hook_for(call: Option<AllocatorCall>, keeps_registers: bool) -> Option<usize> {
    let hook = match call {
        _ if keeps_registers && !can_keep_registers() => return None,
        _ if keeps_registers => keeping_hook,
        Some(AllocatorCall::Allocate { size: 0 }) => allocation_hook,
        Some(AllocatorCall::Free { block: 0 }) => free_hook,
        Some(call) if resizes(call) => resize_hook,
        Some(_) => call_hook,
        None => return None,
    };
    Some(hook as *const () as usize)
}
