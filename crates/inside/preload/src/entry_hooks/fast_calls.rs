//! The hook of functions that allocate most often: few instructions, unless the call is recorded.
//!
//! It does what the hook in `calls.rs` does, and jumps there if there is more to do. An allocation
//! that the countdown does not select sets the thread's marks of a call, and the countdown that
//! counts after it; the call then returns to the hook, which takes the marks away.

use std::arch::naked_asm;
use std::mem::offset_of;

use heapprof_engine::{ENGINE, EngineEvents};
use heapprof_platform::tls::{INSIDE_ALLOCATOR, QUIET_COUNTDOWN, ThreadSlot};
use heapprof_platform::{late_block, slot_site};

use super::calls::call_hook;

/// Hook of a function that returns a block, with the number of bytes as its first argument. The
/// stub has put the address of the function's
/// [`HookedFunction`](super::calls::HookedFunction) into r10.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn allocation_hook() {
    naked_asm!(
        ".cfi_startproc",
        "3: mov rax, qword ptr [rip + heapprof_tls@GOTTPOFF]",
        "add rax, qword ptr fs:[0]",
        "4: cmp dword ptr [rax + {busy}], 0",
        "jne {call_hook}",
        "mov r11, qword ptr [rax + {countdown}]",
        "stc",
        "sbb r11, rdi",
        "jb {call_hook}",
        // A signal handler may come at each of these steps, as in the engine's `begin_call`.
        "mov qword ptr [rax + {call_countdown}], r11",
        "mov r11, qword ptr [rsp]",
        "mov qword ptr [rax + {call_slot}], rsp",
        "mov qword ptr [rax + {call_return}], r11",
        "mov dword ptr [rax + {busy}], {inside}",
        "mov qword ptr [rax + {call_slot}], rsp",
        "mov qword ptr [rax + {call_return}], r11",
        "mov dword ptr [rax + {inner_calls}], 0",
        "movabs r11, {quiet}",
        "mov qword ptr [rax + {countdown}], r11",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call qword ptr [r10]",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "cmp dword ptr [rcx + {busy}], {inside}",
        "jne 2f",
        "mov r11, qword ptr [rcx + {call_countdown}]",
        "mov qword ptr [rcx + {countdown}], r11",
        "mov dword ptr [rcx + {busy}], 0",
        "cmp byte ptr [rip + {engine} + {pending}], 0",
        "jne 2f",
        "ret",
        "2: push rax",
        ".cfi_adjust_cfa_offset 8",
        "call {end}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        "5:",
        late_block!("rax"),
        "lea rax, [rax + heapprof_tls@DTPOFF]",
        "jmp 4b",
        ".cfi_endproc",
        slot_site!("3b", "5b"),
        busy = const offset_of!(ThreadSlot, busy),
        countdown = const offset_of!(ThreadSlot, countdown),
        call_countdown = const offset_of!(ThreadSlot, call_countdown),
        call_slot = const offset_of!(ThreadSlot, call_slot),
        call_return = const offset_of!(ThreadSlot, call_return),
        inner_calls = const offset_of!(ThreadSlot, inner_calls),
        inside = const INSIDE_ALLOCATOR,
        quiet = const QUIET_COUNTDOWN,
        engine = sym ENGINE,
        pending = const EngineEvents::PENDING_OFFSET,
        call_hook = sym call_hook,
        end = sym end_unrecorded_call,
    )
}

/// Ends a call that was left by a signal handler, or after which a dump is due.
unsafe extern "C" fn end_unrecorded_call() {
    ENGINE.events().end_call();
}

unsafe extern "C" {
    #[link_name = "heapprof_filter"]
    safe static FILTER: u8;
}

/// Returns the address of the bytes that tell whether a recorded block may begin at an address: that
/// of 16 bytes each, from the address's fifth bit on.
pub(super) fn filter_address() -> usize {
    (&raw const FILTER).addr()
}
