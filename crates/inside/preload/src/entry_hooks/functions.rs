//! The functions of allocators inside a file.

use std::collections::BTreeMap;

use heapprof_allocators::{
    AllocatorCall, AllocatorFamily, AllocatorFunction, AllocatorRole, MAX_NAME_LEN,
    allocator_function, hides_allocators, may_begin_known_name,
};
use object::Endianness;

use super::object_file::MappedFile;
use object::elf::{self, FileHeader64, Sym64};
use object::read::elf::{ElfFile64, SymbolTable};

/// Where a function is in a file, by the file's own addresses.
#[derive(Clone, Copy)]
pub(super) struct FunctionPlace {
    pub start: u64,
    /// Number of bytes; 0 if that is not known.
    pub size: u64,
    /// The address of the next function, or the largest address.
    pub next: u64,
}

/// A function of an allocator inside a file.
pub(super) struct InnerFunction {
    pub name: String,
    pub function: AllocatorFunction,
    /// Why the function can't be hooked, whatever its code is.
    pub refusal: Option<&'static str>,
    pub place: FunctionPlace,
}

/// The functions of one build of an allocator: its family, and the prefix of their names.
pub(super) type AllocatorBuilds = BTreeMap<(&'static str, &'static str), Vec<InnerFunction>>;

/// The symbols of a file, and the bytes with their names.
struct SymbolNames<'a> {
    symbols: &'a [Sym64<Endianness>],
    names: &'a [u8],
}

impl<'a> SymbolNames<'a> {
    /// Returns the dynamic symbols of a file, which are empty in a file for debuggers, and all.
    fn of(file: &'a [u8]) -> Option<[Self; 2]> {
        let elf = ElfFile64::<Endianness>::parse(file).ok()?;
        let sections = elf.elf_section_table();
        let names = |table: &SymbolTable<'a, FileHeader64<Endianness>>| Self {
            symbols: table.symbols(),
            names: sections
                .section(table.string_section())
                .and_then(|section| object::read::elf::SectionHeader::data(section, ENDIAN, file))
                .unwrap_or_default(),
        };
        Some([
            names(elf.elf_dynamic_symbol_table()),
            names(elf.elf_symbol_table()),
        ])
    }

    /// Returns the defined functions whose names may be known. There may be millions of others.
    fn functions(&self) -> impl Iterator<Item = (&'a Sym64<Endianness>, &'a str)> {
        let names = self.names;
        self.symbols.iter().filter_map(move |symbol| {
            let kind = symbol.st_type();
            if !matches!(kind, elf::STT_FUNC | elf::STT_GNU_IFUNC) || !is_defined(symbol) {
                return None;
            }
            let name = names.get(symbol.st_name.get(ENDIAN) as usize..)?;
            if !may_begin_known_name(name) {
                return None;
            }
            let name = &name[..name.len().min(MAX_SYMBOL_LEN)];
            let len = name.iter().position(|&byte| byte == 0)?;
            Some((symbol, std::str::from_utf8(&name[..len]).ok()?))
        })
    }
}

const ENDIAN: Endianness = Endianness::Little;
/// Maximum length of a known name with what a compiler appends, such as `.constprop.0.isra.0`.
const MAX_SYMBOL_LEN: usize = MAX_NAME_LEN + 40;

fn is_defined(symbol: &Sym64<Endianness>) -> bool {
    symbol.st_shndx.get(ENDIAN) != elf::SHN_UNDEF
}

/// Whether a file is a library that has malloc's name for other files. The hooks of symbols see the
/// calls of its functions.
fn exports_malloc(dynamic: &SymbolNames<'_>) -> bool {
    dynamic.functions().any(|(_, name)| name == "malloc")
}

/// Finds the functions of allocators inside a file that are called past the hooks of symbols, by
/// allocator and prefix. `debug` opens the file for debuggers, if the file itself is stripped.
pub(super) fn inner_functions(
    file: &[u8],
    debug: impl FnOnce() -> Option<MappedFile>,
    is_program: bool,
) -> Option<AllocatorBuilds> {
    let [dynamic, mut all] = SymbolNames::of(file)?;
    let exports_malloc = exports_malloc(&dynamic);
    // A program that exports malloc comes before the hooks of symbols.
    if exports_malloc && !is_program {
        return None;
    }
    let debug = match all.symbols {
        [] => debug(),
        _ => None,
    };
    if let Some(debug) = &debug {
        [_, all] = SymbolNames::of(debug.bytes())?;
    }
    let mut has_extended_calls = false;
    let mut found: BTreeMap<u64, InnerFunction> = BTreeMap::new();
    for (symbol, name) in dynamic.functions().chain(all.functions()) {
        if hides_allocators(name) {
            return None;
        }
        let (base, is_clone) = split_clone(name);
        let Some(function) = allocator_function(base) else {
            continue;
        };
        has_extended_calls |=
            function.family == AllocatorFamily::Jemalloc && function.prefix.is_empty();
        let start = symbol.st_value.get(ENDIAN);
        found.entry(start).or_insert_with(|| InnerFunction {
            name: name.to_string(),
            function,
            refusal: match symbol.st_type() {
                elf::STT_GNU_IFUNC => Some("its code is chosen when the program starts"),
                _ if is_clone => Some("its arguments are not those of the source"),
                _ => None,
            },
            place: FunctionPlace {
                start,
                size: symbol.st_size.get(ENDIAN),
                next: u64::MAX,
            },
        });
    }
    if found.is_empty() || [&dynamic, &all].into_iter().any(has_own_collector) {
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
    for symbol in dynamic.symbols.iter().chain(all.symbols) {
        if is_defined(symbol) {
            let at = symbol.st_value.get(ENDIAN);
            if let Some((_, before)) = found.range_mut(..at).next_back() {
                before.place.next = before.place.next.min(at);
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

/// Whether a file contains heapprof's own allocator, with names of Rust, which are long.
fn has_own_collector(symbols: &SymbolNames<'_>) -> bool {
    let finder = |name: &[u8]| {
        let end = name.iter().position(|&byte| byte == 0);
        let name = std::str::from_utf8(&name[..end.unwrap_or(name.len())]);
        name.is_ok_and(hides_allocators)
    };
    let mut names = symbols.symbols.iter().filter_map(|symbol| {
        let name = symbols.names.get(symbol.st_name.get(ENDIAN) as usize..)?;
        (is_defined(symbol) && name.first() == Some(&b'_')).then_some(name)
    });
    names.any(finder)
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
        let mut own = functions.iter().filter(|inner| inner.refusal.is_none());
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
