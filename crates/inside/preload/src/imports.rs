//! Corrects this library's import slots, through which it calls libc. A program or its libraries
//! may export functions with libc's names (a clock, a memcpy, a write). The loader then points the
//! slots at these functions. Such a function may deadlock, because it may take a lock that the
//! program's thread has already taken when it allocates. So this module points each slot at the
//! function that libc itself defines.
//!
//! This happens before all other work of the library. So this module must not call libc functions,
//! not even a memcpy that the compiler adds. It reads memory word by word with volatile reads,
//! which the compiler does not replace. The structures are those of the ELF specification.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use heapprof_platform::{loader, sys};

// The linker's symbols for where this library is.
std::arch::global_asm!(".hidden _DYNAMIC", ".hidden __ehdr_start");

unsafe extern "C" {
    #[link_name = "_DYNAMIC"]
    static OWN_DYNAMIC: u8;
    #[link_name = "__ehdr_start"]
    static OWN_START: u8;
}

/// File names of the objects of glibc and musl. Before glibc 2.34, some functions were in separate
/// objects. In musl, the loader is libc, and has the name by which it was called.
const LIBC_OBJECTS: [&[u8]; 7] = [
    b"libc.so.6",
    b"ld-linux-x86-64.so.2",
    b"libpthread.so.0",
    b"libdl.so.2",
    b"ld-musl-x86_64.so.1",
    b"libc.musl-x86_64.so.1",
    b"libc.so",
];

/// Functions whose slots may point at the program's own functions. If the program defines malloc,
/// all code uses that allocator. This includes libc, some of whose memory this library frees.
const ALLOCATOR_FUNCTIONS: [&[u8]; 3] = [b"malloc", b"free", b"memalign"];

/// Functions whose hooks only the program should call. This library's own slots for them are
/// pointed at libc's functions, even if they point at a function of this library.
const PROGRAM_FUNCTIONS: [&[u8]; 1] = [b"pthread_create"];

/// Maximum number of objects or entries in a list. A longer list is assumed to be damaged.
const MAX_ENTRIES: usize = 10_000;

/// Reads the value at `at`.
///
/// # Safety
/// There is a value of this type at `at`.
unsafe fn get<T: Copy>(at: usize) -> T {
    // SAFETY: the caller's contract. The read is volatile, so that no loop becomes a call of libc.
    unsafe { (at as *const T).read_volatile() }
}

/// Whether the text at an address equals `wanted`.
///
/// # Safety
/// There is a text at `at` that ends with a zero.
unsafe fn is_text(at: usize, wanted: &[u8]) -> bool {
    for (i, byte) in wanted.iter().enumerate() {
        // SAFETY: no byte before this one was the last.
        if unsafe { get::<u8>(at + i) } != *byte {
            return false;
        }
    }
    // SAFETY: no byte before this one was the last.
    unsafe { get::<u8>(at + wanted.len()) == 0 }
}

/// Whether the texts at two addresses are equal.
///
/// # Safety
/// There is a text at each address that ends with a zero.
unsafe fn are_same(one: usize, other: usize) -> bool {
    for i in 0.. {
        // SAFETY: no byte before these was the last.
        let [a, b] = unsafe { [get::<u8>(one + i), get::<u8>(other + i)] };
        if a != b {
            return false;
        }
        if a == 0 {
            break;
        }
    }
    true
}

/// A word that is written only once, by the thread that corrects the slots.
#[derive(Debug)]
struct WriteOnceWord(AtomicUsize);

impl WriteOnceWord {
    const fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, value: usize) {
        self.0.store(value, Ordering::Relaxed);
    }
}

/// Addresses of the parts of a loaded object that this module reads; 0 if the object lacks the
/// part. The value never moves, because moving it would be a memcpy.
struct LoadedImage {
    base: WriteOnceWord,
    end: WriteOnceWord,
    /// The pages that the loader made read-only: the first page, and the page after the last.
    read_only: [WriteOnceWord; 2],
    symbols: WriteOnceWord,
    texts: WriteOnceWord,
    hashes: WriteOnceWord,
    /// Table of symbol versions: a version number for each symbol.
    versions: WriteOnceWord,
    /// Table of the versions that the object defines. The field `needed` is the table of versions
    /// that the object needs.
    defined: WriteOnceWord,
    needed: WriteOnceWord,
    /// Two relocation tables, each with its size in bytes.
    relocations: [[WriteOnceWord; 2]; 2],
}

/// The image of this library.
static OWN_IMAGE: LoadedImage = LoadedImage::new();
/// The images of [`LIBC_OBJECTS`].
static LIBC_IMAGES: [LoadedImage; LIBC_OBJECTS.len()] =
    [const { LoadedImage::new() }; LIBC_OBJECTS.len()];

