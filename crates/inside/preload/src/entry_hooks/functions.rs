//! The functions of allocators inside a file.

use std::collections::BTreeMap;

use heapprof_allocators::{
    AllocatorCall, AllocatorFamily, AllocatorFunction, AllocatorRole, MAX_NAME_LEN,
    OWN_COLLECTOR_NAME, allocator_function, hides_allocators, may_begin_known_name,
};
use object::Endianness;

use super::object_file::MappedFile;
use memchr::memmem;
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
    /// Whether hooks of symbols would see its calls.
    pub is_reached_by_symbol: bool,
    pub place: FunctionPlace,
}

/// The functions of one build of an allocator: its family, and the prefix of their names.
pub(super) type AllocatorBuilds = BTreeMap<(&'static str, &'static str), Vec<InnerFunction>>;

/// Which functions of a file are hooked at their entries.
#[derive(Clone, Copy)]
pub(super) struct HookedFunctions {
    /// Whether the file is the program itself, whose functions come before hooks of symbols.
    pub is_program: bool,
    /// Whether the library has hooks of symbols, which see the calls of a library's malloc.
    pub has_symbol_hooks: bool,
}

/// The symbols of a file, and the bytes with their names.
struct SymbolNames<'a> {
    symbols: &'a [Sym64<Endianness>],
    names: &'a [u8],
}

impl<'a> SymbolNames<'a> {
    /// Returns the dynamic symbols of a file, which are empty in a file for debuggers, and all.
    fn dynamic_and_all(file: &'a [u8]) -> Option<[Self; 2]> {
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

/// Finds the functions of allocators inside a file that are hooked at their entries, by allocator
/// and prefix. `debug` opens the file for debuggers, if the file itself is stripped.
pub(super) fn inner_functions(
    file: &[u8],
    debug: impl FnOnce() -> Option<MappedFile>,
    wanted: HookedFunctions,
) -> Option<AllocatorBuilds> {
    let [dynamic, mut all] = SymbolNames::dynamic_and_all(file)?;
    let exported: Vec<_> = dynamic.functions().collect();
    // The hooks of symbols see the calls of a library's functions of malloc's family. A program
    // that exports them comes before these hooks.
    let exports_malloc = exported.iter().any(|(_, name)| *name == "malloc");
    let is_library = exports_malloc && !wanted.is_program;
    let is_shared = is_library && wanted.has_symbol_hooks;
    if is_library {
        all.symbols = &[];
    }
    let debug = match all.symbols {
        [] if !is_library => debug(),
        _ => None,
    };
    if let Some(debug) = &debug {
        [_, all] = SymbolNames::dynamic_and_all(debug.bytes())?;
    }
    let mut has_extended_calls = false;
    let mut found: BTreeMap<u64, InnerFunction> = BTreeMap::new();
    for (symbol, name) in exported.into_iter().chain(all.functions()) {
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
            is_reached_by_symbol: is_library
                && matches!(
                    function.family,
                    AllocatorFamily::Malloc | AllocatorFamily::Operators
                ),
            place: FunctionPlace {
                start,
                size: symbol.st_size.get(ENDIAN),
                next: u64::MAX,
            },
        });
    }
    let has_own_collector = |table: &SymbolNames<'_>| {
        memmem::find(table.names, OWN_COLLECTOR_NAME.as_bytes()).is_some()
    };
    if found.is_empty() || has_own_collector(&dynamic) || has_own_collector(&all) {
        return None;
    }
    found.retain(|_, inner| match inner.function.family {
        // A hidden jemalloc has the names of malloc's family, too.
        AllocatorFamily::Malloc | AllocatorFamily::Operators => {
            !is_shared && (exports_malloc || has_extended_calls)
        }
        // Its functions besides malloc's family call none of it. Other allocators' do, so their
        // blocks would count twice.
        AllocatorFamily::Jemalloc => !is_shared || inner.function.prefix.is_empty(),
        _ => !is_shared,
    });
    set_ends(&mut found, [&dynamic, &all]);
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
    builds.retain(|_, functions| is_library || is_allocator(functions));
    Some(builds)
}

/// Notes where the next function or label begins behind each function. Labels of assembly have no
/// kind.
fn set_ends(found: &mut BTreeMap<u64, InnerFunction>, tables: [&SymbolNames<'_>; 2]) {
    let Some((&first, _)) = found.first_key_value() else {
        return;
    };
    let all = tables.into_iter().flat_map(|table| table.symbols);
    let starts = all.filter(|symbol| is_defined(symbol));
    let starts = starts.map(|symbol| symbol.st_value.get(ENDIAN));
    let mut behind_last = u64::MAX;
    let last = found.last_key_value().map_or(first, |(&last, _)| last);
    for at in starts.filter(|at| *at > first) {
        if at > last {
            behind_last = behind_last.min(at);
        } else if let Some((_, before)) = found.range_mut(..at).next_back() {
            before.place.next = before.place.next.min(at);
        }
    }
    if let Some(mut last) = found.last_entry() {
        last.get_mut().place.next = behind_last;
    }
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
