//! Code that looks up an address in a table of bytes.

/// Returns code at `at` that leads to `to` if a byte of the table at `table` is zero: the one for
/// the first argument of a call, by the address's bits 4 to 19. Else the code behind it goes on.
/// `rax` and `r11` change, which no argument is in. Returns `None` if `to` is more than 2 GiB away.
#[must_use]
pub fn branch_by_filter(at: u64, table: u64, to: u64) -> Option<Vec<u8>> {
    // mov rax, rdi; shr rax, 4; movzx eax, ax
    let mut code = vec![0x48, 0x89, 0xf8, 0x48, 0xc1, 0xe8, 0x04, 0x0f, 0xb7, 0xc0];
    // mov r11, TABLE
    code.extend([0x49, 0xbb]);
    code.extend(table.to_le_bytes());
    // cmp byte ptr [r11+rax], 0
    code.extend([0x41, 0x80, 0x3c, 0x03, 0x00]);
    // je TO
    code.extend([0x0f, 0x84]);
    let end = at.wrapping_add(code.len() as u64 + 4);
    let distance = i32::try_from(to.wrapping_sub(end).cast_signed()).ok()?;
    code.extend(distance.to_le_bytes());
    Some(code)
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, Formatter, GasFormatter, Instruction};

    use super::*;

    #[test]
    fn the_branch_leads_to_its_target() {
        let code = branch_by_filter(0x7000_0000_1000, 0x1122_3344_5566, 0x7000_0000_1060).unwrap();
        let mut decoder = Decoder::with_ip(64, &code, 0x7000_0000_1000, DecoderOptions::NONE);
        let (mut formatter, mut found) = (GasFormatter::new(), Vec::new());
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut instruction);
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            found.push(text);
        }
        assert_eq!(
            found,
            [
                "mov %rdi,%rax",
                "shr $4,%rax",
                "movzwl %ax,%eax",
                "movabs $0x112233445566,%r11",
                "cmpb $0,(%r11,%rax)",
                "je 0x0000700000001060",
            ]
        );
        assert_eq!(branch_by_filter(0, 0, 1 << 32), None);
    }
}
