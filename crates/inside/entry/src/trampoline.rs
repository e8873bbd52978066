//! Moves a function's first instructions to another place.

use iced_x86::{BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock};

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
        let mut instructions = plan.moved.clone();
        if !plan.ends {
            let back = plan.at + plan.replaced as u64;
            let back = Instruction::with_branch(Code::Jmp_rel32_64, back);
            instructions.push(back.map_err(|_| EntryRefusal::Immovable)?);
        }
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
