//! Reads .eh_frame of the running program: finds the unwind rule at an address, and evaluates the
//! table in full where a rule is not enough.
//!
//! gimli parses the tables. This module itself finds the row that applies, and the few registers of
//! interest, because gimli's own context would take kilobytes of the profiled program's stack.

use gimli::{
    BaseAddresses, CallFrameInstruction, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Operation,
    Register, UnwindSection,
};
use heapprof_abi::FrameAddress;

use crate::arch::{
    FRAME_POINTER, RETURN_ADDRESS, RETURN_ADDRESS_OFFSET, STACK_POINTER, UnwindRule,
    UnwindRuleKind, interrupted_registers, is_restorer, strip_pointer_authentication,
};
use crate::code::modules::LoadedModule;

type EhFrameSlice = EndianSlice<'static, LittleEndian>;
type CfiExpression = gimli::UnwindExpression<usize>;

#[derive(Clone, Copy)]
enum CfaRule {
    Register(Register, i64),
    Expression(CfiExpression),
}

#[derive(Clone, Copy)]
enum RegisterRule {
    Same,
    Undefined,
    /// The register is saved at CFA + offset.
    At(i64),
    /// The register is saved at the address that the expression yields.
    AtExpression(CfiExpression),
    /// The register has any other rule.
    Other,
}

/// A row of a call frame table, with only the registers that unwinding needs.
#[derive(Clone, Copy)]
struct CfiRow {
    cfa: CfaRule,
    rbp: RegisterRule,
    ra: RegisterRule,
    rsp: RegisterRule,
}

struct CfiLookup {
    eh_frame: EhFrame<EhFrameSlice>,
    encoding: gimli::Encoding,
    is_signal_frame: bool,
    row: CfiRow,
}

/// Registers of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameRegisters {
    pub(crate) pc: FrameAddress,
    pub(crate) sp: usize,
    pub(crate) bp: usize,
}

/// Returns the unwind rule of a frame whose code is in `module`.
pub(crate) fn find_rule(module: &LoadedModule, frame: FrameAddress) -> UnwindRule {
    match find(module, frame.lookup_address() as usize) {
        Some(found) => to_rule(&found),
        // No call returns to the beginning of a function, so makecontext put the address there, at
        // a stack's end. rbp then still belongs to the code that made the context.
        None if is_function_start(module, frame.to_word() as usize) => UnwindRule::END,
        None if is_restorer(frame.to_word() as usize) => UnwindRule::COMPLEX,
        None => UnwindRule::FRAME_POINTER,
    }
}

/// Whether a function begins at `pc`.
fn is_function_start(module: &LoadedModule, pc: usize) -> bool {
    let fde = fde_offset(module, pc).and_then(|(eh_frame, bases, offset)| {
        let fde = eh_frame.fde_from_offset(&bases, offset, EhFrame::cie_from_offset);
        fde.ok()
    });
    fde.is_some_and(|fde| fde.initial_address() == pc as u64)
}

/// Whether the object has unwind tables that can be searched.
pub(crate) fn has_tables(module: &LoadedModule) -> bool {
    module.eh_frame_hdr != 0 || module.index.is_some()
}

/// Whether the object's unwind tables cover `pc`.
pub(crate) fn covers(module: &LoadedModule, pc: usize) -> bool {
    find(module, pc).is_some()
}

fn to_rule(found: &CfiLookup) -> UnwindRule {
    let row = found.row;
    match row.ra {
        RegisterRule::Undefined => return UnwindRule::END,
        RegisterRule::At(RETURN_ADDRESS_OFFSET) => {}
        _ => return UnwindRule::COMPLEX,
    }
    if !matches!(row.rsp, RegisterRule::Same) {
        return UnwindRule::COMPLEX;
    }
    match (row.cfa, row.rbp) {
        (
            CfaRule::Register(STACK_POINTER, offset),
            RegisterRule::Same | RegisterRule::Undefined,
        ) => UnwindRule::new(UnwindRuleKind::Rsp, offset, None),
        (CfaRule::Register(STACK_POINTER, offset), RegisterRule::At(rbp)) => {
            UnwindRule::new(UnwindRuleKind::Rsp, offset, Some(rbp))
        }
        (
            CfaRule::Register(FRAME_POINTER, offset),
            RegisterRule::Same | RegisterRule::Undefined,
        ) => UnwindRule::new(UnwindRuleKind::Rbp, offset, None),
        (CfaRule::Register(FRAME_POINTER, offset), RegisterRule::At(rbp)) => {
            UnwindRule::new(UnwindRuleKind::Rbp, offset, Some(rbp))
        }
        (CfaRule::Expression(cfa), RegisterRule::AtExpression(rbp)) => {
            match (rbp_offset(found, cfa, true), rbp_offset(found, rbp, false)) {
                (Some(cfa), Some(rbp)) => UnwindRule::new(UnwindRuleKind::DerefRbp, cfa, Some(rbp)),
                _ => UnwindRule::COMPLEX,
            }
        }
        _ => UnwindRule::COMPLEX,
    }
}

