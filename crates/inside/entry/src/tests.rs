//! Small functions, what becomes of their first instructions, and why some are refused.

use crate::{EntryPlan, EntryRefusal, FunctionCode, Trampoline, jump};

const START: u64 = 0x40_1000;
const FAR: u64 = 0x50_0000;

/// Returns the code of a function at the start of a segment, with `behind` as the next function.
fn function<'a>(segment: &'a [u8], size: usize) -> FunctionCode<'a> {
    FunctionCode {
        segment,
        segment_start: START,
        start: START,
        size: size as u64,
        next: START + segment.len() as u64,
    }
}

/// Reads bytes in hexadecimal, with or without spaces.
fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn plan(text: &str, size: usize) -> Result<EntryPlan, EntryRefusal> {
    EntryPlan::new(&function(&bytes(text), size))
}

#[test]
fn whole_instructions_are_replaced() {
    for (text, at, replaced) in [
        // push rbp; mov rbp, rsp; push rbx; call [rip]; ret
        ("55 4889e5 53 ff1500000000 c3", 0, 5),
        // sub rsp, 8; mov rax, [rip+0x1000]; call rax; ret
        ("4883ec08 488b0500100000 ffd0 c3", 0, 11),
        // endbr64; push rbx; mov rbx, rdi; sub rsp, 16; call [rip]; ret
        ("f30f1efa 53 4889fb 4883ec10 ff1500000000 c3", 4, 8),
        // jmp +0x100: the function is another name of one that is elsewhere
        ("e900010000", 0, 5),
        // push rbx; sub rsp, 16; call the function behind; pop rbx; ret; int3; jmp [rip]
        ("53 4883ec10 e802000000 5b c3 cc ff2500000000", 0, 5),
    ] {
        let found = plan(text, bytes(text).len()).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!((found.at - START, found.replaced), (at, replaced), "{text}");
    }
}

#[test]
fn what_a_jump_would_break_is_refused() {
    for (text, size, refusal) in [
        // push rbp; call [rip]; ret: the call would move
        ("55 ff1500000000 c3", 8, Some(EntryRefusal::MovedCall)),
        // call rax; nop...: the call returns into the first bytes
        ("ffd0 9090909090 c3", 8, Some(EntryRefusal::ReturnInside)),
        // push rbx; mov rbx, rdi; cmp eax, 1; je to the third byte; call +0
        (
            "53 4889fb 83f801 74f9 ff1500000000",
            14,
            Some(EntryRefusal::BranchInside { from: START + 7 }),
        ),
        // The same with a branch to the first byte.
        (
            "53 4889fb 83f801 74f7 ff1500000000",
            14,
            Some(EntryRefusal::Loop),
        ),
        // ud2
        ("0f0b 9090909090", 7, Some(EntryRefusal::Trap)),
        // syscall
        ("0f05 9090909090", 7, Some(EntryRefusal::Trap)),
        // jmp +0x40, and another function behind it
        ("eb40 55 4889e5 c3", 2, Some(EntryRefusal::Short(2))),
        // An invalid instruction.
        ("06 9090909090", 6, Some(EntryRefusal::Undecodable)),
    ] {
        assert_eq!(plan(text, size).err(), refusal, "{text}");
    }
    let none = EntryPlan::new(&FunctionCode {
        start: START + 100,
        ..function(&[0x90], 1)
    });
    assert_eq!(none.err(), Some(EntryRefusal::NotCode));
}

/// Of a function that leads out of its file or through a pointer, no caller keeps values in the
/// registers that calls may change.
#[test]
fn callers_rely_on_registers_if_the_compiler_saw_all() {
    for (text, keeps) in [
        // mov rax, rdi; add rax, 15; ret
        ("4889f8 4883c00f c3", true),
        // push rbx; sub rsp, 16; call the function behind; pop rbx; ret; ret
        ("53 4883ec10 e802000000 5b c3 c3", true),
        // The same with a function behind that is a jump through a pointer.
        ("53 4883ec10 e802000000 5b c3 ff2500000000", false),
        // push rbx; sub rsp, 16; call to another segment; pop rbx; ret
        ("53 4883ec10 e802100000 5b c3", false),
        // push rbx; sub rsp, 16; call rax; pop rbx; ret
        ("53 4883ec10 ffd0 5b c3", false),
    ] {
        let found = plan(text, 12).unwrap_or_else(|why| panic!("{text}: {why}"));
        assert_eq!(found.keeps_registers, keeps, "{text}");
    }
}

