//! The objects that the loader lists. They are only valid inside `dl_iterate_phdr`, so that no
//! object is unloaded meanwhile.
//!
//! No symbol is looked up through the loader there, because the loader would take a second lock
//! while `dl_iterate_phdr` has its own lock.

use std::ffi::{CStr, c_int, c_void};

use heapprof_memory::OwnMemory;
use heapprof_memory::loaded_modules::LoadedObject;

/// A loaded object, valid during a call of `dl_iterate_phdr`'s callback.
#[derive(Clone, Copy)]
pub struct LoaderObject<'a> {
    pub object: LoadedObject,
    pub headers: &'a [libc::Elf64_Phdr],
    /// The path of the file as the loader knows it.
    pub path: &'a CStr,
    /// What is added to the addresses in the object's file.
    pub base: u64,
    /// Whether the object is the program's executable.
    pub is_executable: bool,
}

/// Calls `look` for each loaded object, in the loader's search order.
pub fn each_object(mut look: impl FnMut(LoaderObject<'_>)) {
    let mut first = true;
    each_until(&mut |shown, _| {
        shown.is_executable = first;
        first = false;
        look(*shown);
        false
    });
}

/// Callback for loaded objects. Its arguments are an object, and the total number of objects that
/// were ever loaded. It returns true to end the iteration.
pub type LoaderObjectVisitor<'a> = &'a mut dyn FnMut(&mut LoaderObject<'_>, u64) -> bool;

pub fn each_until(mut look: LoaderObjectVisitor<'_>) {
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
        let path = match info.dlpi_name.is_null() {
            true => c"",
            // SAFETY: the loader's text, which stays as long.
            false => unsafe { CStr::from_ptr(info.dlpi_name) },
        };
        let base = info.dlpi_addr;
        let dynamic = headers.iter().find(|of| of.p_type == libc::PT_DYNAMIC);
        let dynamic = dynamic.map_or(0, |of| base.wrapping_add(of.p_vaddr));
        let mut shown = LoaderObject {
            object: LoadedObject::at(base, dynamic),
            headers,
            path,
            base,
            is_executable: false,
        };
        c_int::from(look(&mut shown, info.dlpi_adds))
    }
    // SAFETY: the function is called before this returns, with what it expects.
    unsafe { libc::dl_iterate_phdr(Some(show), (&raw mut look).cast()) };
}

impl LoaderObject<'_> {
    /// Returns access to this process's memory, for reading the object's tables.
    pub fn memory(self) -> OwnMemory {
        // SAFETY: what is read is where the loader has put the object's tables, and the object
        // stays for as long as it is shown.
        unsafe { OwnMemory::new() }
    }

    /// Whether an address is in the object.
    pub fn contains(self, address: u64) -> bool {
        self.headers.iter().any(|of| {
            let from = self.base.wrapping_add(of.p_vaddr);
            of.p_type == libc::PT_LOAD && address.wrapping_sub(from) < of.p_memsz
        })
    }

    /// Returns the address and the length in bytes of the pages that the loader makes read-only
    /// after it has filled them.
    pub fn read_only(self) -> Option<(usize, usize)> {
        let mut headers = self.headers.iter();
        let part = headers.find(|of| of.p_type == libc::PT_GNU_RELRO)?;
        let from = self.base.wrapping_add(part.p_vaddr) as usize;
        // Rounded like in the loader: from the first page to the last whole one.
        let end = from.wrapping_add(part.p_memsz as usize) & !4095;
        let from = from & !4095;
        (from < end).then_some((from, end - from))
    }

    /// Returns the address of the function `name` in the object; `None` if the object does not
    /// define it.
    pub fn function(self, name: &CStr) -> Option<u64> {
        let found = self.object.symbol(self.memory(), name.to_str().ok()?)?;
        self.contains(found.address).then_some(found.address)
    }
}