/// Returns the number n of an expression `rbp + n` or, with `deref`, `*(rbp + n)`; `None` for any
/// other expression.
fn rbp_offset(found: &CfiLookup, expression: CfiExpression, deref: bool) -> Option<i64> {
    let expression = expression.get(&found.eh_frame).ok()?;
    let mut operations = expression.operations(found.encoding);
    let Operation::RegisterOffset {
        register: FRAME_POINTER,
        offset,
        ..
    } = operations.next().ok()??
    else {
        return None;
    };
    if deref {
        let Operation::Deref { .. } = operations.next().ok()?? else {
            return None;
        };
    }
    operations.next().ok()?.is_none().then_some(offset)
}

/// Computes the registers of a frame's caller by full evaluation of the tables. `read` reads memory
/// that may not be mapped.
pub(crate) fn step(
    module: &LoadedModule,
    registers: FrameRegisters,
    read: &mut dyn FnMut(usize) -> Option<usize>,
) -> Option<FrameRegisters> {
    if registers.pc.is_zero() {
        return None;
    }
    let Some(found) = find(module, registers.pc.lookup_address() as usize) else {
        let is_handlers_caller = is_restorer(registers.pc.to_word() as usize);
        let of = is_handlers_caller
            .then(|| interrupted_registers(registers.sp.wrapping_sub(8), read))
            .flatten()?;
        return Some(FrameRegisters {
            pc: FrameAddress::from_instruction(of.pc as u64),
            sp: of.sp,
            bp: of.bp,
        });
    };
    let row = found.row;
    let cfa = match row.cfa {
        CfaRule::Register(STACK_POINTER, offset) => registers.sp.wrapping_add(offset as usize),
        CfaRule::Register(FRAME_POINTER, offset) => registers.bp.wrapping_add(offset as usize),
        CfaRule::Register(..) => return None,
        CfaRule::Expression(expression) => evaluate(&found, expression, registers, 0, read)?,
    };
    let mut saved = |saved: RegisterRule, same: usize| match saved {
        RegisterRule::Same => Some(same),
        RegisterRule::At(offset) => read(cfa.wrapping_add(offset as usize)),
        RegisterRule::AtExpression(expression) => {
            let at = evaluate(&found, expression, registers, cfa, read)?;
            read(at)
        }
        RegisterRule::Undefined | RegisterRule::Other => None,
    };
    let pc = strip_pointer_authentication(saved(row.ra, 0).filter(|&pc| pc != 0)?);
    Some(FrameRegisters {
        pc: match found.is_signal_frame {
            true => FrameAddress::from_instruction(pc as u64),
            false => FrameAddress::from_return_address(pc as u64),
        },
        sp: saved(row.rsp, cfa)?,
        bp: saved(row.rbp, registers.bp).unwrap_or(0),
    })
}

