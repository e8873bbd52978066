//! The loaded objects, and the functions of allocators inside their files.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};

use heapprof_allocators::{
    AllocatorCall, AllocatorFamily, AllocatorFunction, AllocatorRole, allocator_function,
    hides_allocators,
};
use heapprof_platform::sys::{self, EngineFile};
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSymbol as _, SymbolKind};

use crate::loader_objects::each_object;

/// The code of a loaded object, and its file.
pub(super) struct ObjectCode {
    /// The path of the file.
    pub path: CString,
    /// What is added to the addresses in the file.
    pub base: usize,
    /// Whether this is the program itself.
    pub is_program: bool,
    /// The executable segments.
    pub segments: Vec<CodeSegment>,
}

/// An executable segment of a loaded object.
#[derive(Clone, Copy)]
pub(super) struct CodeSegment {
    /// Where it begins in the file.
    pub offset: usize,
    /// Its address in the process.
    pub start: usize,
    /// Number of its bytes in the file.
    pub len: usize,
}

/// Returns the code of all loaded objects that have a file, but not of this library.
pub(super) fn loaded_code() -> Vec<ObjectCode> {
    let mut all = Vec::new();
    each_object(|shown| {
        let path = match shown.is_executable {
            true => c"/proc/self/exe",
            false => shown.path,
        };
        if path.is_empty() || shown.contains(loaded_code as *const () as u64) {
            return;
        }
        let is_code = |header: &&libc::Elf64_Phdr| {
            header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_X != 0
        };
        let segments = shown.headers.iter().filter(is_code);
        let segments = segments.map(|header| CodeSegment {
            offset: header.p_offset as usize,
            start: shown.base.wrapping_add(header.p_vaddr) as usize,
            len: header.p_filesz as usize,
        });
        all.push(ObjectCode {
            path: path.to_owned(),
            base: shown.base as usize,
            is_program: shown.is_executable,
            segments: segments.collect(),
        });
    });
    all
}

