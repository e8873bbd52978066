//! The code that a jump at the entry of an allocator's function leads to.
//!
//! The stub of a function puts the address of its [`HookedFunction`] into r10, which no call passes
//! an argument in, or pushes it, and jumps to one of these hooks, or of those in `fast_calls.rs`. A
//! hook calls the function through its trampoline. Most do so from assembly, so that an exception
//! may pass, and so that the function's arguments stay as they are. Only the outermost call of a
//! thread is recorded.

use std::arch::naked_asm;
use std::arch::x86_64::__cpuid_count;

use heapprof_allocators::AllocatorCall;
use heapprof_engine::{CallSite, ENGINE};
use heapprof_providers::python;

use crate::start_state;

/// Maximum number of arguments of an allocator's function.
const MAX_ARGUMENTS: usize = 6;
/// Number of bytes that no block has: addresses of the processor end there.
const MAX_SIZE: usize = 1 << 47;
/// The lowest address that the kernel gives to programs.
pub(super) const MIN_ADDRESS: usize = 1 << 16;

/// A function with a jump at its entry.
#[repr(C)]
pub(super) struct HookedFunction {
    /// Address of the trampoline, a call of which is a call of the function.
    pub trampoline: usize,
    /// What a call does; `None` if the loader calls it for changes of its list.
    pub call: Option<AllocatorCall>,
}

/// The arguments of a call, in the order in which they are passed.
type Arguments = [usize; MAX_ARGUMENTS];

/// Whether a call resizes a block.
pub(super) fn resizes(call: AllocatorCall) -> bool {
    !matches!(
        call,
        AllocatorCall::Allocate { .. }
            | AllocatorCall::AllocateMany { .. }
            | AllocatorCall::AllocateInto { .. }
            | AllocatorCall::Free { .. }
    )
}

/// Number of bytes for the vector registers on the stack: all of AVX-512.
const VECTOR_STATE_SPACE: usize = 2816;
/// The parts of the processor's state that a hook's code may change: those of x87, SSE, AVX and
/// AVX-512, as bits of XCR0.
const VECTOR_STATE: u32 = 0b1110_0111;

/// Whether the processor can save what [`keeping_hook`] restores.
pub(super) fn can_keep_registers() -> bool {
    saved_vector_state_len().is_some_and(|len| len <= VECTOR_STATE_SPACE)
}

/// Returns the number of bytes that `xsave` writes for [`VECTOR_STATE`]; `None` if the processor
/// does not have it. The places are those of Intel's manual, volume 1, 13.4.
fn saved_vector_state_len() -> Option<usize> {
    const LEGACY_LEN: usize = 512 + 64;
    const STATE_LEAF: u32 = 0xd;
    if !std::is_x86_feature_detected!("xsave") {
        return None;
    }
    let end = |part| {
        let found = __cpuid_count(STATE_LEAF, part);
        (found.eax + found.ebx) as usize
    };
    let parts = (2..u32::BITS).filter(|part| VECTOR_STATE & 1 << part != 0);
    Some(parts.map(end).max().unwrap_or(0).max(LEGACY_LEN))
}

/// Pushes the address of the function's [`HookedFunction`], and the arguments in the order of
/// [`Arguments`].
macro_rules! save_call {
    () => {
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
        .cfi_adjust_cfa_offset 8"
    };
}

/// Passes what [`save_call`] has pushed to [`begin`] or [`resize`], with the call site.
macro_rules! pass_call {
    () => {
        "mov rdi, r10
        mov rsi, rsp
        lea rdx, [rsp + 56]
        mov rcx, rbp"
    };
}

/// Hook of a function that allocates or frees.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn call_hook() {
    naked_asm!(
        ".cfi_startproc",
        save_call!(),
        pass_call!(),
        "call {begin}",
        "test al, al",
        "mov rdi, qword ptr [rsp]",
        "mov rsi, qword ptr [rsp + 8]",
        "mov rdx, qword ptr [rsp + 16]",
        "mov rcx, qword ptr [rsp + 24]",
        "mov r8, qword ptr [rsp + 32]",
        "mov r9, qword ptr [rsp + 40]",
        "mov r10, qword ptr [rsp + 48]",
        "je 2f",
        "call qword ptr [r10]",
        "mov rdi, qword ptr [rsp + 48]",
        "mov rsi, rsp",
        "mov rdx, rax",
        "lea rcx, [rsp + 56]",
        "mov r8, rbp",
        "call {end}",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        // The call is inside another one.
        "2:",
        ".cfi_adjust_cfa_offset 56",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "jmp qword ptr [r10]",
        ".cfi_endproc",
        begin = sym begin,
        end = sym end,
    )
}