/// A symbol in an object's symbol table.
#[derive(Clone, Copy)]
struct ImageSymbol {
    name: usize,
    /// The symbol's type: 2 is a function, 10 is a resolver that chooses a function.
    kind: u8,
    is_defined: bool,
    address: usize,
}

const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;

impl LoadedImage {
    const fn new() -> Self {
        Self {
            base: WriteOnceWord::new(),
            end: WriteOnceWord::new(),
            read_only: [const { WriteOnceWord::new() }; 2],
            symbols: WriteOnceWord::new(),
            texts: WriteOnceWord::new(),
            hashes: WriteOnceWord::new(),
            versions: WriteOnceWord::new(),
            defined: WriteOnceWord::new(),
            needed: WriteOnceWord::new(),
            relocations: [const { [const { WriteOnceWord::new() }; 2] }; 2],
        }
    }

    /// Reads the object that begins at `base`, unless this image holds an object already.
    ///
    /// # Safety
    /// The loader has mapped the object, and it stays mapped.
    unsafe fn read(&self, base: usize, dynamic: usize) {
        const PROGRAM_HEADER_LEN: usize = 56;
        // SAFETY: the beginning of the object's file is mapped.
        if self.base.get() != 0 || unsafe { get::<[u8; 4]>(base) } != *b"\x7fELF" {
            return;
        }
        self.base.set(base);
        // SAFETY: the file's header is at its beginning.
        let (headers, count) = unsafe { (base + get::<usize>(base + 32), get::<u16>(base + 56)) };
        for i in 0..usize::from(count) {
            let at = headers + PROGRAM_HEADER_LEN * i;
            // SAFETY: the program headers are mapped, too, and there are `count`.
            let (kind, offset, len) =
                unsafe { (get::<u32>(at), get::<usize>(at + 16), get::<usize>(at + 40)) };
            let from = base + offset;
            let end = from + len;
            match kind {
                libc::PT_LOAD => self.end.set(self.end.get().max(end)),
                libc::PT_GNU_RELRO => {
                    self.read_only[0].set(from & !4095);
                    self.read_only[1].set(end & !4095);
                }
                _ => {}
            }
        }
        // SAFETY: the caller's contract.
        unsafe { self.read_dynamic(dynamic) };
    }

    /// Reads the object's dynamic section, which begins at `dynamic`.
    ///
    /// # Safety
    /// The loader has mapped the object, and it stays mapped.
    unsafe fn read_dynamic(&self, dynamic: usize) {
        let base = self.base.get();
        for i in 0..MAX_ENTRIES {
            // SAFETY: no entry before this one was the last.
            let [tag, value] = unsafe { get::<[usize; 2]>(dynamic + 16 * i) };
            // Old versions of glibc overwrite the value from the file with the address.
            let at = if value >= base { value } else { base + value };
            match tag {
                0 => break,
                2 => self.relocations[1][1].set(value),
                5 => self.texts.set(at),
                6 => self.symbols.set(at),
                7 => self.relocations[0][0].set(at),
                8 => self.relocations[0][1].set(value),
                23 => self.relocations[1][0].set(at),
                0x6fff_fef5 => self.hashes.set(at),
                0x6fff_fff0 => self.versions.set(at),
                0x6fff_fffc => self.defined.set(at),
                0x6fff_fffe => self.needed.set(at),
                _ => {}
            }
        }
    }

    fn holds(&self, address: usize) -> bool {
        (self.base.get()..self.end.get()).contains(&address)
    }

    /// Returns the symbol with an index in the object's symbol table.
    ///
    /// # Safety
    /// The object has more than `number` symbols.
    unsafe fn symbol(&self, number: usize) -> ImageSymbol {
        let at = self.symbols.get() + 24 * number;
        // SAFETY: the caller's contract.
        unsafe {
            ImageSymbol {
                name: self.texts.get() + get::<u32>(at) as usize,
                kind: get::<u8>(at + 4) & 15,
                is_defined: get::<u16>(at + 6) != 0,
                address: self.base.get() + get::<usize>(at + 8),
            }
        }
    }

    /// Returns the number of a symbol's version; 0 and 1 stand for none.
    ///
    /// # Safety
    /// The object has more than `symbol` symbols.
    unsafe fn version(&self, symbol: usize) -> u16 {
        match self.versions.get() {
            0 => 0,
            // SAFETY: the caller's contract.
            versions => unsafe { get::<u16>(versions + 2 * symbol) & 0x7fff },
        }
    }

