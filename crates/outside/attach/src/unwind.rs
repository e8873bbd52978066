//! Finds the calls that a stopped thread is in, by the unwinding tables of its code (`.eh_frame`,
//! as the Linux Standard Base describes it).
//!
//! Code without a table, such as the code of a virtual machine, ends the walk. Then only the words
//! on the stack are known.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianRcSlice, NativeEndian, RegisterRule,
    UnwindContext, UnwindSection,
};
use heapprof_memory::Memory;
use heapprof_process::maps;

use crate::arch::{MAX_CALL_LEN, RETURN_ADDRESS, UnwoundRegisters, may_end_with_call};
use crate::process::TargetProcess;

/// Maximum number of calls in a stack. A longer stack is not walked to its end.
const MAX_CALLS: usize = 1000;
/// Maximum total number of bytes that are read from unwinding tables.
const MAX_TABLE_BYTES: u64 = 256 << 20;

type EhFrameBytes = EndianRcSlice<NativeEndian>;

/// The unwinding table of an object.
struct EhFrameTable {
    header: gimli::ParsedEhFrameHdr<EhFrameBytes>,
    frames: EhFrame<EhFrameBytes>,
    bases: BaseAddresses,
}

/// The unwinding tables of a process's objects, by the addresses at which the objects begin.
pub(crate) struct EhFrameTables<'a> {
    process: &'a TargetProcess,
    tables: RefCell<HashMap<u64, Option<Rc<EhFrameTable>>>>,
    /// Number of bytes of tables that were read.
    bytes_read: Cell<u64>,
}

impl<'a> EhFrameTables<'a> {
    pub(crate) fn new(process: &'a TargetProcess) -> Self {
        Self {
            process,
            tables: RefCell::new(HashMap::new()),
            bytes_read: Cell::new(0),
        }
    }

    /// Returns the address at which a thread is, and its return addresses, the newest call first.
    /// `registers` are in the order in which an attach letter lists them. Returns `None` if the
    /// walk can't reach the oldest call.
    pub(crate) fn calls(&self, registers: &[u64]) -> Option<Vec<u64>> {
        let mut state = UnwoundRegisters::from_letter(registers);
        let mut calls = vec![state.pc];
        let mut context = UnwindContext::new();
        // The call is before its return address.
        let mut before = 0;
        while calls.len() < MAX_CALLS {
            let Some(next) = self.step(&state, state.pc - before, &mut context)? else {
                return Some(calls);
            };
            // Stacks grow downwards.
            if next.sp <= state.sp {
                return None;
            }
            calls.push(next.pc);
            (state, before) = (next, 1);
        }
        None
    }

    /// Whether an address on a stack is only left from an earlier call: no call leads there, or the
    /// calls above it lead out of all code. `sp` is the address behind it. If that can't be found
    /// out, the address counts as one that the thread returns to.
    pub(crate) fn is_left_over(&self, address: u64, sp: u64) -> bool {
        let mut state = UnwoundRegisters::at_return(address, sp);
        let mut context = UnwindContext::new();
        if !self.is_behind_call(address) {
            return true;
        }
        for _ in 0..MAX_CALLS {
            // The oldest call, and a signal handler's end, are behind no call.
            if !self.is_code(state.pc) {
                return true;
            }
            match self.step(&state, state.pc.wrapping_sub(1), &mut context) {
                Some(Some(next)) if next.sp > state.sp => state = next,
                _ => return false,
            }
        }
        false
    }

    fn is_code(&self, address: u64) -> bool {
        let mut code_maps = self.process.maps.iter().filter(|map| map.is_code);
        code_maps.any(|map| map.range().contains(&address))
    }

    /// Whether a call may return to an address.
    fn is_behind_call(&self, address: u64) -> bool {
        let mut code = [0; MAX_CALL_LEN];
        let from = address.wrapping_sub(MAX_CALL_LEN as u64);
        self.is_code(address)
            && (!self.process.memory().read(from, &mut code) || may_end_with_call(code))
    }

