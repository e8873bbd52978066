//! The slots through which objects call malloc and its family: who is behind them, and leading them
//! to our hooks and back.
//!
//! The structures are those of the ELF specification and its supplement for x86-64. All of it
//! happens inside `dl_iterate_phdr`, so that no object goes away meanwhile. Nothing is looked up
//! through the loader there: that would take its lock under the one that we are given.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_engine::sys;
use heapprof_memory::loaded::LoadedObject;
use heapprof_memory::{Memory, OwnMemory};

/// A function of the program's that slots are led away from.
pub struct SlotHook {
    /// What it is called.
    pub name: &'static CStr,
    /// Ours.
    pub ours: unsafe extern "C" fn(),
    /// Whether it frees: those slots are led first, because nothing may be freed unseen.
    pub frees: bool,
    /// Whether it is one of C++'s operators, which matter only if malloc's library has its own.
    pub is_operator: bool,
}

/// An object that the loader shows us, for as long as it does.
#[derive(Clone, Copy)]
pub struct LoaderObject<'a> {
    object: LoadedObject,
    headers: &'a [libc::Elf64_Phdr],
    base: u64,
    /// Whether it is the program's executable.
    pub is_executable: bool,
}

/// A slot of an object.
#[derive(Clone, Copy)]
pub struct ImportSlot {
    /// The hook that has its name.
    pub hook: &'static SlotHook,
    /// Where it leads now.
    pub leads_to: u64,
    /// Whether it is for calls alone. The loader fills such a slot when it is first used, unless it
    /// was asked to fill all of them at once.
    pub is_called: bool,
}

/// How many objects were loaded so far, as of the last look at which none was being loaded.
static LAST_LOADED_COUNT: AtomicU64 = AtomicU64::new(0);

/// Which objects the loader is done with. It shows others, too, which it still fills, and whose
/// parts it makes read-only afterwards: nobody else may touch these.
pub struct SettledObjects {
    /// The mappings that can't be written, in order of their addresses.
    read_only: Vec<Range<u64>>,
    /// Whether one was not settled.
    is_waited_for: Cell<bool>,
    /// How many objects were loaded so far.
    loaded: u64,
}

impl SettledObjects {
    /// Looks at the rights of this moment.
    pub fn now() -> Self {
        let loaded = count_loaded();
        let maps = sys::read_file(c"/proc/self/maps");
        let lines = maps.split(|&byte| byte == b'\n');
        Self {
            read_only: lines.filter_map(parse_read_only).collect(),
            is_waited_for: Cell::new(false),
            loaded,
        }
    }

    /// Whether the loader is done with an object.
    pub fn has(&self, shown: LoaderObject<'_>) -> bool {
        let is_settled = match shown.read_only() {
            Some((from, _)) => self.is_read_only(from as u64),
            None => true,
        };
        if !is_settled {
            self.is_waited_for.set(true);
        }
        is_settled
    }

    /// Remembers what was loaded, unless an object is still waited for.
    pub fn end(self) {
        if !self.is_waited_for.get() {
            LAST_LOADED_COUNT.store(self.loaded, Ordering::Relaxed);
        }
    }

    /// Whether a page is mapped, and can't be written.
    fn is_read_only(&self, page: u64) -> bool {
        let next = self.read_only.partition_point(|range| range.start <= page);
        let before = next.checked_sub(1).map(|i| &self.read_only[i]);
        before.is_some_and(|range| page < range.end)
    }
}

/// A mapping that can't be written, of a line of `/proc/PID/maps`: `from-end rights …`.
fn parse_read_only(line: &[u8]) -> Option<Range<u64>> {
    let mut parts = line.splitn(3, |&byte| byte == b'-' || byte == b' ');
    let mut number = || {
        let text = std::str::from_utf8(parts.next()?).ok()?;
        u64::from_str_radix(text, 16).ok()
    };
    let range = number()?..number()?;
    (parts.next()?.get(1) == Some(&b'-')).then_some(range)
}

/// How many objects were loaded so far.
fn count_loaded() -> u64 {
    let mut count = 0;
    each_until(&mut |_, loaded| {
        count = loaded;
        true
    });
    count
}

