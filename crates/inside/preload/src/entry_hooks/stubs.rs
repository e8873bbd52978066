//! Stubs and trampolines within reach of the functions, and the jumps to them.

use heapprof_abi::entry_patch::{ENTRY_JUMP_LEN, EntryPatch, NO_INSTRUCTION};
use heapprof_allocators::AllocatorCall;
use heapprof_entry::{EntryPlan, JUMP_LEN, Trampoline, jump};
use heapprof_platform::sys::{self, EngineFile, PAGE_SIZE};
use heapprof_platform::{arch, maps};

use super::calls::{HookedFunction, MIN_ADDRESS};
use super::patch_table;
use super::stub_code::{MAX_STUB_LEN, StubPlace, stub_code};

const _: () = assert!(JUMP_LEN == ENTRY_JUMP_LEN);

/// A function that is to be hooked.
pub(super) struct PlannedHook {
    pub plan: EntryPlan,
    /// What a call of the function does; `None` if the loader calls it for changes of its list.
    pub call: Option<AllocatorCall>,
}

/// The pages with the stubs and trampolines of functions.
pub(super) struct StubPages {
    at: usize,
    len: usize,
}

impl StubPages {
    /// Whether the program's code has jumps to these pages, of those that a process that attaches
    /// writes.
    pub(super) fn has_jumps(&self) -> bool {
        patch_table::are_written(self.at..self.at + self.len)
    }

    /// Removes the jumps to these pages from the table for a process that attaches.
    pub(super) fn forget_jumps(&self) {
        patch_table::remove(self.at..self.at + self.len);
    }

    /// Removes the pages.
    ///
    /// # Safety
    /// No thread runs in them, and no jump leads there any more.
    pub(super) unsafe fn unmap(self) {
        patch_table::remove(self.at..self.at + self.len);
        // SAFETY: the caller's contract.
        unsafe { sys::unmap(self.at as *mut u8, self.len) };
    }
}

/// Number of bytes for one function: its [`HookedFunction`], its stub and its trampoline.
const STUB_SPACE: usize = 256;
/// Where the stub begins.
const STUB_OFFSET: usize = 32;
/// Where the trampoline begins.
const TRAMPOLINE_OFFSET: usize = STUB_OFFSET + MAX_STUB_LEN;
const _: () = assert!(size_of::<HookedFunction>() <= STUB_OFFSET);
/// The largest distance of a stub from its function. A jump reaches 2 GiB, and operands of moved
/// instructions may lie further away than the function.
const MAX_DISTANCE: usize = 7 << 28;

/// The stubs and trampolines of the functions of an allocator, to which no jump leads yet.
pub(super) struct PreparedHooks {
    pages: StubPages,
    jumps: Vec<EntryPatch>,
}

impl PreparedHooks {
    /// Prepares all functions of an allocator.
    ///
    /// # Errors
    /// A reason to show.
    pub(super) fn new(hooks: &[PlannedHook]) -> Result<Self, &'static str> {
        let pushes_address = |hook: &PlannedHook| hook.plan.pushes_return_address();
        if hooks.iter().any(pushes_address) && arch::has_shadow_stack() {
            return Err("one of its first instructions is a call, and there is a shadow stack");
        }
        let places = hooks.iter().map(|hook| hook.plan.at as usize);
        let first = places.clone().min().unwrap_or_default();
        let last = places.max().unwrap_or_default();
        let len = (hooks.len() * STUB_SPACE).next_multiple_of(PAGE_SIZE);
        let at = map_near(first, last, len).ok_or("there is no room for code near it")?;
        let pages = StubPages { at, len };
        match fill(&pages, hooks) {
            Ok(jumps) => Ok(Self { pages, jumps }),
            Err(why) => {
                // SAFETY: no jump leads there.
                unsafe { pages.unmap() };
                Err(why)
            }
        }
    }

    /// Writes all jumps, or none. No other thread may run in the first instructions of one of these
    /// functions.
    ///
    /// # Errors
    /// A reason to show.
    pub(super) fn write(self) -> Result<StubPages, &'static str> {
        // An attacher that leaves takes away what is in its table.
        let stored = match patch_table::is_in_use() {
            true => self.hand_over(),
            false => Ok(()),
        };
        let written = stored.and_then(|()| write_jumps(&self.jumps));
        self.finish(written)
    }

    /// Leaves all jumps to the attacher, or none.
    ///
    /// # Errors
    /// A reason to show.
    pub(super) fn leave_to_attacher(self) -> Result<StubPages, &'static str> {
        let stored = self.hand_over();
        self.finish(stored)
    }

    fn hand_over(&self) -> Result<(), &'static str> {
        let is_stored = patch_table::add(&self.jumps);
        is_stored
            .then_some(())
            .ok_or("heapprof attach can't write more jumps")
    }

    fn finish(self, done: Result<(), &'static str>) -> Result<StubPages, &'static str> {
        if let Err(why) = done {
            restore(&self.jumps);
            // SAFETY: no jump leads there.
            unsafe { self.pages.unmap() };
            return Err(why);
        }
        Ok(self.pages)
    }
}