/// Hook of a function that resizes a block.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn resize_hook() {
    naked_asm!(
        ".cfi_startproc",
        save_call!(),
        pass_call!(),
        "call {resize}",
        "add rsp, 56",
        ".cfi_adjust_cfa_offset -56",
        "ret",
        ".cfi_endproc",
        resize = sym resize,
    )
}

/// Hook of a function whose callers rely on the registers that it leaves alone. It restores all of
/// them but the result's. The stub has pushed the address of the [`HookedFunction`].
#[unsafe(naked)]
pub(super) unsafe extern "C" fn keeping_hook() {
    naked_asm!(
        ".cfi_startproc
        .cfi_adjust_cfa_offset 8",
        save_call!(),
        "push r11
        .cfi_adjust_cfa_offset 8
        push rax
        .cfi_adjust_cfa_offset 8
        push rbp
        .cfi_adjust_cfa_offset 8
        .cfi_offset rbp, -96
        mov rbp, rsp
        .cfi_def_cfa_register rbp",
        "and rsp, -64",
        "sub rsp, {space}",
        // The header of the saved state.
        "xor eax, eax",
        "mov qword ptr [rsp + 512], rax",
        "mov qword ptr [rsp + 520], rax",
        "mov qword ptr [rsp + 528], rax",
        "mov qword ptr [rsp + 536], rax",
        "mov qword ptr [rsp + 544], rax",
        "mov qword ptr [rsp + 552], rax",
        "mov qword ptr [rsp + 560], rax",
        "mov qword ptr [rsp + 568], rax",
        "mov eax, {state}",
        "xor edx, edx",
        "xsave64 [rsp]",
        "mov rdi, qword ptr [rbp + 80]",
        "lea rsi, [rbp + 24]",
        "lea rdx, [rbp + 88]",
        "mov rcx, qword ptr [rbp]",
        "mov r8, qword ptr [rbp + 8]",
        "call {call}",
        "mov qword ptr [rbp + 8], rax",
        "mov eax, {state}",
        "xor edx, edx",
        "xrstor64 [rsp]",
        "mov rsp, rbp
        .cfi_def_cfa_register rsp
        pop rbp
        .cfi_adjust_cfa_offset -8
        .cfi_restore rbp
        pop rax
        .cfi_adjust_cfa_offset -8
        pop r11
        .cfi_adjust_cfa_offset -8
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
        lea rsp, [rsp + 8]
        .cfi_adjust_cfa_offset -8
        ret",
        ".cfi_endproc",
        space = const VECTOR_STATE_SPACE,
        state = const VECTOR_STATE,
        call = sym call_keeping,
    )
}

/// Makes and records a call of a function. `rax` is the register before the call, which a function
/// that returns nothing may leave alone. Returns the result.
unsafe extern "C" fn call_keeping(
    function: &HookedFunction,
    arguments: &Arguments,
    slot: usize,
    bp: usize,
    rax: usize,
) -> usize {
    // SAFETY: this is the program's call, and so are the other functions' arguments.
    unsafe {
        match function.call {
            None => {
                super::note_change();
                call_function_with(function, arguments, rax)
            }
            Some(call) if resizes(call) => resize(function, arguments, slot, bp),
            Some(_) => {
                let is_outermost = begin(function, arguments, slot, bp);
                let result = call_function_with(function, arguments, rax);
                match is_outermost {
                    true => end(function, arguments, result, slot, bp),
                    false => result,
                }
            }
        }
    }
}

/// Whether an argument may be the address of a pointer. A function of the program that has an
/// allocator's name may have other arguments.
fn may_point(argument: usize) -> bool {
    is_address(argument) && argument.is_multiple_of(align_of::<usize>())
}

/// Whether an argument may be the address of a block.
fn is_address(argument: usize) -> bool {
    (MIN_ADDRESS..MAX_SIZE).contains(&argument)
}

/// Begins a call, as [`EngineEvents::begin_call`](heapprof_engine::EngineEvents::begin_call) does.
fn begin_call(frame: CallSite) -> bool {
    // SAFETY: the hooks give the place of the return address.
    let caller = unsafe { (frame.slot as *const usize).read() };
    ENGINE.events().begin_call(frame, caller)
}

/// Begins a call at `slot`. Records the free of a block. Returns whether [`end`] is to be called.
unsafe extern "C" fn begin(
    function: &HookedFunction,
    arguments: &Arguments,
    slot: usize,
    bp: usize,
) -> bool {
    let is_outermost = begin_call(CallSite { slot, bp });
    if is_outermost && let Some(AllocatorCall::Free { block }) = function.call {
        // SAFETY: the program frees this block.
        unsafe { record_free(arguments[usize::from(block)]) };
    }
    is_outermost
}