/// Calls `look` for each object that is loaded, in the order in which they are searched.
pub fn each_object(mut look: impl FnMut(LoaderObject<'_>)) {
    let mut first = true;
    each_until(&mut |shown, _| {
        shown.is_executable = first;
        first = false;
        look(*shown);
        false
    });
}

/// Whether an object was loaded since the last look at all of them.
pub fn has_new_objects() -> bool {
    count_loaded() != LAST_LOADED_COUNT.load(Ordering::Relaxed)
}

/// A function that looks at objects. It gets one, and how many were loaded so far. It returns
/// whether it needs no more.
type LoaderObjectVisitor<'a> = &'a mut dyn FnMut(&mut LoaderObject<'_>, u64) -> bool;

fn each_until(mut look: LoaderObjectVisitor<'_>) {
    unsafe extern "C" fn show(
        info: *mut libc::dl_phdr_info,
        size: usize,
        look: *mut c_void,
    ) -> c_int {
        if size < size_of::<libc::dl_phdr_info>() {
            return 1;
        }
        // SAFETY: the loader gives an object, and what `dl_iterate_phdr` was called with.
        let (info, look) = unsafe { (&*info, &mut *look.cast::<LoaderObjectVisitor<'_>>()) };
        let count = usize::from(info.dlpi_phnum);
        let headers = match info.dlpi_phdr.is_null() {
            true => &[],
            // SAFETY: the object's headers, which stay for as long as this call.
            false => unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) },
        };
        let base = info.dlpi_addr;
        let dynamic = headers.iter().find(|of| of.p_type == libc::PT_DYNAMIC);
        let dynamic = dynamic.map_or(0, |of| base.wrapping_add(of.p_vaddr));
        let mut shown = LoaderObject {
            object: LoadedObject::at(base, dynamic),
            headers,
            base,
            is_executable: false,
        };
        c_int::from(look(&mut shown, info.dlpi_adds))
    }
    // SAFETY: the function is called before this returns, with what it expects.
    unsafe { libc::dl_iterate_phdr(Some(show), (&raw mut look).cast()) };
}

impl LoaderObject<'_> {
    /// Its memory, and this process's.
    fn memory(self) -> OwnMemory {
        // SAFETY: what is read is where the loader has put the object's tables, and the object
        // stays for as long as it is shown.
        unsafe { OwnMemory::new() }
    }

    /// Whether an address lies in it.
    pub fn contains(self, address: u64) -> bool {
        self.headers.iter().any(|of| {
            let from = self.base.wrapping_add(of.p_vaddr);
            of.p_type == libc::PT_LOAD && address.wrapping_sub(from) < of.p_memsz
        })
    }

    /// The pages that the loader has made read-only once it had filled them: where they begin, and
    /// how many bytes they have.
    fn read_only(self) -> Option<(usize, usize)> {
        let mut headers = self.headers.iter();
        let part = headers.find(|of| of.p_type == libc::PT_GNU_RELRO)?;
        let from = self.base.wrapping_add(part.p_vaddr) as usize;
        // As the loader does it: from the first page to the last whole one.
        let end = from.wrapping_add(part.p_memsz as usize) & !4095;
        let from = from & !4095;
        (from < end).then_some((from, end - from))
    }

    /// The function that it defines by this name.
    pub fn function(self, name: &CStr) -> Option<u64> {
        let found = self.object.symbol(self.memory(), name.to_str().ok()?)?;
        self.contains(found.address).then_some(found.address)
    }

    /// Leads slots to where `leads` says: it is told of a slot, and returns where that is to lead,
    /// or `None` if it stays as it is. Returns how many were changed.
    pub fn lead(
        self,
        hooks: &'static [SlotHook],
        leads: &mut dyn FnMut(ImportSlot) -> Option<u64>,
    ) -> u32 {
        let mut room = WritableRelro {
            object: self,
            is_open: false,
        };
        let mut changed = 0;
        self.slots(hooks, &mut |hook, at, is_called| {
            // SAFETY: a slot of the object, which is there and is aligned.
            let slot = unsafe { &*(at as *const AtomicU64) };
            let leads_to = slot.load(Ordering::Relaxed);
            let told = ImportSlot {
                hook,
                leads_to,
                is_called,
            };
            let Some(to) = leads(told) else {
                return;
            };
            if room.open(at) {
                slot.store(to, Ordering::Release);
                changed += 1;
            }
        });
        changed
    }

    /// Calls `found` for each slot that names one of our hooks: it is told of the hook, where the
    /// slot is, and whether it is one for calls alone.
    fn slots(
        self,
        hooks: &'static [SlotHook],
        found: &mut dyn FnMut(&'static SlotHook, u64, bool),
    ) {
        const DT_PLTRELSZ: u64 = 2;
        const DT_RELA: u64 = 7;
        const DT_RELASZ: u64 = 8;
        const DT_JMPREL: u64 = 23;
        for (table, size) in [(DT_JMPREL, DT_PLTRELSZ), (DT_RELA, DT_RELASZ)] {
            let memory = self.memory();
            let at = self.object.section(memory, table);
            if let (Some(at), Some(size)) = (at, self.object.entry(memory, size)) {
                self.slots_in(hooks, at..at.saturating_add(size), found);
            }
        }
    }

    /// The slots of one table of relocations, which lies there.
    fn slots_in(
        self,
        hooks: &'static [SlotHook],
        table: Range<u64>,
        found: &mut dyn FnMut(&'static SlotHook, u64, bool),
    ) {
        const DT_STRTAB: u64 = 5;
        const DT_SYMTAB: u64 = 6;
        const R_64: u64 = 1;
        const R_GLOB_DAT: u64 = 6;
        const R_JUMP_SLOT: u64 = 7;
        const TABLE_ENTRY_LEN: u64 = 24;
        let memory = self.memory();
        let tables = [DT_SYMTAB, DT_STRTAB].map(|tag| self.object.section(memory, tag));
        let [Some(symbols), Some(texts)] = tables else {
            return;
        };
        if table.is_empty() || !self.contains(table.start) || !self.contains(table.end - 1) {
            return;
        }
        for i in 0..(table.end - table.start) / TABLE_ENTRY_LEN {
            let entry = memory.fields(table.start + TABLE_ENTRY_LEN * i, [0, 8, 16]);
            let Some([place, info, added]) = entry else {
                return;
            };
            if !matches!(info & 0xffff_ffff, R_64 | R_GLOB_DAT | R_JUMP_SLOT) || added != 0 {
                continue;
            }
            let symbol = symbols + TABLE_ENTRY_LEN * (info >> 32);
            let at = self.base.wrapping_add(place);
            let name = memory.u32(symbol).map(|name| texts + u64::from(name));
            let Some(name) = name.filter(|_| at % 8 == 0 && self.contains(at)) else {
                continue;
            };
            // SAFETY: the loader has read the name, which ends with a zero.
            let name = unsafe { CStr::from_ptr(name as *const _) };
            if let Some(hook) = hooks.iter().find(|hook| hook.name == name) {
                found(hook, at, info & 0xffff_ffff == R_JUMP_SLOT);
            }
        }
    }
}

/// The part of an object that the loader has made read-only once it had filled it, opened for as
/// long as this lives.
struct WritableRelro<'a> {
    object: LoaderObject<'a>,
    is_open: bool,
}

impl WritableRelro<'_> {
    /// Makes a slot writable. Returns whether it is.
    fn open(&mut self, at: u64) -> bool {
        let Some((from, len)) = self.object.read_only() else {
            return true;
        };
        let is_inside = (at as usize).wrapping_sub(from) < len;
        if is_inside && !self.is_open {
            self.is_open = self.protect(libc::PROT_READ | libc::PROT_WRITE);
            return self.is_open;
        }
        true
    }

    fn protect(&self, rights: c_int) -> bool {
        let Some((from, len)) = self.object.read_only() else {
            return true;
        };
        // SAFETY: the object's own pages, which hold no code. Whoever reads them still may.
        unsafe { sys::call(libc::SYS_mprotect, [from, len, rights as usize, 0, 0, 0]) == 0 }
    }
}

impl Drop for WritableRelro<'_> {
    fn drop(&mut self) {
        if self.is_open {
            self.protect(libc::PROT_READ);
        }
    }
}