/// Evaluates an expression with the operations that occur in signal trampolines, PLTs and stack
/// realignment.
fn evaluate(
    found: &CfiLookup,
    expression: CfiExpression,
    registers: FrameRegisters,
    cfa: usize,
    read: &mut dyn FnMut(usize) -> Option<usize>,
) -> Option<usize> {
    let expression = expression.get(&found.eh_frame).ok()?;
    let mut operations = expression.operations(found.encoding);
    let (mut stack, mut depth) = ([0usize; 16], 1);
    stack[0] = cfa;
    while let Some(operation) = operations.next().ok()? {
        let push = match operation {
            Operation::RegisterOffset {
                register, offset, ..
            } => {
                let value = match register {
                    FRAME_POINTER => registers.bp,
                    STACK_POINTER => registers.sp,
                    RETURN_ADDRESS => registers.pc.lookup_address() as usize,
                    _ => return None,
                };
                value.wrapping_add(offset as usize)
            }
            Operation::UnsignedConstant { value } => value as usize,
            Operation::SignedConstant { value } => value as usize,
            _ => {
                depth -= 1;
                let top = *stack.get(depth)?;
                match operation {
                    Operation::Deref { .. } => read(top)?,
                    Operation::PlusConstant { value } => top.wrapping_add(value as usize),
                    _ => {
                        depth = depth.checked_sub(1)?;
                        let below = stack[depth];
                        match operation {
                            Operation::Plus => below.wrapping_add(top),
                            Operation::Minus => below.wrapping_sub(top),
                            Operation::And => below & top,
                            Operation::Shl => below.checked_shl(top as u32).unwrap_or(0),
                            Operation::Ge => usize::from(below as isize >= top as isize),
                            _ => return None,
                        }
                    }
                }
            }
        };
        *stack.get_mut(depth)? = push;
        depth += 1;
    }
    depth.checked_sub(1).map(|top| stack[top])
}

fn fde_offset(
    module: &LoadedModule,
    pc: usize,
) -> Option<(EhFrame<EhFrameSlice>, BaseAddresses, gimli::EhFrameOffset)> {
    if let Some(index) = &module.index {
        let offset = index.find(module.start, pc)?;
        let bases = BaseAddresses::default().set_eh_frame(index.eh_frame as u64);
        // SAFETY: this is the object's section, as it was found in memory.
        let eh_frame = EhFrame::new(unsafe { slice(index.eh_frame, index.end) }, LittleEndian);
        return Some((eh_frame, bases, offset.into()));
    }
    let hdr_at = module.eh_frame_hdr;
    if hdr_at == 0 || hdr_at >= module.end {
        return None;
    }
    // SAFETY: the loader mapped the module from here to its end; gimli reads only the parts to
    // which the header refers.
    let hdr_bytes = unsafe { slice(hdr_at, module.end) };
    let bases = BaseAddresses::default().set_eh_frame_hdr(hdr_at as u64);
    let hdr = EhFrameHdr::new(hdr_bytes, LittleEndian)
        .parse(&bases, 8)
        .ok()?;
    let gimli::Pointer::Direct(at) = hdr.eh_frame_ptr() else {
        return None;
    };
    let at = at as usize;
    if at < module.start || at >= module.end {
        return None;
    }
    let bases = bases.set_eh_frame(at as u64);
    // SAFETY: the loader mapped the module from here to its end.
    let eh_frame = EhFrame::new(unsafe { slice(at, module.end) }, LittleEndian);
    let table = hdr.table()?;
    let pointer = table.lookup(pc as u64, &bases).ok()?;
    let offset = table.pointer_to_offset(pointer).ok()?;
    Some((eh_frame, bases, offset))
}

/// Returns the bytes of a loaded module from `start` to `end`.
///
/// # Safety
/// The part of the range that is read is mapped and stays so.
unsafe fn slice(start: usize, end: usize) -> &'static [u8] {
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(start as *const u8, end - start) }
}

fn find(module: &LoadedModule, pc: usize) -> Option<CfiLookup> {
    let (eh_frame, bases, offset) = fde_offset(module, pc)?;
    let fde = eh_frame
        .fde_from_offset(&bases, offset, EhFrame::cie_from_offset)
        .ok()?;
    if !fde.contains(pc as u64) {
        return None;
    }
    let cie = fde.cie();
    let factors = (cie.code_alignment_factor(), cie.data_alignment_factor());
    let mut row = CfiRow {
        cfa: CfaRule::Register(STACK_POINTER, 0),
        rbp: RegisterRule::Same,
        ra: RegisterRule::Same,
        rsp: RegisterRule::Same,
    };
    let mut first = row;
    let mut program = CfiProgram {
        factors,
        at: fde.initial_address(),
        pc: pc as u64,
        saved: [row; 8],
        depth: 0,
    };
    let mut instructions = cie.instructions(&eh_frame, &bases);
    while let Some(instruction) = instructions.next().ok()? {
        program.apply(&instruction, &mut row, &first)?;
    }
    first = row;
    program.at = fde.initial_address();
    let mut instructions = fde.instructions(&eh_frame, &bases);
    while let Some(instruction) = instructions.next().ok()? {
        if !program.apply(&instruction, &mut row, &first)? {
            break;
        }
    }
    let encoding = cie.encoding();
    let is_signal_frame = cie.is_signal_trampoline();
    Some(CfiLookup {
        eh_frame,
        encoding,
        is_signal_frame,
        row,
    })
}

