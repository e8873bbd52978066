//! Stubs and trampolines within reach of the functions, and the jumps to them.

use heapprof_allocators::AllocatorCall;
use heapprof_entry::{EntryPlan, JUMP_LEN, Trampoline, jump};
use heapprof_platform::sys::{self, EngineFile, PAGE_SIZE};
use heapprof_platform::{arch, maps};

use super::calls::{HookedFunction, hook_for};

/// A jump that is to be written, and what a call of the function does.
pub(super) struct EntryPatch {
    pub plan: EntryPlan,
    pub call: AllocatorCall,
}

/// Number of bytes for the stub and the trampoline of one function.
const STUB_SPACE: usize = 192;
/// Where the trampoline begins behind the stub.
const TRAMPOLINE_OFFSET: usize = 32;
/// The largest distance of a stub from its function. A jump reaches 2 GiB, and operands of moved
/// instructions may lie further away than the function.
const MAX_DISTANCE: usize = 7 << 28;

/// Writes the jumps of all functions of an allocator, or none.
///
/// # Errors
/// A reason to show.
pub(super) fn write(patches: &[EntryPatch]) -> Result<(), &'static str> {
    let pushes_address = |patch: &EntryPatch| patch.plan.pushes_return_address();
    if patches.iter().any(pushes_address) && arch::has_shadow_stack() {
        return Err("one of its first instructions is a call, and there is a shadow stack");
    }
    let memory = EngineFile::open(c"/proc/self/mem", libc::O_RDWR, 0);
    let memory = memory.map_err(|_| "/proc/self/mem can't be written")?;
    let places = patches.iter().map(|patch| patch.plan.at as usize);
    let (first, last) = (places.clone().min(), places.max());
    let (Some(first), Some(last)) = (first, last) else {
        return Ok(());
    };
    let len = (patches.len() * STUB_SPACE).next_multiple_of(PAGE_SIZE);
    let page = map_near(first, last, len).ok_or("there is no room for code near it")?;
    let mut jumps = Vec::new();
    for (patch, stub) in patches.iter().zip((page..).step_by(STUB_SPACE)) {
        let trampoline = stub + TRAMPOLINE_OFFSET;
        let moved = Trampoline::new(&patch.plan, trampoline as u64);
        let moved = moved.map_err(|_| "its instructions can't be moved")?;
        if moved.code.len() > STUB_SPACE - TRAMPOLINE_OFFSET {
            return Err("its instructions can't be moved");
        }
        // It stays as long as the process.
        let function: &'static HookedFunction = Box::leak(Box::new(HookedFunction {
            trampoline,
            call: patch.call,
        }));
        let function = std::ptr::from_ref(function) as usize;
        let mut code = stub_code(function, &patch.plan, patch.call)
            .ok_or("its callers may keep values in registers")?;
        code.resize(TRAMPOLINE_OFFSET, 0xcc);
        code.extend(moved.code);
        // SAFETY: the memory was just mapped for this.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), stub as *mut u8, code.len()) };
        let to = jump(patch.plan.at, stub as u64).ok_or("there is no room for code near it")?;
        jumps.push((patch.plan.at, to));
    }
    // SAFETY: all stubs are complete, and nobody writes to them any more.
    if !unsafe { sys::make_executable(page, len) } {
        return Err("memory can't be made executable");
    }
    for (written, (at, bytes)) in jumps.iter().enumerate() {
        if !memory.write_at(bytes, *at) {
            undo(&memory, &jumps[..written], patches);
            return Err("its code can't be written");
        }
    }
    Ok(())
}

/// Returns the code that passes a function's [`HookedFunction`] to its hook, and no return address.
fn stub_code(function: usize, plan: &EntryPlan, call: AllocatorCall) -> Option<Vec<u8>> {
    let hook = hook_for(call, plan.keeps_registers)?;
    let bytes = function.to_le_bytes();
    let mut code = Vec::with_capacity(STUB_SPACE);
    if plan.keeps_registers {
        // push LOW; mov dword ptr [rsp+4], HIGH
        let (low, high) = bytes.split_at(4);
        code.push(0x68);
        code.extend(low);
        code.extend([0xc7, 0x44, 0x24, 0x04]);
        code.extend(high);
    } else {
        // mov r10, FUNCTION
        code.extend([0x49, 0xba]);
        code.extend(bytes);
    }
    // jmp [rip]; HOOK
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(hook.to_le_bytes());
    Some(code)
}

/// Restores the first instructions of functions whose jumps are written.
fn undo(memory: &EngineFile, jumps: &[(u64, [u8; JUMP_LEN])], patches: &[EntryPatch]) {
    for ((at, _), patch) in jumps.iter().zip(patches) {
        memory.write_at(&patch.plan.original, *at);
    }
}

/// Maps memory within reach of all addresses from `first` to `last`.
fn map_near(first: usize, last: usize, len: usize) -> Option<usize> {
    let lowest = last.saturating_sub(MAX_DISTANCE).max(1 << 16);
    let highest = first.saturating_add(MAX_DISTANCE);
    let mut gaps = Vec::new();
    let mut end = lowest;
    maps::for_each_line::<8192>(|line| {
        let Some((from, to, _)) = maps::parse_range(line) else {
            return;
        };
        if from > end {
            gaps.push(end..from);
        }
        end = end.max(to);
    });
    gaps.push(end..usize::MAX);
    // The nearest place first. The stack grows down into the gap below it, and the heap up.
    let mut places: Vec<usize> = gaps
        .into_iter()
        .flat_map(|gap| {
            let below = gap.end.min(highest).saturating_sub(len) & !(PAGE_SIZE - 1);
            let above = gap.start.next_multiple_of(PAGE_SIZE);
            [below, above]
                .into_iter()
                .filter(move |at| *at >= gap.start && at.saturating_add(len) <= gap.end)
        })
        .filter(|at| *at >= lowest && at.saturating_add(len) <= highest)
        .collect();
    places.sort_by_key(|at| at.abs_diff(first));
    const MAX_TRIES: usize = 64;
    let mut tried = places.into_iter().take(MAX_TRIES);
    tried.find(|at| sys::map_at(*at, len))
}
