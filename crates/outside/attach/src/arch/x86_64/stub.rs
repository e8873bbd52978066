//! The stub: code that a thread of the program runs for heapprof. It saves the thread's state,
//! loads the library, calls it, and restores the thread.
//!
//! Once a thread runs the stub, no other process is needed: if heapprof dies, the thread finishes
//! by itself. When the stub begins, `rbx` is the address of the letter, and `rsp` is the end of a
//! stack. The thread's own registers are in the letter. The rest of the processor's state is saved
//! by XSAVE, as Intel's and AMD's manuals describe it.

use std::mem::offset_of;

use heapprof_abi::letter::{
    AttachLetter, CODE_LEN, LETTER_MAGIC, LIBRARY_PATH_PREFIX, STATE_OFFSET, failure, progress,
};

/// Offset of the code in the region, after the region's mark.
pub(crate) const ENTRY_OFFSET: u64 = LETTER_MAGIC.len() as u64;

const REGISTERS_OFFSET: usize = offset_of!(AttachLetter, registers);

std::arch::global_asm!(
    ".pushsection .rodata.heapprof_stub,\"a\",@progbits",
    ".globl heapprof_stub",
    ".hidden heapprof_stub",
    ".globl heapprof_stub_end",
    ".hidden heapprof_stub_end",
    ".balign 16",
    "heapprof_stub:",
    ".Lregion:",
    ".ascii \"heapprof region\\n\"",
    "mov dword ptr [rbx + {progress}], {begun}",
    // Saves all that XSAVE knows, and sets the state with which functions in C begin.
    "mov eax, -1",
    "mov edx, -1",
    "lea rdi, [rbx + {state_at}]",
    "xsave64 [rdi]",
    "cld",
    "fninit",
    "ldmxcsr dword ptr [rip + .Lmxcsr]",
    // rt_sigprocmask: no handler is to run here. The process that sent the thread has blocked
    // signals, too, and has put the former mask into the letter.
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rbx + {blocked}]",
    "xor edx, edx",
    "mov r10d, 8",
    "syscall",
    "call qword ptr [rbx + {errno_at}]",
    "mov eax, dword ptr [rax]",
    "mov dword ptr [rbx + {errno}], eax",
    "cmp qword ptr [rbx + {enter}], 0",
    "jne .Lcall",
    // memfd_create, with MFD_EXEC, which older kernels do not know.
    "mov r15d, {no_file}",
    "mov eax, 319",
    "lea rdi, [rip + .Lname]",
    "mov esi, 0x11",
    "syscall",
    "cmp eax, -22",
    "jne 1f",
    "mov eax, 319",
    "lea rdi, [rip + .Lname]",
    "mov esi, 1",
    "syscall",
    "1: mov dword ptr [rbx + {file}], eax",
    "mov r12d, eax",
    "test eax, eax",
    "js .Lfailed",
    // write
    "mov r13, qword ptr [rbx + {library}]",
    "mov r14, qword ptr [rbx + {library_len}]",
    "2: test r14, r14",
    "je 3f",
    "mov eax, 1",
    "mov edi, r12d",
    "mov rsi, r13",
    "mov rdx, r14",
    "syscall",
    "test rax, rax",
    "jle .Lnot_written",
    "add r13, rax",
    "sub r14, rax",
    "jmp 2b",
    // The path of the file. Its number follows the prefix that is there.
    "3: mov eax, r12d",
    "sub rsp, 32",
    "lea rdi, [rsp + 31]",
    "mov byte ptr [rdi], 0",
    "mov ecx, 10",
    "4: xor edx, edx",
    "div ecx",
    "add dl, 48",
    "dec rdi",
    "mov byte ptr [rdi], dl",
    "test eax, eax",
    "jne 4b",
    "lea rsi, [rbx + {text} + {prefix}]",
    "5: mov al, byte ptr [rdi]",
    "mov byte ptr [rsi], al",
    "inc rdi",
    "inc rsi",
    "test al, al",
    "jne 5b",
    "add rsp, 32",
    "lea rdi, [rbx + {text}]",
    "mov esi, dword ptr [rbx + {dlopen_mode}]",
    "call qword ptr [rbx + {dlopen}]",
    "mov r14, rax",
    "call .Lclose",
    "call .Lunmap",
    "test r14, r14",
    "je .Lnot_loaded",
    "mov rdi, r14",
    "lea rsi, [rip + .Lsymbol]",
    "call qword ptr [rbx + {dlsym}]",
    "test rax, rax",
    "je .Lnot_loaded",
    "mov qword ptr [rbx + {enter}], rax",
    ".Lcall:",
    "mov rdi, rbx",
    "call qword ptr [rbx + {enter}]",
    ".Ldone:",
    "call qword ptr [rbx + {errno_at}]",
    "mov ecx, dword ptr [rbx + {errno}]",
    "mov dword ptr [rax], ecx",
    "mov dword ptr [rbx + {progress}], {done}",
    "mov eax, -1",
    "mov edx, -1",
    "lea rdi, [rbx + {state_at}]",
    "xrstor64 [rdi]",
    "push qword ptr [rbx + {registers} + 136]",
    "popfq",
    // From here on the thread has its own stack, on which waiting handlers run. The instructions
    // below leave the flags as they are.
    "mov rsp, qword ptr [rbx + {registers} + 56]",
    // rt_sigprocmask
    "mov eax, 14",
    "mov edi, 2",
    "lea rsi, [rbx + {mask}]",
    "mov edx, 0",
    "mov r10d, 8",
    "syscall",
    "mov rax, qword ptr [rbx + {registers}]",
    "mov rcx, qword ptr [rbx + {registers} + 16]",
    "mov rdx, qword ptr [rbx + {registers} + 24]",
    "mov rsi, qword ptr [rbx + {registers} + 32]",
    "mov rdi, qword ptr [rbx + {registers} + 40]",
    "mov rbp, qword ptr [rbx + {registers} + 48]",
    "mov r8, qword ptr [rbx + {registers} + 64]",
    "mov r9, qword ptr [rbx + {registers} + 72]",
    "mov r10, qword ptr [rbx + {registers} + 80]",
    "mov r11, qword ptr [rbx + {registers} + 88]",
    "mov r12, qword ptr [rbx + {registers} + 96]",
    "mov r13, qword ptr [rbx + {registers} + 104]",
    "mov r14, qword ptr [rbx + {registers} + 112]",
    "mov r15, qword ptr [rbx + {registers} + 120]",
    // The letter is behind this page.
    "mov rbx, qword ptr [rip + .Lregion + {code} + {registers} + 8]",
    "jmp qword ptr [rip + .Lregion + {code} + {registers} + 128]",
    // close
    ".Lclose:",
    "mov eax, 3",
    "mov edi, r12d",
    "syscall",
    "mov dword ptr [rbx + {file}], -1",
    "ret",
    // munmap
    ".Lunmap:",
    "mov eax, 11",
    "mov rdi, qword ptr [rbx + {library}]",
    "mov rsi, qword ptr [rbx + {library_len}]",
    "syscall",
    // Memory that is mapped there later is the program's.
    "mov qword ptr [rbx + {library}], 0",
    "ret",
    ".Lnot_written:",
    "mov r13d, eax",
    "call .Lclose",
    "mov dword ptr [rbx + {file}], r13d",
    "mov r15d, {no_room}",
    ".Lfailed:",
    "call .Lunmap",
    "mov dword ptr [rbx + {failure}], r15d",
    "jmp .Ldone",
    // The loader's error goes into the letter.
    ".Lnot_loaded:",
    "mov dword ptr [rbx + {failure}], {not_loaded}",
    "mov byte ptr [rbx + {text}], 0",
    "mov rax, qword ptr [rbx + {dlerror}]",
    "test rax, rax",
    "je .Ldone",
    "call rax",
    "lea rsi, [rbx + {text}]",
    "mov ecx, 255",
    "test rax, rax",
    "je .Ldone",
    "6: mov dl, byte ptr [rax]",
    "mov byte ptr [rsi], dl",
    "inc rax",
    "inc rsi",
    "test dl, dl",
    "je .Ldone",
    "dec ecx",
    "jne 6b",
    "mov byte ptr [rsi], 0",
    "jmp .Ldone",
    ".balign 8",
    ".Lmxcsr: .long 0x1f80",
    ".Lname: .asciz \"libheapprof.so\"",
    ".Lsymbol: .asciz \"heapprof_letter\"",
    "heapprof_stub_end:",
    ".popsection",
    progress = const offset_of!(AttachLetter, progress),
    failure = const offset_of!(AttachLetter, failure),
    mask = const offset_of!(AttachLetter, mask),
    blocked = const offset_of!(AttachLetter, blocked),
    enter = const offset_of!(AttachLetter, enter),
    file = const offset_of!(AttachLetter, file),
    library = const offset_of!(AttachLetter, library),
    library_len = const offset_of!(AttachLetter, library_len),
    text = const offset_of!(AttachLetter, text),
    errno_at = const offset_of!(AttachLetter, errno_at),
    errno = const offset_of!(AttachLetter, errno),
    dlopen = const offset_of!(AttachLetter, dlopen),
    dlopen_mode = const offset_of!(AttachLetter, dlopen_mode),
    dlsym = const offset_of!(AttachLetter, dlsym),
    dlerror = const offset_of!(AttachLetter, dlerror),
    registers = const REGISTERS_OFFSET,
    state_at = const STATE_OFFSET,
    code = const CODE_LEN,
    prefix = const LIBRARY_PATH_PREFIX.len(),
    begun = const progress::ARRIVED,
    done = const progress::DONE,
    no_file = const failure::NO_FILE,
    no_room = const failure::NO_ROOM,
    not_loaded = const failure::NOT_LOADED,
);