/// Records the free of a block.
pub(super) unsafe extern "C" fn record_free(address: usize) {
    let block = address as *mut u8;
    if is_address(address) && ENGINE.events().may_hold(address) && !python::is_released(block) {
        ENGINE.events().release_known(block);
    }
}

/// Ends a call at `slot`, and records its block. Returns what the function has returned.
unsafe extern "C" fn end(
    function: &HookedFunction,
    arguments: &Arguments,
    result: usize,
    slot: usize,
    bp: usize,
) -> usize {
    ENGINE.events().end_call();
    let argument = |position: u8| arguments[usize::from(position)];
    let (address, size) = match function.call {
        Some(AllocatorCall::Allocate { size }) => (result, argument(size)),
        Some(AllocatorCall::AllocateMany { count, size }) => {
            (result, argument(count).saturating_mul(argument(size)))
        }
        Some(AllocatorCall::AllocateInto { result: into, size })
            if result & 0xffff_ffff == 0 && may_point(argument(into)) =>
        {
            // SAFETY: the function has stored the block there, because it has returned no error.
            let made = unsafe { (argument(into) as *const usize).read() };
            (made, argument(size))
        }
        _ => return result,
    };
    record(address, size, CallSite { slot, bp });
    result
}

/// Records a block that a function has returned, unless it is null.
pub(super) fn record(address: usize, size: usize, frame: CallSite) {
    if is_address(address) && size < MAX_SIZE && ENGINE.events().charge(size) {
        if !start_state::is_done() {
            start_state::scan_objects();
        }
        ENGINE
            .events()
            .record_allocation(address as *mut u8, size, frame);
    }
}

/// Calls a function through its trampoline.
///
/// # Safety
/// The arguments are those of a call by the program.
unsafe fn call_function(function: &HookedFunction, arguments: &Arguments) -> usize {
    type Function = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize) -> usize;
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: the caller's contract. No known function has more arguments, or others than words.
    unsafe {
        let function = std::mem::transmute::<usize, Function>(function.trampoline);
        function(a, b, c, d, e, f)
    }
}

/// Calls a function through its trampoline, with a value in `rax`. Returns the value there after
/// the call.
///
/// # Safety
/// As for [`call_function`].
unsafe fn call_function_with(
    function: &HookedFunction,
    arguments: &Arguments,
    rax: usize,
) -> usize {
    let result;
    let [a, b, c, d, e, f] = *arguments;
    // SAFETY: the caller's contract. The compiler aligns the stack for the call.
    unsafe {
        std::arch::asm!(
            "call {trampoline}",
            trampoline = in(reg) function.trampoline,
            inlateout("rax") rax => result,
            in("rdi") a,
            in("rsi") b,
            in("rdx") c,
            in("rcx") d,
            in("r8") e,
            in("r9") f,
            clobber_abi("C"),
        );
    }
    result
}

/// Makes and records a call that resizes a block.
unsafe extern "C" fn resize(
    function: &HookedFunction,
    arguments: &Arguments,
    slot: usize,
    bp: usize,
) -> usize {
    let (events, frame) = (ENGINE.events(), CallSite { slot, bp });
    let call = || {
        let is_outermost = begin_call(frame);
        // SAFETY: this is the program's call.
        let result = unsafe { call_function(function, arguments) };
        if is_outermost {
            events.end_call();
        }
        result
    };
    // A call inside another one is not recorded, and nothing of it is charged. For other calls, the
    // engine must not find the thread inside an allocator.
    if !begin_call(frame) {
        // SAFETY: this is the program's call.
        return unsafe { call_function(function, arguments) };
    }
    events.end_call();
    let argument = |position: u8| arguments[usize::from(position)];
    let (block, size) = match function.call {
        Some(AllocatorCall::Resize { block, size }) => (argument(block), argument(size)),
        Some(AllocatorCall::ResizeMany { block, count, size }) => {
            let size = argument(count).saturating_mul(argument(size));
            (argument(block), size)
        }
        Some(
            AllocatorCall::ResizeInPlace { block, size } | AllocatorCall::Expand { block, size },
        ) => {
            let result = call();
            let (block, size) = (argument(block), argument(size));
            let is_resized = match function.call {
                Some(AllocatorCall::ResizeInPlace { .. }) => result >= size,
                _ => result != 0,
            };
            if is_resized && is_address(block) {
                let block = block as *mut u8;
                events.reallocate(block, size, frame, || block);
            }
            return result;
        }
        _ => return call(),
    };
    if is_address(block) && size < MAX_SIZE {
        python::note_realloc(block as *mut u8);
        let made = events.reallocate(block as *mut u8, size, frame, || call() as *mut u8);
        return made as usize;
    }
    let made = call();
    record(made, size, frame);
    made
}
