//! Moves a function's first instructions to another place.

use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, IcedError, Instruction, InstructionBlock,
    MemoryOperand, Register,
};

use crate::plan::EntryPlan;
use crate::refusal::EntryRefusal;

/// The moved instructions of a function. A call of the trampoline is a call of the function as it
/// was without the jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trampoline {
    /// The bytes of the instructions, for the address that was given.
    pub code: Vec<u8>,
    /// The offsets of the replaced instructions, from the jump's address, with the offsets in
    /// `code` of the instructions in their place. A thread that is stopped at a replaced
    /// instruction goes on at the moved one.
    pub offsets: Vec<(u8, u32)>,
}

impl Trampoline {
    /// Moves the instructions that a plan replaces to the address `to`, with the way back behind
    /// them.
    ///
    /// # Errors
    /// An instruction can't reach its operand from there.
    pub fn new(plan: &EntryPlan, to: u64) -> Result<Self, EntryRefusal> {
        if plan.moved.is_empty() {
            const RET: u8 = 0xc3;
            return Ok(Self {
                code: vec![RET],
                offsets: vec![(0, 0)],
            });
        }
        let instructions = instructions(plan).map_err(|_| EntryRefusal::Immovable)?;
        let block = InstructionBlock::new(&instructions, to);
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let made = BlockEncoder::encode(64, block, options).map_err(|_| EntryRefusal::Immovable)?;
        let offsets = plan.moved.iter().zip(&made.new_instruction_offsets);
        // Near the function, each instruction becomes one. One that became several has no offset.
        let offsets: Option<Vec<(u8, u32)>> = offsets
            .map(|(instruction, &new)| {
                let old = u8::try_from(instruction.ip() - plan.at).ok()?;
                (new != u32::MAX).then_some((old, new))
            })
            .collect();
        Ok(Self {
            code: made.code_buffer,
            offsets: offsets.ok_or(EntryRefusal::Immovable)?,
        })
    }
}

/// Returns the moved instructions and what follows them. Those that are moved come first, or, for a
/// call at their end, what stands for it.
fn instructions(plan: &EntryPlan) -> Result<Vec<Instruction>, IcedError> {
    let mut all = plan.moved.clone();
    let behind = plan.at + plan.replaced as u64;
    if plan.ends_in_call
        && let Some(call) = all.pop()
    {
        // The return address is that of the function itself, where unwinders know their way. No
        // instruction pushes eight bytes, and none of these changes a flag.
        let [low, high] = [behind as u32, (behind >> 32) as u32];
        all.push(Instruction::with1(Code::Pushq_imm32, low.cast_signed())?);
        let upper_half = MemoryOperand::with_base_displ(Register::RSP, 4);
        all.push(Instruction::with2(Code::Mov_rm32_imm32, upper_half, high)?);
        let callee = call.near_branch_target();
        all.push(Instruction::with_branch(Code::Jmp_rel32_64, callee)?);
    } else if !plan.ends {
        all.push(Instruction::with_branch(Code::Jmp_rel32_64, behind)?);
    }
    Ok(all)
}
