//! Prints which functions of allocators in some files can have a jump at their entries.
//! usage: cargo run -p heapprof-entry --example survey -- FILE...
#![allow(clippy::print_stdout, reason = "it is a program of its own")]

use std::collections::BTreeMap;
use std::io;

use heapprof_allocators::allocator_function;
use heapprof_entry::{EntryPlan, EntryRefusal, FunctionCode, Trampoline};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

fn main() -> io::Result<()> {
    let (mut all, mut planned) = (0, 0);
    for file in std::env::args_os().skip(1) {
        let bytes = std::fs::read(&file)?;
        let elf = object::File::parse(&*bytes).map_err(io::Error::other)?;
        let mut functions = BTreeMap::<u64, (u64, &str)>::new();
        let symbols = elf.symbols().chain(elf.dynamic_symbols());
        let is_function = |symbol: &object::Symbol<'_, '_>| {
            symbol.kind() == SymbolKind::Text && symbol.is_definition()
        };
        for symbol in symbols.filter(is_function) {
            let name = symbol.name().unwrap_or_default();
            // A function may have several names, such as malloc and __libc_malloc.
            if allocator_function(name).is_some() || !functions.contains_key(&symbol.address()) {
                functions.insert(symbol.address(), (symbol.size(), name));
            }
        }
        for section in elf.sections().filter(|one| one.kind() == SectionKind::Text) {
            let Ok(code) = section.data() else { continue };
            let range = section.address()..section.address() + section.size();
            for (&start, (size, name)) in functions.range(range.clone()) {
                if allocator_function(name).is_none() {
                    continue;
                }
                let behind = functions.range(start + 1..range.end).next();
                let function = FunctionCode {
                    segment: code,
                    segment_start: range.start,
                    start,
                    size: *size,
                    next: behind.map_or(range.end, |(next, _)| *next),
                };
                all += 1;
                match check(&function) {
                    Ok(replaced) => {
                        planned += 1;
                        println!("{}: {name}: {replaced} bytes", file.display());
                    }
                    Err(why) => println!("{}: {name}: refused: {why}", file.display()),
                }
            }
        }
    }
    println!("{planned} of {all}");
    Ok(())
}

/// Plans a jump and makes the trampoline. Returns the number of replaced bytes.
fn check(function: &FunctionCode<'_>) -> Result<usize, EntryRefusal> {
    let plan = EntryPlan::new(function)?;
    Trampoline::new(&plan, function.start ^ (1 << 28))?;
    Ok(plan.replaced)
}
