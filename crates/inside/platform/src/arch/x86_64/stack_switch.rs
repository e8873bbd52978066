//! The instructions that change to another stack.

/// Calls `function` with `argument` on another stack, and then returns to the current stack.
///
/// # Safety
/// `end` is the end of a stack that no other code uses, aligned to 16 bytes, and
/// `argument` is valid for `function`.
pub(crate) unsafe fn call_on_stack<T>(
    end: usize,
    function: unsafe extern "C" fn(*mut T),
    argument: *mut T,
) {
    // SAFETY: the caller's contract; r12 keeps the old stack across the call, by the C convention.
    unsafe {
        std::arch::asm!(
            "mov r12, rsp",
            "mov rsp, rsi",
            "call rax",
            "mov rsp, r12",
            in("rsi") end,
            in("rax") function,
            in("rdi") argument,
            out("r12") _,
            clobber_abi("C"),
        );
    }
}

/// Makes a child by clone(2) with `flags`. The child calls `function` with `argument` on another
/// stack, and then ends. Returns the child's id, or the negated errno.
///
/// # Safety
/// As for [`call_on_stack`]. Also, the child and this thread must not use the resources that they
/// share by `flags` at the same time.
pub(crate) unsafe fn clone_on_stack<T>(
    flags: i32,
    end: usize,
    function: unsafe extern "C" fn(*mut T),
    argument: *mut T,
) -> isize {
    let child: isize;
    // SAFETY: the caller's contract. The child never returns, because it ends in the second system
    // call.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "3:",
            "xor edi, edi",
            "mov eax, {exit}",
            "syscall",
            "jmp 3b",
            "2:",
            exit = const libc::SYS_exit,
            inlateout("rax") libc::SYS_clone as isize => child,
            in("rdi") flags as usize,
            in("rsi") end,
            in("rdx") 0,
            in("r10") 0,
            in("r8") 0,
            in("r12") function,
            in("r13") argument,
            out("rcx") _,
            out("r11") _,
        );
    }
    child
}
