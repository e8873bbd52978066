//! The code of a stub, to which the jump at a function's entry leads. It passes the function's
//! [`HookedFunction`](super::calls::HookedFunction) to the hook, and no return address.

use heapprof_allocators::AllocatorCall;
use heapprof_entry::branch_by_filter;

use super::fast_calls::filter_address;
use super::hook_choice::hook_for;

/// Number of bytes for a stub.
pub(super) const MAX_STUB_LEN: usize = 64;

/// Addresses of what belongs to one function.
#[derive(Clone, Copy)]
pub(super) struct StubPlace {
    /// Its [`HookedFunction`](super::calls::HookedFunction).
    pub function: usize,
    /// Its stub.
    pub stub: usize,
    /// Its trampoline.
    pub trampoline: usize,
}

/// Returns the code of a stub, at most [`MAX_STUB_LEN`] bytes. `None` if the processor can't keep
/// the registers, although the function's callers rely on that.
pub(super) fn stub_code(
    at: StubPlace,
    keeps_registers: bool,
    call: Option<AllocatorCall>,
) -> Option<Vec<u8>> {
    let keeps_registers = keeps_registers || call.is_none();
    let hook = hook_for(call, keeps_registers)?;
    let function = at.function.to_le_bytes();
    let mut code = Vec::with_capacity(MAX_STUB_LEN);
    if keeps_registers {
        // push LOW; mov dword ptr [rsp+4], HIGH
        let (low, high) = function.split_at(4);
        code.push(0x68);
        code.extend(low);
        code.extend([0xc7, 0x44, 0x24, 0x04]);
        code.extend(high);
    } else {
        if matches!(call, Some(AllocatorCall::Free { block: 0 })) {
            // No recorded block is freed: the function is called as if it had no hook.
            let [stub, trampoline] = [at.stub as u64, at.trampoline as u64];
            code.extend(branch_by_filter(stub, filter_address() as u64, trampoline)?);
        }
        // mov r10, FUNCTION
        code.extend([0x49, 0xba]);
        code.extend(function);
    }
    // jmp [rip]; HOOK
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(hook.to_le_bytes());
    Some(code)
}