/// A file that is mapped to be read.
pub(super) struct MappedFile(&'static [u8]);

impl MappedFile {
    /// Maps a regular file. Returns `None` if it can't be read.
    pub(super) fn open(path: &CStr) -> Option<Self> {
        let file: EngineFile = sys::open_regular(path)?;
        let len = usize::try_from(file.stat()?.st_size).ok()?;
        let at = sys::map_to_read(&file, len);
        if len == 0 || at.is_null() {
            return None;
        }
        // SAFETY: the file's bytes are mapped until this is dropped. The files of running programs
        // are not made shorter: that would end the program, too.
        Some(Self(unsafe { std::slice::from_raw_parts(at, len) }))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own.
        unsafe { sys::unmap(self.0.as_ptr().cast_mut(), self.0.len()) };
    }
}

/// A function of an allocator inside a file. Addresses are those of the file.
pub(super) struct InnerFunction {
    pub name: String,
    pub function: AllocatorFunction,
    /// Whether a compiler has made it from the function of this name, with other arguments.
    pub is_clone: bool,
    pub start: u64,
    pub size: u64,
    /// The address of the next function, or the largest address.
    pub next: u64,
}

/// The functions of one build of an allocator: its family, and the prefix of their names.
pub(super) type AllocatorBuilds = BTreeMap<(&'static str, &'static str), Vec<InnerFunction>>;

/// Finds the functions of allocators inside a file that are called past the hooks of symbols, by
/// allocator and prefix.
pub(super) fn inner_functions(file: &[u8], is_program: bool) -> Option<AllocatorBuilds> {
    let elf = ElfFile64::<Endianness>::parse(file).ok()?;
    let (mut exports_malloc, mut has_extended_calls) = (false, false);
    let mut found: BTreeMap<u64, InnerFunction> = BTreeMap::new();
    let dynamic = elf.dynamic_symbols().map(|symbol| (symbol, true));
    let all = dynamic.chain(elf.symbols().map(|symbol| (symbol, false)));
    for (symbol, is_dynamic) in all {
        if symbol.kind() != SymbolKind::Text || !symbol.is_definition() {
            continue;
        }
        let Ok(name) = symbol.name() else { continue };
        if hides_allocators(name) {
            return None;
        }
        exports_malloc |= is_dynamic && name == "malloc";
        let (base, is_clone) = split_clone(name);
        if let Some(function) = allocator_function(base) {
            has_extended_calls |=
                function.family == AllocatorFamily::Jemalloc && function.prefix.is_empty();
            found
                .entry(symbol.address())
                .or_insert_with(|| InnerFunction {
                    name: name.to_string(),
                    function,
                    is_clone,
                    start: symbol.address(),
                    size: symbol.size(),
                    next: u64::MAX,
                });
        }
    }
    // The hooks of symbols see the calls of a library that exports malloc. A program that exports
    // it comes before them.
    if exports_malloc && !is_program || found.is_empty() {
        return None;
    }
    // A hidden jemalloc has the names of malloc's family, too.
    found.retain(|_, inner| match inner.function.family {
        AllocatorFamily::Malloc | AllocatorFamily::Operators => {
            exports_malloc || has_extended_calls
        }
        _ => true,
    });
    // Labels of assembly have no kind.
    for symbol in elf.symbols().chain(elf.dynamic_symbols()) {
        if symbol.is_definition() {
            let at = symbol.address();
            if let Some((_, before)) = found.range_mut(..at).next_back() {
                before.next = before.next.min(at);
            }
        }
    }
    // An allocator that takes the place of malloc has its functions under both names.
    let replaces_malloc = found
        .values()
        .any(|inner| inner.function.family == AllocatorFamily::Malloc);
    let malloc = AllocatorFamily::Malloc.name();
    let mut names = found.values().map(|inner| inner.function.family.name());
    let name = names.find(|name| *name != malloc);
    let mut builds = AllocatorBuilds::new();
    for inner in found.into_values() {
        let AllocatorFunction { family, prefix, .. } = inner.function;
        let build = match family {
            _ if replaces_malloc => (name.unwrap_or(malloc), ""),
            // The functions for a given heap free with the others.
            AllocatorFamily::Mimalloc => (family.name(), "mi_"),
            _ => (family.name(), prefix),
        };
        builds.entry(build).or_default().push(inner);
    }
    builds.retain(|_, functions| is_allocator(functions));
    Some(builds)
}

/// Returns the name of the function in the source, and whether the compiler has changed its
/// arguments. Names that only were made unique have the same ones.
fn split_clone(name: &str) -> (&str, bool) {
    let Some((base, suffix)) = name.split_once('.') else {
        return (name, false);
    };
    match suffix.split(['.', '_']).next() {
        Some("lto" | "llvm" | "localalias") => (base, false),
        Some("constprop" | "isra") => (base, true),
        // Pieces of a function, to which it leads.
        _ => (name, false),
    }
}

/// Whether functions are those of an allocator: not only single ones that have such names by
/// chance. rpmalloc may be linked with two.
fn is_allocator(functions: &[InnerFunction]) -> bool {
    let any = |is_so: &dyn Fn(AllocatorCall) -> bool| {
        let mut own = functions.iter().filter(|inner| !inner.is_clone);
        own.any(|inner| is_so(inner.function.call))
    };
    let frees = any(&|call| call.role() == AllocatorRole::Frees);
    let allocates = any(&|call| matches!(call, AllocatorCall::Allocate { .. }));
    let more = any(&|call| {
        matches!(
            call,
            AllocatorCall::Resize { .. } | AllocatorCall::AllocateMany { .. }
        )
    });
    let is_rpmalloc = |inner: &InnerFunction| inner.function.family == AllocatorFamily::Rpmalloc;
    frees && allocates && (more || functions.iter().all(is_rpmalloc))
}