    /// Returns the hash of a version that the object needs from another object.
    ///
    /// # Safety
    /// The loader has read the object's versions.
    unsafe fn needed_hash(&self, version: u16) -> Option<u32> {
        let mut of = self.needed.get();
        for _ in 0..MAX_ENTRIES {
            if of == 0 {
                break;
            }
            // SAFETY: an entry for each object, with as many entries as it says behind it.
            unsafe {
                let mut at = of + get::<u32>(of + 8) as usize;
                for _ in 0..get::<u16>(of + 2) {
                    if get::<u16>(at + 6) == version {
                        return Some(get::<u32>(at));
                    }
                    at += get::<u32>(at + 12) as usize;
                }
                of = match get::<u32>(of + 12) {
                    0 => 0,
                    next => of + next as usize,
                };
            }
        }
        None
    }

    /// Returns the hash of a version that the object defines.
    ///
    /// # Safety
    /// The loader has read the object's versions.
    unsafe fn defined_hash(&self, version: u16) -> Option<u32> {
        let mut at = self.defined.get();
        for _ in 0..MAX_ENTRIES {
            if at == 0 {
                break;
            }
            // SAFETY: an entry for each version.
            unsafe {
                if get::<u16>(at + 4) == version {
                    return Some(get::<u32>(at + 8));
                }
                at = match get::<u32>(at + 16) {
                    0 => 0,
                    next => at + next as usize,
                };
            }
        }
        None
    }

    /// Returns the address of a function that the object defines, by its name and version.
    ///
    /// # Safety
    /// The loader has mapped the object, and it stays mapped; `name` is a text that ends with a
    /// zero.
    unsafe fn function(&self, name: usize, version: Option<u32>) -> Option<usize> {
        let table = self.hashes.get();
        if table == 0 {
            return None;
        }
        // SAFETY: the caller's contract.
        let hash = unsafe { symbol_hash(name) };
        // SAFETY: the object's table of hashes begins with these numbers.
        let [buckets, first, words] =
            [0, 4, 8].map(|at| unsafe { get::<u32>(table + at) } as usize);
        let bucket = table + 16 + 8 * words;
        let chain = bucket + 4 * buckets;
        // SAFETY: behind these are filters and buckets, or at least a symbol.
        let begin = unsafe { get::<u32>(bucket + 4 * (hash as usize % buckets.max(1))) } as usize;
        if buckets == 0 || begin < first {
            return None;
        }
        for symbol in begin..begin + MAX_ENTRIES {
            // SAFETY: the chain of a bucket has a hash for each symbol, up to one that is odd.
            let found = unsafe { get::<u32>(chain + 4 * (symbol - first)) };
            if found | 1 == hash | 1 {
                // SAFETY: the symbol has a hash, so the object has the symbol, and its name is a
                // text. The caller promises that of `name`.
                unsafe {
                    let entry = self.symbol(symbol);
                    // musl's symbols have no versions.
                    let is_right = version.is_none()
                        || self.defined.get() == 0
                        || self.defined_hash(self.version(symbol)) == version;
                    if entry.is_defined && is_right && are_same(entry.name, name) {
                        return resolve_function(entry);
                    }
                }
            }
            if found & 1 != 0 {
                break;
            }
        }
        None
    }
}

/// Returns the hash of a symbol's name, as in the objects' hash tables.
///
/// # Safety
/// `name` is a text that ends with a zero.
unsafe fn symbol_hash(name: usize) -> u32 {
    let mut hash = 5381u32;
    for i in 0.. {
        // SAFETY: no byte before this one was the last.
        let byte = unsafe { get::<u8>(name + i) };
        if byte == 0 {
            break;
        }
        hash = hash.wrapping_mul(33).wrapping_add(byte.into());
    }
    hash
}

/// Returns the address of a symbol's function. A resolver is called to choose the function.
fn resolve_function(entry: ImageSymbol) -> Option<usize> {
    match entry.kind {
        STT_FUNC => Some(entry.address),
        STT_GNU_IFUNC => {
            // SAFETY: a glibc function that chooses another one by the processor, and calls
            // nothing.
            let choose =
                unsafe { std::mem::transmute::<usize, extern "C" fn() -> usize>(entry.address) };
            Some(choose())
        }
        _ => None,
    }
}

/// Reads libc's objects. Returns whether there are any.
fn read_libc() -> bool {
    let mut map = loader::first_map();
    for _ in 0..MAX_ENTRIES {
        if map == 0 {
            break;
        }
        // SAFETY: an entry of the loader's list: base, name, dynamic section, the next one. The
        // names end with a zero, and libc's objects stay loaded for good.
        unsafe {
            let [base, path, dynamic, next] = get::<[usize; 4]>(map);
            for (name, image) in LIBC_OBJECTS.iter().zip(&LIBC_IMAGES) {
                if base != 0 && dynamic != 0 && path != 0 && is_file(path, name) {
                    image.read(base, dynamic);
                }
            }
            map = next;
        }
    }
    LIBC_IMAGES.iter().any(|image| image.base.get() != 0)
}