/// A short function may have a jump if only padding is behind it.
#[test]
fn padding_makes_room() {
    // jmp +1; nop of 3 bytes; jmp [rip]
    let text = "eb03 0f1f00 ff2500000000";
    let segment = bytes(text);
    let code = function(&segment, 2);
    let found = EntryPlan::new(&code).unwrap();
    assert_eq!(found.replaced, 2);
    // The next function begins within the jump.
    let code = FunctionCode {
        next: START + 4,
        ..code
    };
    assert_eq!(EntryPlan::new(&code).err(), Some(EntryRefusal::Short(2)));
}

/// The function by which the loader tells debuggers of changes, as glibc's and musl's builds have
/// it.
#[test]
fn a_function_that_only_returns_has_a_plan() {
    for (text, size, at) in [
        ("c3 66662e0f1f840000000000 0f1f4000 488d05a1", 1, Some(0)),
        ("c3 662e0f1f840000000000 0f1f440000 53", 1, Some(0)),
        ("f30f1efa c3 662e0f1f840000000000 90", 5, Some(4)),
        ("c3 cccccccc", 1, Some(0)),
        // Other code begins within the jump.
        ("c3 90 4889f8 c3", 1, None),
        ("c3 cccccc", 1, None),
    ] {
        let found = plan(text, size);
        assert_eq!(
            found.as_ref().ok().map(|plan| plan.at - START),
            at,
            "{text}"
        );
        let Ok(found) = found else { continue };
        assert!(found.keeps_registers);
        assert_eq!(Trampoline::new(&found, FAR).unwrap().code, [0xc3]);
    }
}

/// Cold parts lie elsewhere, and may lead back.
#[test]
fn branches_of_other_parts_are_seen() {
    // test rdi, rdi; je to the cold part; call [rip]; ret; then, behind another function,
    // a jump to the fourth byte.
    let mut segment = bytes("4885ff 0f8417000000 ff1500000000 c3");
    segment.resize(0x20, 0xcc);
    segment.extend(bytes("e9defbffff"));
    let mut code = function(&segment, 16);
    assert!(EntryPlan::new(&code).is_ok());
    segment.truncate(0x20);
    segment.extend(bytes("ebe1"));
    code = function(&segment, 16);
    let refusal = EntryRefusal::BranchInside { from: START + 0x20 };
    assert_eq!(EntryPlan::new(&code).err(), Some(refusal));
}

/// Operands and branches that are relative to their place lead where they led before.
#[test]
fn moved_instructions_lead_to_the_same_places() {
    // cmp byte ptr [rip+0x100], 0; je +2; call [rip]; ret
    let text = "803d0001000000 7402 ff1500000000 c3";
    let found = plan(text, bytes(text).len()).unwrap();
    let made = Trampoline::new(&found, FAR).unwrap();
    assert_eq!(made.offsets, [(0, 0)]);
    // The operand is at START + 7 + 0x100.
    let distance = (START + 7 + 0x100).wrapping_sub(FAR + 7) as u32;
    let mut expected = bytes("803d");
    expected.extend(distance.to_le_bytes());
    expected.push(0);
    let back = jump(FAR + 7, START + 7).unwrap();
    expected.extend(back);
    assert_eq!(made.code, expected);
    // A short branch becomes a long one.
    let text = "4885ff 7402 9090 ff1500000000 c3";
    let found = plan(text, bytes(text).len()).unwrap();
    let made = Trampoline::new(&found, FAR).unwrap();
    assert_eq!(made.offsets, [(0, 0), (3, 3)]);
    assert_eq!(made.code[3..5], [0x0f, 0x84]);
    // push rbx; mov rbx, rdi; call +0x100: the call returns behind itself, from another place.
    let text = "53 4889fb e800010000 5b ff2500000000";
    let found = plan(text, bytes(text).len()).unwrap();
    assert!(found.pushes_return_address());
    let made = Trampoline::new(&found, FAR).unwrap();
    assert_eq!(made.offsets, [(0, 0), (1, 1), (4, 4)]);
    let mut expected = bytes("53 4889fb 68");
    expected.extend((START as u32 + 9).to_le_bytes());
    expected.extend(bytes("c744240400000000"));
    expected.extend(jump(FAR + 17, START + 9 + 0x100).unwrap());
    assert_eq!(made.code, expected);
    // Nothing follows a function that ends below the jump.
    let found = plan("e900010000", 5).unwrap();
    let made = Trampoline::new(&found, FAR).unwrap();
    assert_eq!(made.code, jump(FAR, START + 5 + 0x100).unwrap());
    // 2 GiB are the limit.
    assert_eq!(jump(START, START + (1 << 32)), None);
}
