//! Decides whether a jump may replace a function's first instructions.

use std::collections::{HashSet, VecDeque};
use std::ops::Range;

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
        check_registers(function)?;
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
            FlowControl::Call | FlowControl::IndirectCall if next >= jump_end => {
                return Err(EntryRefusal::MovedCall);
            }
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
    if function.next < next.max(jump_end) {
        return Err(EntryRefusal::Short(function.next - function.start));
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
fn check_padding(function: &FunctionCode<'_>, range: Range<u64>) -> Result<(), EntryRefusal> {
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
/// function's cold parts elsewhere.
fn check_branches(function: &FunctionCode<'_>, at: u64) -> Result<(), EntryRefusal> {
    let inside = at + 1..at + JUMP_LEN as u64;
    let whole = function.start..function.end();
    let mut reader = CodeReader::new(function);
    reader.add(whole.clone());
    while let Some((piece, instructions)) = reader.next() {
        for instruction in instructions {
            if !reader.count() {
                return Err(EntryRefusal::TooLarge);
            }
            let flow = instruction.flow_control();
            if let Some(target) = branch_target(&instruction) {
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
                    reader.add(target..target.saturating_add(MAX_PIECE_LEN));
                }
            }
            if piece != whole && ends_piece(flow) {
                break;
            }
        }
    }
    Ok(())
}

/// Checks that a function, or one that it calls, calls code that the compiler did not see: through
/// a pointer, or in another file. If it saw all of it, it knows which registers the function leaves
/// alone, and its callers may keep values there.
fn check_registers(function: &FunctionCode<'_>) -> Result<(), EntryRefusal> {
    let whole = function.start..function.end();
    let mut reader = CodeReader::new(function);
    reader.add(whole.clone());
    while let Some((piece, instructions)) = reader.next() {
        for instruction in instructions {
            let flow = instruction.flow_control();
            let is_elsewhere = match flow {
                FlowControl::IndirectCall => true,
                // A jump through the table of a `switch` is no call. One through a pointer of the
                // loader's is.
                FlowControl::IndirectBranch => instruction.is_ip_rel_memory_operand(),
                _ => false,
            };
            if is_elsewhere {
                return Ok(());
            }
            if !reader.count() {
                return Err(EntryRefusal::TooLarge);
            }
            let target = match flow {
                FlowControl::Call => Some(instruction.near_branch_target()),
                _ => branch_target(&instruction),
            };
            if let Some(target) = target.filter(|target| !whole.contains(target)) {
                // Another segment, such as a table of links to other files.
                if function.bytes_from(target).is_none() {
                    return Ok(());
                }
                reader.add(target..target.saturating_add(MAX_PIECE_LEN));
            }
            if piece != whole && ends_piece(flow) {
                break;
            }
        }
    }
    Err(EntryRefusal::Leaf)
}

/// Whether a function itself calls one of these addresses, or ends with a jump to it.
#[must_use]
pub fn calls_one_of(function: &FunctionCode<'_>, starts: &[u64]) -> bool {
    let whole = function.start..function.end();
    let mut reader = CodeReader::new(function);
    reader.add(whole.clone());
    let Some((_, instructions)) = reader.next() else {
        return false;
    };
    let target = |instruction: Instruction| match instruction.flow_control() {
        FlowControl::Call => Some(instruction.near_branch_target()),
        _ => branch_target(&instruction),
    };
    let mut targets = instructions.filter_map(target);
    targets.any(|target| !whole.contains(&target) && starts.contains(&target))
}

/// Returns where a branch leads; `None` for what is no branch to a fixed place.
fn branch_target(instruction: &Instruction) -> Option<u64> {
    let is_branch = matches!(
        instruction.flow_control(),
        FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
    );
    let is_near = instruction.op0_kind() == OpKind::NearBranch64;
    (is_branch && is_near).then(|| instruction.near_branch_target())
}

/// Whether the code behind an instruction belongs to something else, or is reached by a branch.
fn ends_piece(flow: FlowControl) -> bool {
    matches!(
        flow,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}

/// Reads pieces of code, each once, in the order in which they are added.
struct CodeReader<'a> {
    function: FunctionCode<'a>,
    pieces: VecDeque<Range<u64>>,
    seen: HashSet<u64>,
    /// Number of instructions that were looked at.
    instructions: usize,
}

impl<'a> CodeReader<'a> {
    fn new(function: &FunctionCode<'a>) -> Self {
        Self {
            function: *function,
            pieces: VecDeque::new(),
            seen: HashSet::new(),
            instructions: 0,
        }
    }

    fn add(&mut self, piece: Range<u64>) {
        if self.seen.len() < MAX_PIECES && self.seen.insert(piece.start) {
            self.pieces.push_back(piece);
        }
    }

    /// Returns the next piece with its instructions, as far as they can be decoded. Code of other
    /// segments is left out.
    fn next(&mut self) -> Option<(Range<u64>, impl Iterator<Item = Instruction> + use<'a>)> {
        loop {
            let piece = self.pieces.pop_front()?;
            let Some(bytes) = self.function.bytes_from(piece.start) else {
                continue;
            };
            let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
            let bytes = &bytes[..len.min(bytes.len())];
            let decoder = Decoder::with_ip(64, bytes, piece.start, DecoderOptions::NONE);
            let valid = decoder
                .into_iter()
                .take_while(|instruction| !instruction.is_invalid());
            return Some((piece, valid));
        }
    }

    /// Counts an instruction. Returns false if there are too many.
    fn count(&mut self) -> bool {
        self.instructions += 1;
        self.instructions <= MAX_INSTRUCTIONS
    }
}
