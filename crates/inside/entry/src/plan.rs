//! Decides whether a jump may replace a function's first instructions.

use std::collections::{BTreeSet, VecDeque};
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
    /// Whether the last moved instruction is a call. It returns to where it has always returned.
    pub(crate) ends_in_call: bool,
    /// Whether the function's callers may keep values in registers that other functions change,
    /// so that a hook has to restore all of them.
    pub keeps_registers: bool,
}

impl EntryPlan {
    /// Plans a jump at the entry of a function.
    ///
    /// # Errors
    /// The function can't have a jump there, for the reason that is returned.
    pub fn new(function: &FunctionCode<'_>) -> Result<Self, EntryRefusal> {
        if let Some(plan) = Self::of_empty(function) {
            return Ok(plan);
        }
        let bytes = function
            .bytes_from(function.start)
            .ok_or(EntryRefusal::NotCode)?;
        let first = decode(bytes, function.start)?;
        let at = match first.mnemonic() {
            Mnemonic::Endbr64 => first.next_ip(),
            _ => function.start,
        };
        let mut plan = first_instructions(function, at)?;
        check_branches(function, at)?;
        plan.keeps_registers = !calls_elsewhere(function);
        Ok(plan)
    }

    /// Plans a jump in a function that only returns. This reads the bytes itself, because the
    /// decoder would first make its tables, which takes longer than the start of a program.
    fn of_empty(function: &FunctionCode<'_>) -> Option<Self> {
        const ENDBR64: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
        const RET: u8 = 0xc3;
        let bytes = function.bytes_from(function.start)?;
        let body = bytes.strip_prefix(&ENDBR64).unwrap_or(bytes);
        let at = function.start + (bytes.len() - body.len()) as u64;
        let mut padding = body.strip_prefix(&[RET])?;
        let has_room = function.next >= at + JUMP_LEN as u64 && at + 1 >= function.end();
        while body.len() - padding.len() < JUMP_LEN {
            padding = padding.get(no_operation_len(padding)?..)?;
        }
        has_room.then_some(Self {
            at,
            replaced: 1,
            original: *body.first_chunk()?,
            moved: Vec::new(),
            ends: true,
            ends_in_call: false,
            keeps_registers: true,
        })
    }

    /// Whether the trampoline pushes a return address. A thread with a shadow stack can't return
    /// there.
    #[must_use]
    pub fn pushes_return_address(&self) -> bool {
        self.ends_in_call
    }
}

/// Returns the length of the instruction that compilers put between functions; `None` if the bytes
/// begin with another one.
fn no_operation_len(bytes: &[u8]) -> Option<usize> {
    let prefixes = bytes.iter().take_while(|&&byte| byte == 0x66).count();
    let behind = match &bytes[prefixes..] {
        [0x90 | 0xcc, ..] => 1,
        [0x2e, 0x0f, 0x1f, 0x84, ..] => 9,
        [0x0f, 0x1f, 0x00, ..] => 3,
        [0x0f, 0x1f, 0x40, ..] => 4,
        [0x0f, 0x1f, 0x44, ..] => 5,
        [0x0f, 0x1f, 0x80, ..] => 7,
        [0x0f, 0x1f, 0x84, ..] => 8,
        _ => return None,
    };
    Some(prefixes + behind)
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
    let (mut moved, mut next, mut ends, mut ends_in_call) = (Vec::new(), at, false, false);
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
            FlowControl::Call if next >= jump_end => (ends, ends_in_call) = (true, true),
            FlowControl::IndirectCall if next >= jump_end => return Err(EntryRefusal::MovedCall),
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
        ends_in_call,
        keeps_registers: false,
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
    let found = walk(function, branch_target, |instruction| {
        let target = branch_target(instruction)?;
        let from = instruction.ip();
        if inside.contains(&target) {
            return Some(EntryRefusal::BranchInside { from });
        }
        // Another function may end with a jump to this one, which is a call.
        let is_back = target == at || target == function.start;
        (is_back && whole.contains(&from)).then_some(EntryRefusal::Loop)
    })?;
    found.map_or(Ok(()), Err)
}

/// Whether a function, or one that it calls, calls code that the compiler did not see: through a
/// pointer, or in another file. If it saw all of it, it knows which registers the function leaves
/// alone, and its callers may keep values there.
fn calls_elsewhere(function: &FunctionCode<'_>) -> bool {
    let found = walk(function, next_code, |instruction| {
        let is_elsewhere = match instruction.flow_control() {
            FlowControl::IndirectCall => true,
            // A jump through the table of a `switch` is no call. One through a pointer of the
            // loader's is.
            FlowControl::IndirectBranch => instruction.is_ip_rel_memory_operand(),
            // Another segment, such as a table of links to other files.
            _ => next_code(instruction).is_some_and(|to| function.bytes_from(to).is_none()),
        };
        is_elsewhere.then_some(())
    });
    matches!(found, Ok(Some(())))
}

/// Whether a function itself calls one of these addresses, or ends with a jump to it.
#[must_use]
pub fn calls_one_of(function: &FunctionCode<'_>, starts: &[u64]) -> bool {
    let whole = function.start..function.end();
    let mut targets = instructions(function, &whole).filter_map(|one| next_code(&one));
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

/// Returns where a branch or a call leads; `None` for what leads to no fixed place.
fn next_code(instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::Call => Some(instruction.near_branch_target()),
        _ => branch_target(instruction),
    }
}

/// Looks at the instructions of a function, and of the pieces of code outside it to which `target`
/// leads from there, until `look` returns something. The nearest pieces come first.
fn walk<T>(
    function: &FunctionCode<'_>,
    target: impl Fn(&Instruction) -> Option<u64>,
    mut look: impl FnMut(&Instruction) -> Option<T>,
) -> Result<Option<T>, EntryRefusal> {
    let whole = function.start..function.end();
    let mut seen = BTreeSet::from([whole.start]);
    let mut pieces = VecDeque::from([whole.clone()]);
    let mut count = 0;
    while let Some(piece) = pieces.pop_front() {
        for instruction in instructions(function, &piece) {
            count += 1;
            if count > MAX_INSTRUCTIONS {
                return Err(EntryRefusal::TooLarge);
            }
            if let Some(found) = look(&instruction) {
                return Ok(Some(found));
            }
            if let Some(to) = target(&instruction).filter(|to| !whole.contains(to))
                && seen.len() < MAX_PIECES
                && seen.insert(to)
            {
                pieces.push_back(to..to.saturating_add(MAX_PIECE_LEN));
            }
            if piece != whole && ends_piece(instruction.flow_control()) {
                break;
            }
        }
    }
    Ok(None)
}

/// Returns the instructions of a piece of code, as far as they can be decoded. Code of other
/// segments has none.
fn instructions<'a>(
    function: &FunctionCode<'a>,
    piece: &Range<u64>,
) -> impl Iterator<Item = Instruction> + use<'a> {
    let bytes = function.bytes_from(piece.start).unwrap_or_default();
    let len = usize::try_from(piece.end - piece.start).unwrap_or(usize::MAX);
    let bytes = &bytes[..len.min(bytes.len())];
    let decoder = Decoder::with_ip(64, bytes, piece.start, DecoderOptions::NONE);
    decoder
        .into_iter()
        .take_while(|instruction| !instruction.is_invalid())
}

/// Whether the code behind an instruction belongs to something else, or is reached by a branch.
fn ends_piece(flow: FlowControl) -> bool {
    matches!(
        flow,
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch | FlowControl::Return
    )
}