    /// Returns the caller of a call; `Some(None)` if the call is the outermost one.
    fn step(
        &self,
        state: &UnwoundRegisters,
        at: u64,
        context: &mut UnwindContext<usize>,
    ) -> Option<Option<UnwoundRegisters>> {
        let table = self.table(at)?;
        let find = table.header.table()?;
        let of = find.fde_for_address(&table.frames, &table.bases, at, EhFrame::cie_from_offset);
        let of = of.ok()?;
        if of.is_signal_trampoline() {
            return None;
        }
        let row = of.unwind_info_for_address(&table.frames, &table.bases, context, at);
        let row = row.ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            return None;
        };
        let frame = state.value(register)?.wrapping_add_signed(offset);
        let memory = self.process.memory();
        let pc = match row.register(RETURN_ADDRESS) {
            Some(RegisterRule::Undefined) => return Some(None),
            Some(RegisterRule::Offset(offset)) => memory.u64(frame.wrapping_add_signed(offset))?,
            _ => return None,
        };
        if pc == 0 {
            return Some(None);
        }
        let mut kept = state.saved_registers;
        for (register, value) in &mut kept {
            match row.register(*register) {
                Some(RegisterRule::Offset(offset)) => {
                    *value = Some(memory.u64(frame.wrapping_add_signed(offset))?);
                }
                // A call preserves registers that its table does not name.
                None | Some(RegisterRule::SameValue | RegisterRule::Undefined) => {}
                _ => return None,
            }
        }
        Some(Some(UnwoundRegisters {
            pc,
            sp: frame,
            saved_registers: kept,
        }))
    }

    /// Returns the table of the object that an address lies in.
    fn table(&self, address: u64) -> Option<Rc<EhFrameTable>> {
        let maps = &self.process.maps;
        let number = maps.iter().position(|map| map.range().contains(&address))?;
        let start = maps::image_start(maps, number)?.start;
        let mut known = self.tables.borrow_mut();
        let table = known
            .entry(start)
            .or_insert_with(|| self.read(start).map(Rc::new));
        table.clone()
    }

    /// Reads the table of the object that begins at an address.
    fn read(&self, start: u64) -> Option<EhFrameTable> {
        const PT_LOAD: u32 = 1;
        const PT_GNU_EH_FRAME: u32 = 0x6474_e550;
        let memory = self.process.memory();
        let [headers, _] = memory.fields(start, [32, 40])?;
        let count = memory.u16(start + 56)?;
        let (mut first, mut table, mut loaded) = (None, None, Vec::new());
        for at in (0..u64::from(count)).map(|i| start + headers + 56 * i) {
            let [address, size] = [memory.u64(at + 16)?, memory.u64(at + 40)?];
            match memory.u32(at)? {
                PT_LOAD => {
                    first = first.or(Some(address & !4095));
                    loaded.push(address..address.checked_add(size)?);
                }
                PT_GNU_EH_FRAME => table = Some(address..address.checked_add(size)?),
                _ => {}
            }
        }
        let table = table?;
        let base = start.wrapping_sub(first?);
        let read = |from: u64, end: u64| {
            let len = end.checked_sub(from)?;
            self.bytes_read
                .set(self.bytes_read.get().saturating_add(len));
            if self.bytes_read.get() > MAX_TABLE_BYTES {
                return None;
            }
            let mut bytes = vec![0; len as usize];
            memory
                .read(base.wrapping_add(from), &mut bytes)
                .then(|| EhFrameBytes::new(bytes.into(), NativeEndian))
        };
        let header_at = base.wrapping_add(table.start);
        let bases = BaseAddresses::default().set_eh_frame_hdr(header_at);
        let header = EhFrameHdr::from(read(table.start, table.end)?);
        let header = header.parse(&bases, 8).ok()?;
        let gimli::Pointer::Direct(frames_at) = header.eh_frame_ptr() else {
            return None;
        };
        let from = frames_at.wrapping_sub(base);
        let end = loaded.iter().find(|of| of.contains(&from))?.end;
        Some(EhFrameTable {
            header,
            frames: EhFrame::from(read(from, end)?),
            bases: bases.set_eh_frame(frames_at),
        })
    }
}