unsafe extern "C" {
    #[link_name = "heapprof_stub"]
    static STUB_START: u8;
    #[link_name = "heapprof_stub_end"]
    static STUB_END: u8;
}

/// Returns the code to be written to the beginning of a region.
pub(crate) fn code() -> &'static [u8] {
    // SAFETY: the two symbols are the beginning and the end of the same constant data.
    let code = unsafe {
        let (from, end) = (&raw const STUB_START, &raw const STUB_END);
        std::slice::from_raw_parts(from, end.offset_from_unsigned(from))
    };
    debug_assert!(code.len() <= CODE_LEN && code.starts_with(&LETTER_MAGIC));
    code
}

/// Whether the processor has the instructions that the stub uses, and whether the processor's state
/// fits into the region.
pub(crate) fn is_supported() -> bool {
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Flag bit: the system uses XSAVE.
    const OSXSAVE: u32 = 1 << 27;
    const MAX_XSAVE_SIZE: u32 = 24 << 10;
    __cpuid(0).eax >= 13
        && __cpuid(1).ecx & OSXSAVE != 0
        && __cpuid_count(13, 0).ebx <= MAX_XSAVE_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_fits_into_its_page_and_begins_with_its_mark() {
        assert!(code().len() <= CODE_LEN && code().starts_with(&LETTER_MAGIC));
        assert_eq!(heapprof_abi::letter::REGION_LEN % 4096, 0);
    }

    /// Tests that the code can run at any address, and makes only the expected system calls.
    #[test]
    fn the_code_makes_known_system_calls() {
        let all = code();
        let calls = all.windows(2).filter(|two| *two == [0x0f, 0x05]).count();
        // rt_sigprocmask and memfd_create twice; write, close and munmap once.
        assert_eq!(calls, 7);
        let set_number = |number: u8| [0xb8, number, 0, 0, 0];
        for (number, times) in [(14, 2), (1, 1), (3, 1), (11, 1)] {
            let sets = set_number(number);
            let found = all.windows(5).filter(|five| *five == sets).count();
            assert_eq!(found, times, "system call {number}");
        }
        for text in ["libheapprof.so\0", "heapprof_letter\0"] {
            let found = all.windows(text.len());
            let found = found.filter(|part| *part == text.as_bytes()).count();
            assert_eq!(found, 1, "{text:?}");
        }
    }

    /// Offset of the registers in a letter.
    const REGISTERS: usize = REGISTERS_OFFSET;

    /// Runs the code with known values in all registers. Writes the registers after the code to
    /// `found`: rax to r15 in the order of a letter, without rsp.
    ///
    /// # Safety
    /// The code must be at `entry`, and the stack and the letter in the same region.
    #[unsafe(naked)]
    unsafe extern "C" fn visit(entry: u64, stack: u64, letter: u64, found: &mut [u64; 15]) {
        std::arch::naked_asm!(
            "push rbx",
            "push rbp",
            "push r12",
            "push r13",
            "push r14",
            "push r15",
            "push rcx",
            "mov [rdx + {registers} + 56], rsp",
            "lea rax, [rip + 2f]",
            "mov [rdx + {registers} + 128], rax",
            "pushfq",
            "pop qword ptr [rdx + {registers} + 136]",
            "mov rbx, rdx",
            "mov rsp, rsi",
            "jmp rdi",
            "2:",
            "push rax",
            "mov rax, [rsp + 8]",
            "pop qword ptr [rax]",
            "mov [rax + 8], rbx",
            "mov [rax + 16], rcx",
            "mov [rax + 24], rdx",
            "mov [rax + 32], rsi",
            "mov [rax + 40], rdi",
            "mov [rax + 48], rbp",
            "mov [rax + 56], r8",
            "mov [rax + 64], r9",
            "mov [rax + 72], r10",
            "mov [rax + 80], r11",
            "mov [rax + 88], r12",
            "mov [rax + 96], r13",
            "mov [rax + 104], r14",
            "mov [rax + 112], r15",
            "pop rcx",
            "pop r15",
            "pop r14",
            "pop r13",
            "pop r12",
            "pop rbp",
            "pop rbx",
            "ret",
            registers = const REGISTERS,
        )
    }

    /// Replaces the library's entry function: changes errno and the letter.
    unsafe extern "C" fn enter(letter: *mut AttachLetter) {
        // SAFETY: the code passes its own letter, and errno is this thread's.
        unsafe {
            *libc::__errno_location() = 77;
            (*letter).slots = 5.into();
        }
    }

    /// Tests that a thread comes back from the stub with unchanged registers, errno and signal
    /// mask.
    #[test]
    fn a_visit_of_the_library_leaves_no_trace() {
        use heapprof_abi::letter::REGION_LEN;
        use std::mem::MaybeUninit;
        let mask_now = || {
            let mut mask = MaybeUninit::<u64>::zeroed();
            // SAFETY: the kernel writes the 8 bytes of the mask.
            unsafe {
                let (how, none) = (libc::SIG_BLOCK, std::ptr::null::<u64>());
                libc::syscall(libc::SYS_rt_sigprocmask, how, none, mask.as_mut_ptr(), 8);
                mask.assume_init()
            }
        };
        let before = mask_now();
        // SAFETY: a new mapping is made.
        let region = unsafe {
            let rights = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), REGION_LEN, rights, kind, -1, 0)
        };
        assert_ne!(region, libc::MAP_FAILED);
        let (start, mut found) = (region as u64, [0; 15]);
        // SAFETY: the mapping has room for the code, the letter, which is valid as zeros, and the
        // stack. No other code has its address.
        let letter = unsafe {
            let to = region.cast::<u8>();
            to.copy_from_nonoverlapping(code().as_ptr(), code().len());
            let letter = to.add(CODE_LEN).cast::<AttachLetter>();
            for (i, register) in (*letter).registers.iter_mut().enumerate() {
                *register = (1000 + i as u64).into();
            }
            (*letter).enter = (enter as *const () as u64).into();
            (*letter).errno_at = libc::__errno_location as *const () as u64;
            (*letter).mask = before;
            *libc::__errno_location() = 33;
            letter
        };
        // SAFETY: as above. The code comes back to the end of `visit`.
        unsafe {
            let entry = start + ENTRY_OFFSET;
            visit(entry, start + REGION_LEN as u64, letter as u64, &mut found);
        }
        // SAFETY: errno is this thread's, and the letter is still mapped.
        let (errno, letter) = unsafe { (*libc::__errno_location(), &mut *letter) };
        let expected: [u64; 15] = std::array::from_fn(|i| 1000 + i as u64 + u64::from(i > 6));
        assert_eq!(found, expected);
        assert_eq!((errno, mask_now()), (33, before));
        assert_eq!(*letter.progress.get_mut(), progress::DONE);
        assert_eq!(*letter.failure.get_mut(), 0);
        assert_eq!(*letter.slots.get_mut(), 5);
        // SAFETY: nothing leads there any more.
        unsafe { libc::munmap(region, REGION_LEN) };
    }
}
