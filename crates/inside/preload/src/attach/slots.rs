//! Import slots, through which objects call malloc and its family. This module finds the slots,
//! points them at the hooks, and points them back.
//!
//! The structures are those of the ELF specification and its supplement for x86-64. All of this
//! happens while the loader shows an object (`loader_objects.rs`).

use std::cell::Cell;
use std::ffi::{CStr, c_int};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use heapprof_memory::Memory;
use heapprof_platform::{maps, sys};

use crate::loader_objects::{LoaderObject, each_until};

/// A function whose import slots are pointed at a hook of the library.
pub struct SlotHook {
    /// The function's name.
    pub name: &'static CStr,
    /// The hook for the function.
    pub ours: unsafe extern "C" fn(),
    /// Whether the function frees memory. Slots of such functions are changed first, so that no
    /// free is missed.
    pub frees: bool,
    /// Whether the function is a C++ operator. Operators are hooked only if the library that
    /// defines malloc defines them, too.
    pub is_operator: bool,
    /// Whether the function is an allocator's. Its slots do not change if there are jumps at the
    /// entries of malloc's family.
    pub is_allocator: bool,
}

/// An import slot of an object.
#[derive(Clone, Copy)]
pub struct ImportSlot {
    /// The hook for the function that the slot imports.
    pub hook: &'static SlotHook,
    /// Address that is stored in the slot now.
    pub leads_to: u64,
    /// Whether the slot serves only calls. The loader fills such a slot at the first call, unless
    /// it must fill all slots when it loads an object.
    pub is_called: bool,
}

/// Total number of objects that were ever loaded, at the time of the last complete scan. A scan is
/// complete if no object was being loaded.
static LAST_LOADED_COUNT: AtomicU64 = AtomicU64::new(0);

/// The objects that the loader has finished loading. `dl_iterate_phdr` also shows unfinished
/// objects. No other code may change an unfinished object, because the loader still fills its
/// slots, and makes parts of the object read-only afterwards.
pub struct SettledObjects {
    /// The mappings that can't be written, in order of address.
    read_only: Vec<Range<u64>>,
    /// Whether an object was found that the loader has not finished loading.
    is_waited_for: Cell<bool>,
    /// Total number of objects that were ever loaded.
    loaded: u64,
}

impl SettledObjects {
    /// Reads the current access rights of all mappings.
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

    /// Whether the loader has finished loading an object.
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

    /// Stores the number of loaded objects for [`has_new_objects`], unless an unfinished object was
    /// found.
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

/// Parses a line of `/proc/PID/maps` (`from-end rights …`). Returns the mapping's addresses; `None`
/// if the mapping is writable.
fn parse_read_only(line: &[u8]) -> Option<Range<u64>> {
    let (from, to, rest) = maps::parse_range(line)?;
    (rest.get(1) == Some(&b'-')).then_some(from as u64..to as u64)
}

/// Returns the total number of objects that were ever loaded.
fn count_loaded() -> u64 {
    let mut count = 0;
    each_until(&mut |_, loaded| {
        count = loaded;
        true
    });
    count
}

/// Whether an object was loaded since the last scan of all objects.
pub fn has_new_objects() -> bool {
    count_loaded() != LAST_LOADED_COUNT.load(Ordering::Relaxed)
}

impl LoaderObject<'_> {
    /// Changes the object's slots. `leads` receives a slot and returns the address to store in it,
    /// or `None` to leave the slot unchanged. Returns the number of changed slots.
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
            let reported = ImportSlot {
                hook,
                leads_to,
                is_called,
            };
            let Some(to) = leads(reported) else {
                return;
            };
            if room.open(at) {
                slot.store(to, Ordering::Release);
                changed += 1;
            }
        });
        changed
    }

    /// Calls `found` for each slot that imports a hooked function. Its arguments are the hook, the
    /// slot's address, and whether the slot serves only calls.
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

    /// Calls `found` for each slot of a hooked function in one relocation table.
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

/// Write access to the pages that the loader made read-only. It ends when this value is dropped.
struct WritableRelro<'a> {
    object: LoaderObject<'a>,
    is_open: bool,
}

