//! The hooks of functions that are called most often: few instructions, unless the call is
//! recorded.
//!
//! An allocation sets the thread's marks of a call, as the engine's `begin_call` does, and the
//! countdown that counts after it. The call then returns to the hook, which takes the marks away,
//! and records the block if the countdown has run out. If the thread is inside an allocator or the
//! engine already, the hook in `calls.rs` does the work.
//!
//! A free is recorded, and then the function is called as if it had no hook. What it frees itself
//! is not known to the engine.

use std::arch::naked_asm;
use std::mem::offset_of;

use heapprof_engine::{CallSite, ENGINE, EngineEvents};
use heapprof_platform::tls::{INSIDE_ALLOCATOR, QUIET_COUNTDOWN, ThreadSlot};
use heapprof_platform::{late_block, slot_site};

use super::calls::{call_hook, record, record_free};

/// Assembly that sets the marks of a call. rax is the distance of the thread's slot from the thread
/// pointer, and r11 the countdown after the call.
macro_rules! set_marks {
    () => {
        "mov qword ptr fs:[rax + {call_countdown}], r11
        mov r11, qword ptr [rsp]
        mov qword ptr fs:[rax + {call_slot}], rsp
        mov qword ptr fs:[rax + {call_return}], r11
        mov dword ptr fs:[rax + {inner_calls}], 0
        mov dword ptr fs:[rax + {busy}], {inside}
        movabs r11, {quiet}
        mov qword ptr fs:[rax + {countdown}], r11"
    };
}

/// Assembly that takes the marks of a call away. rcx is the distance of the thread's slot.
macro_rules! take_marks_away {
    () => {
        "mov r11, qword ptr fs:[rcx + {call_countdown}]
        mov qword ptr fs:[rcx + {countdown}], r11
        mov dword ptr fs:[rcx + {busy}], 0"
    };
}

/// Hook of a function that returns a block, with the number of bytes as its first argument. The
/// stub has put the address of the function's
/// [`HookedFunction`](super::calls::HookedFunction) into r10.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn allocation_hook() {
    naked_asm!(
        ".cfi_startproc",
        // rax is the distance of the thread's slot from the thread pointer.
        "3: mov rax, qword ptr [rip + heapprof_tls@GOTTPOFF]",
        "4: cmp dword ptr fs:[rax + {busy}], 0",
        "jne {call_hook}",
        "mov r11, qword ptr fs:[rax + {countdown}]",
        "stc",
        "sbb r11, rdi",
        "jb 6f",
        // A signal handler may come at each of these steps, with a call of its own, and leave its
        // place here. Then a call inside this one may count, too.
        set_marks!(),
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call qword ptr [r10]",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "cmp dword ptr fs:[rcx + {busy}], {inside}",
        "jne 2f",
        take_marks_away!(),
        "cmp byte ptr [rip + {engine} + {pending}], 0",
        "jne 2f",
        "ret",
        "2: push rax",
        ".cfi_adjust_cfa_offset 8",
        "call {end}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        // The countdown has run out, and stays as it was until the block is recorded.
        "6: mov r11, qword ptr fs:[rax + {countdown}]",
        set_marks!(),
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rax",
        ".cfi_adjust_cfa_offset 8",
        "call qword ptr [r10]",
        "pop rcx",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "mov qword ptr [rsp], rax",
        "cmp dword ptr fs:[rcx + {busy}], {inside}",
        "jne 7f",
        take_marks_away!(),
        "8: mov rdi, rax",
        "lea rdx, [rsp + 8]",
        "mov rcx, rbp",
        "call {record}",
        "pop rax",
        ".cfi_adjust_cfa_offset -8",
        "ret",
        "7:",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "call {end}",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "mov rax, qword ptr [rsp]",
        "jmp 8b",
        ".cfi_adjust_cfa_offset -8",
        "5:",
        late_block!("rax"),
        "lea rax, [rax + heapprof_tls@DTPOFF]",
        "sub rax, qword ptr fs:[0]",
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
        end = sym end_call,
        record = sym record_block,
    )
}

/// Ends a call whose marks a signal handler has taken away, or after which a dump is due.
unsafe extern "C" fn end_call() {
    ENGINE.events().end_call();
}

/// Records a block that a function has returned to the call at `slot`.
unsafe extern "C" fn record_block(address: usize, size: usize, slot: usize, bp: usize) {
    record(address, size, CallSite { slot, bp });
}

/// Hook of a function that frees its first argument. The stub has put the address of the function's
/// [`HookedFunction`](super::calls::HookedFunction) into r10.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn free_hook() {
    naked_asm!(
        ".cfi_startproc",
        "push r10
        .cfi_adjust_cfa_offset 8
        push r9
        .cfi_adjust_cfa_offset 8
        push r8
        .cfi_adjust_cfa_offset 8
        push rcx
        .cfi_adjust_cfa_offset 8
        push rdx
        .cfi_adjust_cfa_offset 8
        push rsi
        .cfi_adjust_cfa_offset 8
        push rdi
        .cfi_adjust_cfa_offset 8
        call {record}
        pop rdi
        .cfi_adjust_cfa_offset -8
        pop rsi
        .cfi_adjust_cfa_offset -8
        pop rdx
        .cfi_adjust_cfa_offset -8
        pop rcx
        .cfi_adjust_cfa_offset -8
        pop r8
        .cfi_adjust_cfa_offset -8
        pop r9
        .cfi_adjust_cfa_offset -8
        pop r10
        .cfi_adjust_cfa_offset -8
        jmp qword ptr [r10]",
        ".cfi_endproc",
        record = sym record_free,
    )
}

unsafe extern "C" {
    #[link_name = "heapprof_filter"]
    safe static FILTER: u8;
}

/// Returns the address of the bytes that tell whether a recorded block may begin at an address, by
/// the address's bits 4 to 19.
pub(super) fn filter_address() -> usize {
    (&raw const FILTER).addr()
}