/// Fills the pages of stubs. Returns the jumps to them.
fn fill(pages: &StubPages, hooks: &[PlannedHook]) -> Result<Vec<EntryPatch>, &'static str> {
    let mut jumps = Vec::new();
    for (hook, at) in hooks.iter().zip((pages.at..).step_by(STUB_SPACE)) {
        let trampoline = at + TRAMPOLINE_OFFSET;
        let moved = Trampoline::new(&hook.plan, trampoline as u64);
        let moved = moved.map_err(|_| "its instructions can't be moved")?;
        if moved.code.len() > STUB_SPACE - TRAMPOLINE_OFFSET {
            return Err("its instructions can't be moved");
        }
        let stub = StubPlace {
            function: at,
            stub: at + STUB_OFFSET,
            trampoline,
        };
        let code = stub_code(stub, hook.plan.keeps_registers, hook.call);
        let code = code.ok_or("its callers may keep values in registers")?;
        debug_assert!(code.len() <= MAX_STUB_LEN);
        // SAFETY: the memory was just mapped for this, and has room for all three.
        unsafe {
            (at as *mut HookedFunction).write(HookedFunction {
                trampoline,
                call: hook.call,
            });
            let copy = |from: &[u8], to: usize| {
                std::ptr::copy_nonoverlapping(from.as_ptr(), to as *mut u8, from.len());
            };
            copy(&code, at + STUB_OFFSET);
            copy(&moved.code, trampoline);
        }
        let to = jump(hook.plan.at, (at + STUB_OFFSET) as u64);
        jumps.push(EntryPatch {
            at: hook.plan.at,
            trampoline: trampoline as u64,
            original: hook.plan.original,
            jump: to.ok_or("there is no room for code near it")?,
            moved: moved_offsets(&moved),
        });
    }
    // SAFETY: all stubs are complete, and nobody writes to them any more.
    if !unsafe { sys::make_executable(pages.at, pages.len) } {
        return Err("memory can't be made executable");
    }
    Ok(jumps)
}

/// Returns where the instructions of a jump's bytes are in a trampoline.
fn moved_offsets(trampoline: &Trampoline) -> [u8; ENTRY_JUMP_LEN] {
    let mut offsets = [NO_INSTRUCTION; ENTRY_JUMP_LEN];
    for (old, new) in &trampoline.offsets {
        if let (Some(offset), Ok(new)) = (offsets.get_mut(usize::from(*old)), u8::try_from(*new)) {
            *offset = new;
        }
    }
    offsets
}

fn open_memory() -> Option<EngineFile> {
    EngineFile::open(c"/proc/self/mem", libc::O_RDWR, 0).ok()
}

/// Writes all jumps, or the first ones.
fn write_jumps(jumps: &[EntryPatch]) -> Result<(), &'static str> {
    let memory = open_memory().ok_or("/proc/self/mem can't be written")?;
    let mut written = jumps.iter();
    match written.all(|jump| memory.write_at(&jump.jump, jump.at)) {
        true => Ok(()),
        false => Err("its code can't be written"),
    }
}

/// Puts the code back where jumps were written.
fn restore(jumps: &[EntryPatch]) {
    let Some(memory) = open_memory() else {
        return;
    };
    for jump in jumps {
        let mut code = [0; ENTRY_JUMP_LEN];
        if sys::read_memory(jump.at as usize, &mut code) == code.len() && code == jump.jump {
            memory.write_at(&jump.original, jump.at);
        }
    }
}

/// Maps memory within reach of all addresses from `first` to `last`.
fn map_near(first: usize, last: usize, len: usize) -> Option<usize> {
    let lowest = last.saturating_sub(MAX_DISTANCE).max(MIN_ADDRESS);
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