/// Whether the last part of a path is `name`.
///
/// # Safety
/// There is a text at `path` that ends with a zero.
unsafe fn is_file(path: usize, name: &[u8]) -> bool {
    let mut from = path;
    for at in path.. {
        // SAFETY: no byte before this one was the last.
        match unsafe { get::<u8>(at) } {
            0 => break,
            b'/' => from = at + 1,
            _ => {}
        }
    }
    // SAFETY: the caller's contract.
    unsafe { is_text(from, name) }
}

/// Corrects each slot that points neither at libc's function nor at a function of this library,
/// and the slots of [`PROGRAM_FUNCTIONS`].
fn lead() {
    const RELOCATION_LEN: usize = 24;
    let mut is_open = false;
    for [table, size] in &OWN_IMAGE.relocations {
        let mut at = table.get();
        let end = at + size.get();
        while at < end {
            // SAFETY: a table of relocations, of the loader's size.
            let [place, info, added] = unsafe { get::<[usize; 3]>(at) };
            let is_word = matches!(info & 0xffff_ffff, 1 | 6 | 7);
            if is_word && info >> 32 != 0 && added == 0 {
                lead_slot(OWN_IMAGE.base.get() + place, info >> 32, &mut is_open);
            }
            at += RELOCATION_LEN;
        }
    }
    if is_open {
        protect(libc::PROT_READ);
    }
}

/// Corrects the slot at the address `at` for the symbol with the number `symbol`.
fn lead_slot(at: usize, symbol: usize, is_open: &mut bool) {
    // SAFETY: the loader has filled this slot, and it is aligned.
    let slot = unsafe { AtomicUsize::from_ptr(at as *mut usize) };
    let leads_to = slot.load(Ordering::Relaxed);
    // SAFETY: the loader has read the symbol.
    let entry = unsafe { OWN_IMAGE.symbol(symbol) };
    // SAFETY: its name ends with a zero.
    let is_programs = PROGRAM_FUNCTIONS
        .iter()
        .any(|name| unsafe { is_text(entry.name, name) });
    let is_right = OWN_IMAGE.holds(leads_to) && !is_programs;
    if leads_to == 0 || is_right || LIBC_IMAGES.iter().any(|of| of.holds(leads_to)) {
        return;
    }
    // SAFETY: the loader has read the symbol and its version.
    let right = unsafe {
        if is_programs {
            let mut all = LIBC_IMAGES.iter();
            all.find_map(|of| of.function(entry.name, None))
        } else if entry.is_defined {
            let is_allocators = ALLOCATOR_FUNCTIONS
                .iter()
                .any(|name| is_text(entry.name, name));
            (!is_allocators).then_some(entry.address)
        } else {
            let version = OWN_IMAGE.needed_hash(OWN_IMAGE.version(symbol));
            let mut all = LIBC_IMAGES.iter();
            all.find_map(|of| of.function(entry.name, version))
        }
    };
    let is_read_only = (OWN_IMAGE.read_only[0].get()..OWN_IMAGE.read_only[1].get()).contains(&at);
    if let Some(right) = right {
        if is_read_only && !*is_open {
            *is_open = protect(libc::PROT_READ | libc::PROT_WRITE);
        }
        if !is_read_only || *is_open {
            slot.store(right, Ordering::Release);
        }
    }
}

/// Sets the access rights of this library's pages that the loader made read-only. Returns false on
/// failure.
fn protect(rights: i32) -> bool {
    let [from, end] = [OWN_IMAGE.read_only[0].get(), OWN_IMAGE.read_only[1].get()];
    let args = [from, end - from, rights as usize, 0, 0, 0];
    // SAFETY: pages of our own, which hold no code.
    unsafe { sys::call(libc::SYS_mprotect, args) == 0 }
}

/// Points this library's slots at libc's functions. Later calls do nothing.
pub fn bind() {
    static IS_BOUND: AtomicBool = AtomicBool::new(false);
    if IS_BOUND.swap(true, Ordering::AcqRel) {
        return;
    }
    // SAFETY: the linker's names for the beginning of this library, and of its dynamic section.
    unsafe {
        OWN_IMAGE.read(
            &raw const OWN_START as usize,
            &raw const OWN_DYNAMIC as usize,
        )
    };
    if OWN_IMAGE.base.get() != 0 && read_libc() {
        lead();
    }
}

#[cfg(test)]
#[path = "imports/tests.rs"]
mod tests;
