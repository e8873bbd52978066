//! Instructions of x86, by the crate iced-x86, in the syntax of GNU's assembler.

use iced_x86::{
    Code, Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, OpKind, Register,
    SymbolResolver, SymbolResult,
};

use crate::reference::{CodeReference, TargetNames};

/// Decodes code that begins at `start`, up to `most` instructions. Bytes that are no instruction
/// are instructions that show as `(bad)`.
pub(crate) fn decode(code: &[u8], start: u64, bits: u32, most: usize) -> Vec<Instruction> {
    let decoder = Decoder::with_ip(bits, code, start, DecoderOptions::NONE);
    decoder.into_iter().take(most).collect()
}

/// Returns the place that an instruction refers to by its distance.
pub(crate) fn reference(instruction: &Instruction) -> Option<CodeReference> {
    match instruction.op0_kind() {
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64 => {
            Some(CodeReference::Branch(instruction.near_branch_target()))
        }
        _ if instruction.is_ip_rel_memory_operand() => {
            Some(CodeReference::Memory(instruction.ip_rel_memory_address()))
        }
        _ => None,
    }
}

/// Returns the place from which the code of a linkage stub (`name@plt`) reads where it jumps to.
pub(crate) fn stub_slot(code: &[u8], start: u64, bits: u32) -> Option<u64> {
    // The jump is first, or behind a landing mark.
    decode(code, start, bits, 2).iter().find_map(|instruction| {
        let is_jump = matches!(instruction.code(), Code::Jmp_rm64 | Code::Jmp_rm32);
        match reference(instruction) {
            Some(CodeReference::Memory(slot)) if is_jump => Some(slot),
            _ if is_jump && is_absolute(instruction) => Some(instruction.memory_displacement64()),
            _ => None,
        }
    })
}

/// Whether an instruction has a place in memory that no register changes.
fn is_absolute(instruction: &Instruction) -> bool {
    let registers = [instruction.memory_base(), instruction.memory_index()];
    instruction.op0_kind() == OpKind::Memory && registers == [Register::None; 2]
}

/// Calls `each` with the address, the length and the text of each instruction.
pub(crate) fn format(
    all: &[Instruction],
    names: &TargetNames,
    mut each: impl FnMut(u64, u8, String),
) {
    let resolver = ReferenceNames(names.clone());
    let mut formatter = GasFormatter::with_options(Some(Box::new(resolver)), None);
    let options = formatter.options_mut();
    options.set_rip_relative_addresses(true);
    options.set_branch_leading_zeros(false);
    options.set_uppercase_hex(false);
    options.set_space_after_operand_separator(true);
    for instruction in all {
        let mut text = String::new();
        formatter.format(instruction, &mut text);
        each(instruction.ip(), instruction.len() as u8, text);
    }
}

/// Names for the places that instructions refer to.
struct ReferenceNames(TargetNames);

impl SymbolResolver for ReferenceNames {
    fn symbol(
        &mut self,
        instruction: &Instruction,
        _operand: u32,
        _instruction_operand: Option<u32>,
        address: u64,
        _address_size: u32,
    ) -> Option<SymbolResult<'_>> {
        // An immediate value may be the address of something by chance.
        let found = reference(instruction).filter(|found| found.address() == address)?;
        Some(SymbolResult::with_str(
            address,
            self.0.get(found.address())?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::reference::named;

    /// Returns a line for each instruction: its address, its length and its text.
    fn shown(code: &[u8], start: u64, bits: u32, names: &[(u64, &str)]) -> String {
        let mut text = String::new();
        let all = decode(code, start, bits, 100);
        format(
            &all,
            &TargetNames::new(named(names)),
            |address, length, one| {
                text += &format!("{address:x} {length} {one}\n");
            },
        );
        text
    }

    #[test]
    fn instructions_are_written_as_gnus_assembler_does() {
        let code = [
            &[0xf3, 0x0f, 0x1e, 0xfa][..],               // a landing mark
            &[0x48, 0x83, 0xec, 0x08],                   // the stack
            &[0x48, 0x8b, 0x05, 0xf0, 0x0f, 0x00, 0x00], // a variable
            &[0xe8, 0xec, 0xff, 0xff, 0xff],             // a call
            &[0xff, 0x15, 0x10, 0x00, 0x00, 0x00],       // a call through a table
            &[0x75, 0xe4],                               // a jump inside the function
            &[0x62, 0xf1, 0x7c, 0x48, 0x28, 0x00],       // 512 bits
            &[0x06],                                     // no instruction
        ];
        let names = [(0x1000, "start"), (0x1fff, "limit"), (0x102a, "free")];
        expect![[r#"
            1000 4 endbr64
            1004 4 sub $8, %rsp
            1008 7 mov limit(%rip), %rax
            100f 5 call start
            1014 6 callq *free(%rip)
            101a 2 jne start
            101c 6 vmovaps (%rax), %zmm0
            1022 1 (bad)
        "#]]
        .assert_eq(&shown(&code.concat(), 0x1000, 64, &names));
        // With 32 bits, other bytes are instructions.
        expect![[r#"
            10 1 push %es
            11 2 jne 0x11
        "#]]
        .assert_eq(&shown(&[0x06, 0x75, 0xfe], 0x10, 32, &[]));
    }

    #[test]
    fn code_that_ends_in_an_instruction_is_bad_there() {
        expect![[r#"
            0 1 nop
            1 3 (bad)
        "#]]
        .assert_eq(&shown(&[0x90, 0xe8, 0x00, 0x00], 0, 64, &[]));
        assert_eq!(decode(&[0x90; 9], 0, 64, 4).len(), 4);
        assert!(decode(&[], u64::MAX, 64, 4).is_empty());
    }

    #[test]
    fn a_stub_jumps_to_what_its_slot_holds() {
        let jump = [0xff, 0x25, 0xe2, 0x2f, 0x00, 0x00];
        let marked = [&[0xf3, 0x0f, 0x1e, 0xfa][..], &jump].concat();
        assert_eq!(stub_slot(&jump, 0x1030, 64), Some(0x4018));
        assert_eq!(stub_slot(&marked, 0x1030, 64), Some(0x401c));
        assert_eq!(stub_slot(&[0xe8, 0, 0, 0, 0], 0x1030, 64), None);
        // With 32 bits, the jump has the address of the slot, or its distance from a register.
        let jump = [0xff, 0x25, 0x0c, 0xc0, 0x04, 0x08];
        assert_eq!(stub_slot(&jump, 0x0804_9030, 32), Some(0x0804_c00c));
        let from_ebx = [0xff, 0xa3, 0x0c, 0x00, 0x00, 0x00];
        assert_eq!(stub_slot(&from_ebx, 0x1030, 32), None);
    }
}
