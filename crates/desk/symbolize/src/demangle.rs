//! Converts linker names of C++ (Itanium) and Rust (legacy and v0) to source names. C names stay
//! unchanged.

use heapprof_profile::{Profile, is_rust_name};

use crate::itanium::{self, DemangleDetail};

/// Returns the source name of a symbol, as `c++filt -i` writes it; `None` if the symbol is not
/// mangled.
pub fn demangle(symbol: &str) -> Option<String> {
    demangle_with(symbol, DemangleDetail::Whole)
}

/// Returns the name of a class from the mangled name in its `type_info` (such as `N3geo6CircleE`).
#[must_use]
pub fn class_name(mangled: &str) -> Option<String> {
    let name = demangle(&format!("_ZTI{mangled}"))?;
    name.strip_prefix("typeinfo for ").map(str::to_string)
}

/// Demangles a symbol like [`demangle`], but without a C++ function's parameters and return type.
pub(crate) fn demangle_briefly(symbol: &str) -> Option<String> {
    demangle_with(symbol, DemangleDetail::Name)
}

fn demangle_with(symbol: &str, detail: DemangleDetail) -> Option<String> {
    if is_rust_name(symbol) {
        // The alternate form leaves the hash out.
        if let Ok(name) = rustc_demangle::try_demangle(symbol) {
            return Some(format!("{name:#}"));
        }
    }
    itanium::demangle(symbol, detail)
}

/// Maximum number of bytes that the source names of a profile's linker names take in all.
const MAX_DEMANGLED_BYTES: usize = 256 << 20;

/// Gives functions whose name is a linker name their source names. The linker name is kept as the
/// function's `system_name`, as pprof's format intends. A function that has a source name already
/// stays as it is.
///
/// Other tools write linker names, and pprof shows source names for those. A short linker name may
/// stand for a very long name: if all source names would take too much memory, the other functions
/// keep their linker names.
pub fn demangle_names(profile: &mut Profile) {
    let mut left = MAX_DEMANGLED_BYTES;
    for at in 0..profile.function.len() {
        let function = &profile.function[at];
        let is_named = !function.name.is_empty() && !function.system_name.is_empty();
        if is_named && function.name != function.system_name {
            continue;
        }
        let linker = match function.system_name.is_empty() {
            true => function.name,
            false => function.system_name,
        };
        if let Some(name) = demangle_stored(profile.text(linker)) {
            left = match left.checked_sub(name.len()) {
                Some(left) => left,
                None => return,
            };
            let name = profile.strings.intern(&name);
            let function = &mut profile.function[at];
            (function.name, function.system_name) = (name, linker);
        }
    }
}

/// Demangles a symbol as other tools write it: macOS puts an underscore before each symbol, and a
/// version or `@plt` may follow the symbol.
fn demangle_stored(symbol: &str) -> Option<String> {
    let symbol = symbol
        .strip_prefix('_')
        .filter(|rest| is_mangled(rest))
        .unwrap_or(symbol);
    if !is_mangled(symbol) {
        return None;
    }
    let (symbol, end) = symbol.split_at(symbol.find('@').unwrap_or(symbol.len()));
    Some(demangle(symbol)? + end)
}

/// Whether a name looks like a C++ or Rust linker name.
pub(crate) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

#[cfg(test)]
mod tests {
    use heapprof_profile::{Function, ProfileBuilder};

    use super::{demangle, demangle_names};

    /// Checks which names are demangled, and that the linker name is kept.
    #[test]
    fn stored_names_become_source_names() {
        let table = [
            // The name, the system name, and both afterwards.
            (
                "_ZN3foo3barEv",
                "_ZN3foo3barEv",
                "foo::bar()",
                "_ZN3foo3barEv",
            ),
            ("_ZN3foo3barEv", "", "foo::bar()", "_ZN3foo3barEv"),
            ("", "_ZN3foo3barEv", "foo::bar()", "_ZN3foo3barEv"),
            ("foo::bar", "_ZN3foo3barEv", "foo::bar", "_ZN3foo3barEv"),
            ("_ZN3foo3barEv", "bar", "_ZN3foo3barEv", "bar"),
            (
                "__ZN3foo3barEv",
                "__ZN3foo3barEv",
                "foo::bar()",
                "__ZN3foo3barEv",
            ),
            (
                "_Znwm@plt",
                "_Znwm@plt",
                "operator new(unsigned long)@plt",
                "_Znwm@plt",
            ),
            (
                "_RNvCs15kBYyAo9fc_7mycrate7example",
                "",
                "mycrate::example",
                "_RNvCs15kBYyAo9fc_7mycrate7example",
            ),
            ("malloc", "malloc", "malloc", "malloc"),
            ("_Zebra", "_Zebra", "_Zebra", "_Zebra"),
            ("_", "", "_", ""),
        ];
        for (name, system_name, shown, kept) in table {
            let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
            let [name, system_name] = [name, system_name].map(|text| builder.text(text));
            builder.function(Function {
                name,
                system_name,
                ..Function::default()
            });
            let mut profile = builder.finish();
            demangle_names(&mut profile);
            let function = profile.function[0];
            let found = [function.name, function.system_name].map(|text| profile.text(text));
            assert_eq!(found, [shown, kept]);
        }
    }

    #[test]
    fn a_class_has_its_name() {
        let name = |mangled| super::class_name(mangled);
        assert_eq!(name("N3geo6CircleE").as_deref(), Some("geo::Circle"));
        assert_eq!(name("4ListIiE").as_deref(), Some("List<int>"));
        assert_eq!(name("99x"), None);
    }

    #[test]
    fn names_as_their_authors_wrote_them() {
        let cases = [
            ("main", None),
            ("_start", None),
            ("Zebra", None),
            ("_Z", None),
            ("_Z3fooi", Some("foo(int)")),
            ("_ZN3foo3barEv", Some("foo::bar()")),
            ("_ZN3foo3barE", Some("foo::bar")),
            (
                "_ZN4shop5OrderC2EOS0_",
                Some("shop::Order::Order(shop::Order&&)"),
            ),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                Some("std::vector<int, std::allocator<int> >::push_back(int&&)"),
            ),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                Some("core::fmt::Write::write_fmt"),
            ),
            (
                "_ZN3foo3bar17h0123456789abcdefE.llvm.12345",
                Some("foo::bar"),
            ),
            (
                "_RNvCs15kBYyAo9fc_7mycrate7example",
                Some("mycrate::example"),
            ),
            ("_Z1fIJiEJEEvv", Some("void f<int>()")),
            // This is a C++ class. Its name looks like a Rust hash, but is too short for one.
            ("_ZN3foo6h12345Ev", Some("foo::h12345()")),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol).as_deref(), name, "{symbol}");
        }
    }
}
