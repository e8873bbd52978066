//! Decides whether a jump may replace a function's first instructions.

use std::collections::VecDeque;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use crate::JUMP_LEN;
use crate::code::FunctionCode;
use crate::refusal::EntryRefusal;

/// Maximum number of pieces of code that are looked at: the function, and what it branches to. The
/// nearest come first. What is further away is code of other functions, which enter this one at its
/// start.
const MAX_PIECES: usize = 256;
/// Maximum number of bytes of a piece outside the function.
const MAX_PIECE_LEN: u64 = 512;
/// Maximum number of instructions that are looked at.
const MAX_INSTRUCTIONS: usize = 100_000;

/// Where a jump goes in a function, and which instructions it replaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryPlan {
    /// Address of the jump: the function's first instruction, or the one behind `endbr64`, which
    /// has to stay for indirect calls.
    pub at: u64,
    /// Number of bytes of the instructions that the jump replaces. It is at least [`JUMP_LEN`],
    /// unless the function ends before.
    pub replaced: usize,
    /// The bytes that the jump replaces.
    pub original: [u8; JUMP_LEN],
    pub(crate) moved: Vec<Instruction>,
    /// Whether the last moved instruction leads elsewhere, so that nothing follows it.
    pub(crate) ends: bool,
}

impl EntryPlan {
    /// Plans a jump at the entry of a function.
    ///
    /// # Errors
    /// The function can't have a jump there, for the reason that is returned.
    pub fn new(function: &FunctionCode<'_>) -> Result<Self, EntryRefusal> {
        let bytes = function
            .bytes_from(function.start)
            .ok_or(EntryRefusal::NotCode)?;
        let first = decode(bytes, function.start)?;
        let at = match first.mnemonic() {
            Mnemonic::Endbr64 => first.next_ip(),
            _ => function.start,
        };
        let plan = first_instructions(function, at)?;
        check_branches(function, at)?;
        Ok(plan)
    }
}

fn decode(bytes: &[u8], at: u64) -> Result<Instruction, EntryRefusal> {
    let instruction = Decoder::with_ip(64, bytes, at, DecoderOptions::NONE).decode();
    if instruction.is_invalid() {
        return Err(EntryRefusal::Undecodable);
    }
    Ok(instruction)
}

/// Collects the instructions that a jump at `at` replaces.
fn first_instructions(function: &FunctionCode<'_>, at: u64) -> Result<EntryPlan, EntryRefusal> {
    let jump_end = at + JUMP_LEN as u64;
    let (mut moved, mut next, mut ends) = (Vec::new(), at, false);
    while next < jump_end && !ends && next < function.end() {
        let bytes = function.bytes_from(next).ok_or(EntryRefusal::NotCode)?;
        let instruction = decode(bytes, next)?;
        next = instruction.next_ip();
        if instruction.mnemonic() == Mnemonic::Syscall {
            return Err(EntryRefusal::Trap);
        }
        match instruction.flow_control() {
            FlowControl::Next | FlowControl::ConditionalBranch => {}
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return => ends = true,
            // The called function returns to the trampoline. A call from the trampoline that is
            // already under way at the time of the jump returns behind it.
            FlowControl::Call | FlowControl::IndirectCall if next >= jump_end => {}
            FlowControl::Call | FlowControl::IndirectCall => {
                return Err(EntryRefusal::ReturnInside);
            }
            FlowControl::Interrupt | FlowControl::Exception | FlowControl::XbeginXabortXend => {
                return Err(EntryRefusal::Trap);
            }
        }
        moved.push(instruction);
    }
    if next < jump_end {
        check_padding(function, next..jump_end)?;
    }
    let original = function.bytes_from(at).and_then(<[u8]>::first_chunk);
    Ok(EntryPlan {
        at,
        replaced: (next - at) as usize,
        original: *original.ok_or(EntryRefusal::NotCode)?,
        moved,
        ends,
    })
}

/// Checks that nothing but padding is behind a short function.
fn check_padding(
    function: &FunctionCode<'_>,
    range: std::ops::Range<u64>,
) -> Result<(), EntryRefusal> {
    let short = EntryRefusal::Short(range.start - function.start);
    if function.next < range.end {
        return Err(short);
    }
    let mut next = range.start;
    while next < range.end {
        let bytes = function.bytes_from(next).ok_or(short)?;
        let instruction = decode(bytes, next).map_err(|_| short)?;
        if !matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3) {
            return Err(short);
        }
        next = instruction.next_ip();
    }
    Ok(())
}

/// Checks all branches of a function, and of the code to which it branches: compilers move a
/// function's cold parts elsewhere. Also finds out whether the function calls anything.
fn check_branches(function: &FunctionCode<'_>, at: u64) -> Result<(), EntryRefusal> {
    let inside = at + 1..at + JUMP_LEN as u64;
    let whole = function.start..function.end();
    let mut pieces = VecDeque::from([whole.clone()]);
    let (mut seen, mut count, mut calls) = (Vec::new(), 0, false);
    while let Some(piece) = pieces.pop_front() {
        if seen.contains(&piece.start) {
            continue;
        }
        if seen.len() == MAX_PIECES {
            break;
        }
        seen.push(piece.start);
        let Some(bytes) = function.bytes_from(piece.start) else {
            // Another segment, such as the table of procedure links.
            continue;
        };
        let is_whole = piece == whole;
        let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
        let bytes = &bytes[..len.min(bytes.len())];
        let decoder = Decoder::with_ip(64, bytes, piece.start, DecoderOptions::NONE);
        for instruction in decoder {
            if instruction.is_invalid() {
                break;
            }
            count += 1;
            if count > MAX_INSTRUCTIONS {
                return Err(EntryRefusal::TooLarge);
            }
            let flow = instruction.flow_control();
            match flow {
                FlowControl::Call | FlowControl::IndirectCall => calls = true,
                FlowControl::IndirectBranch => calls = true,
                FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
                    if instruction.op0_kind() == OpKind::NearBranch64 =>
                {
                    let target = instruction.near_branch_target();
                    let from = instruction.ip();
                    if inside.contains(&target) {
                        return Err(EntryRefusal::BranchInside { from });
                    }
                    // Another function may end with a jump to this one, which is a call.
                    let is_back = target == at || target == function.start;
                    if is_back && whole.contains(&from) {
                        return Err(EntryRefusal::Loop);
                    }
                    if !whole.contains(&target) {
                        calls |= flow == FlowControl::UnconditionalBranch;
                        pieces.push_back(target..target.saturating_add(MAX_PIECE_LEN));
                    }
                }
                _ => {}
            }
            let ends = matches!(
                flow,
                FlowControl::UnconditionalBranch
                    | FlowControl::IndirectBranch
                    | FlowControl::Return
            );
            if !is_whole && ends {
                break;
            }
        }
    }
    if calls {
        Ok(())
    } else {
        Err(EntryRefusal::Leaf)
    }
}