/// A call frame program, which is run up to the row of `pc`.
struct CfiProgram {
    factors: (u64, i64),
    at: u64,
    pc: u64,
    saved: [CfiRow; 8],
    depth: usize,
}

impl CfiProgram {
    /// Applies one instruction. Returns `Some(false)` when the next row begins after `pc`.
    fn apply(
        &mut self,
        instruction: &CallFrameInstruction<usize>,
        row: &mut CfiRow,
        first: &CfiRow,
    ) -> Option<bool> {
        use CallFrameInstruction as I;
        let (code, data) = self.factors;
        let unfactored = |offset: i64| offset.wrapping_mul(data);
        match *instruction {
            I::SetLoc { address } => {
                self.at = address;
                return Some(address <= self.pc);
            }
            I::AdvanceLoc { delta } => {
                self.at = self.at.wrapping_add(u64::from(delta).wrapping_mul(code));
                return Some(self.at <= self.pc);
            }
            I::DefCfa { register, offset } => row.cfa = CfaRule::Register(register, offset as i64),
            I::DefCfaSf {
                register,
                factored_offset,
            } => row.cfa = CfaRule::Register(register, unfactored(factored_offset)),
            I::DefCfaRegister { register } => match &mut row.cfa {
                CfaRule::Register(old, _) => *old = register,
                CfaRule::Expression(_) => return None,
            },
            I::DefCfaOffset { offset } => match &mut row.cfa {
                CfaRule::Register(_, old) => *old = offset as i64,
                CfaRule::Expression(_) => return None,
            },
            I::DefCfaOffsetSf { factored_offset } => match &mut row.cfa {
                CfaRule::Register(_, old) => *old = unfactored(factored_offset),
                CfaRule::Expression(_) => return None,
            },
            I::DefCfaExpression { expression } => row.cfa = CfaRule::Expression(expression),
            I::Undefined { register } => row.set(register, RegisterRule::Undefined),
            I::SameValue { register } => row.set(register, RegisterRule::Same),
            I::Offset {
                register,
                factored_offset,
            } => row.set(
                register,
                RegisterRule::At(unfactored(factored_offset as i64)),
            ),
            I::OffsetExtendedSf {
                register,
                factored_offset,
            } => row.set(register, RegisterRule::At(unfactored(factored_offset))),
            I::Expression {
                register,
                expression,
            } => row.set(register, RegisterRule::AtExpression(expression)),
            I::ValOffset { register, .. }
            | I::ValOffsetSf { register, .. }
            | I::ValExpression { register, .. } => row.set(register, RegisterRule::Other),
            I::Register { dest_register, .. } => row.set(dest_register, RegisterRule::Other),
            I::Restore { register } => row.set(register, first.get(register)),
            I::RememberState => {
                *self.saved.get_mut(self.depth)? = *row;
                self.depth += 1;
            }
            I::RestoreState => {
                self.depth = self.depth.checked_sub(1)?;
                *row = self.saved[self.depth];
            }
            _ => {}
        }
        Some(true)
    }
}

impl CfiRow {
    fn set(&mut self, register: Register, saved: RegisterRule) {
        match register {
            FRAME_POINTER => self.rbp = saved,
            STACK_POINTER => self.rsp = saved,
            RETURN_ADDRESS => self.ra = saved,
            _ => {}
        }
    }

    fn get(&self, register: Register) -> RegisterRule {
        match register {
            FRAME_POINTER => self.rbp,
            STACK_POINTER => self.rsp,
            _ => self.ra,
        }
    }
}