impl WritableRelro<'_> {
    /// Makes a slot writable. Returns false if that fails.
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
        // SAFETY: the object's own pages, which hold no code. They stay readable for all code.
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

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, MutexGuard, PoisonError};

    use super::*;
    use crate::loader_objects::each_object;

    /// Lock for the access rights of the executable's pages: one test changes them, and another one
    /// reads them.
    static ACCESS_RIGHTS: Mutex<()> = Mutex::new(());

    fn lock_access_rights() -> MutexGuard<'static, ()> {
        ACCESS_RIGHTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[test]
    fn mappings_that_cannot_be_written_are_read() {
        for (line, expected) in [
            ("1000-2000 r--p 00000000 00:00 0", Some(0x1000..0x2000)),
            (
                "7f00-7f10 r-xp 00000000 08:01 12 /lib/a-b c",
                Some(0x7f00..0x7f10),
            ),
            ("1000-2000 ---p 00000000 00:00 0", Some(0x1000..0x2000)),
            ("1000-2000 rw-p 00000000 00:00 0", None),
            ("1000-2000", None),
            ("x-2000 r--p", None),
            ("", None),
        ] {
            assert_eq!(parse_read_only(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn a_page_is_looked_up_in_ranges() {
        let objects = SettledObjects {
            read_only: vec![0x1000..0x3000, 0x5000..0x6000],
            is_waited_for: Cell::new(false),
            loaded: 0,
        };
        for (page, expected) in [
            (0, false),
            (0x1000, true),
            (0x2fff, true),
            (0x3000, false),
            (0x5000, true),
            (0x6000, false),
        ] {
            assert_eq!(objects.is_read_only(page), expected, "{page:#x}");
        }
    }

    #[test]
    fn the_executable_comes_first_and_has_this_code() {
        let own = mappings_that_cannot_be_written_are_read as *const () as u64;
        let (mut all, mut holding, mut is_inside) = (Vec::new(), Vec::new(), true);
        each_object(|object| {
            all.push(object.is_executable);
            if object.contains(own) {
                holding.push(all.len() - 1);
            }
            // What the object defines lies in it.
            let found = object.function(c"malloc");
            is_inside &= found.is_none_or(|at| object.contains(at));
        });
        assert!(is_inside);
        assert_eq!(holding, [0]);
        assert_eq!(
            all.iter().filter(|&&is_executable| is_executable).count(),
            1
        );
        assert!(all[0] && all.len() > 2);
    }

    #[test]
    fn a_function_is_found_where_it_is_defined() {
        // SAFETY: a lookup by a name.
        let expected = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"getppid".as_ptr()) } as u64;
        let (mut found, mut others) = (Vec::new(), Vec::new());
        each_object(|object| {
            found.extend(object.function(c"getppid"));
            others.extend(object.function(c"heapprof_no_such_function"));
        });
        assert_eq!((found, others), (vec![expected], Vec::new()));
    }

    /// Stands in for the hook of getppid.
    unsafe extern "C" fn no_parent() {
        // SAFETY: sets the register in which the number is returned.
        unsafe { std::arch::asm!("mov eax, 77", out("rax") _) }
    }

    static HOOKS: [SlotHook; 1] = [SlotHook {
        name: c"getppid",
        ours: no_parent,
        frees: false,
        is_operator: false,
        is_allocator: false,
    }];

    // What is called with an object can't unwind, so nothing is asserted there.

    /// Checks that the executable's slots are pointed at a function and back, and are read-only
    /// before and after.
    #[test]
    fn slots_are_led_to_a_hook_and_back() {
        let _lock = lock_access_rights();
        let lead = |to: &mut dyn FnMut(ImportSlot) -> Option<u64>| {
            let mut changed = 0;
            each_object(|object| {
                if object.is_executable {
                    changed = object.lead(&HOOKS, to);
                }
            });
            changed
        };
        let is_settled = || {
            let (objects, mut is_settled) = (SettledObjects::now(), false);
            each_object(|object| is_settled |= object.is_executable && objects.has(object));
            is_settled
        };
        assert!(is_settled());
        // SAFETY: asks for a number.
        let parent = unsafe { libc::getppid() };
        let before = std::cell::RefCell::new(Vec::new());
        let seen = lead(&mut |slot| {
            before.borrow_mut().push(slot.leads_to);
            None
        });
        assert_eq!(seen, 0);
        let slots = before.borrow().len() as u32;
        assert!(slots > 0);
        let ours = HOOKS[0].ours as *const () as u64;
        assert_eq!(
            lead(&mut |slot| (slot.hook.name == c"getppid").then_some(ours)),
            slots
        );
        let mut now = Vec::new();
        lead(&mut |slot| {
            now.push(slot.leads_to);
            None
        });
        assert!(now.iter().all(|&at| at == ours), "{now:x?}");
        let mut left = before.borrow().clone().into_iter();
        assert_eq!(lead(&mut |_| left.next()), slots);
        // SAFETY: as above.
        assert_eq!(unsafe { libc::getppid() }, parent);
        assert!(is_settled());
    }

    #[test]
    fn a_scan_ends_when_all_objects_are_settled() {
        let _lock = lock_access_rights();
        let scan = SettledObjects::now();
        let mut are_settled = true;
        each_object(|object| are_settled &= scan.has(object));
        assert!(are_settled);
        scan.end();
        assert!(!has_new_objects());
        // An object that is not settled yet is waited for.
        let waiting = SettledObjects {
            read_only: Vec::new(),
            is_waited_for: Cell::new(false),
            loaded: u64::MAX,
        };
        each_object(|object| {
            waiting.has(object);
        });
        assert!(waiting.is_waited_for.get());
        waiting.end();
        assert!(!has_new_objects());
    }
}
