//! From linker names to what people wrote: C++ (Itanium), Rust (legacy and v0). C names are as they are.

use std::fmt;

/// The name for people; `None` when it is the linker's own.
pub(crate) fn demangle(symbol: &str) -> Option<String> {
    demangle_with(symbol, cpp_demangle::DemangleOptions::default())
}

/// As [`demangle`], without a C++ function's parameters and return type.
pub(crate) fn demangle_briefly(symbol: &str) -> Option<String> {
    let options = cpp_demangle::DemangleOptions::new();
    demangle_with(symbol, options.no_params().no_return_type())
}

fn demangle_with(symbol: &str, options: cpp_demangle::DemangleOptions) -> Option<String> {
    if symbol.starts_with("_R") || is_legacy_rust(symbol) {
        // The alternate form leaves the hash out.
        if let Ok(name) = rustc_demangle::try_demangle(symbol) {
            return Some(format!("{name:#}"));
        }
    }
    if !symbol.starts_with("_Z") {
        return None;
    }
    let parsed = cpp_demangle::BorrowedSymbol::new(symbol.as_bytes()).ok()?;
    let mut name = Bounded(String::new());
    parsed.structured_demangle(&mut name, &options).ok()?;
    Some(without_empty_packs(name.0))
}

/// cpp_demangle writes the comma before a parameter pack, and then nothing when the pack is empty.
fn without_empty_packs(mut name: String) -> String {
    for (wrong, right) in [(", , ", ", "), (", >", ">"), (", )", ")")] {
        while name.contains(wrong) {
            name = name.replace(wrong, right);
        }
    }
    name
}

/// Whether a name has the look of C++'s or Rust's linker names.
pub(crate) fn is_mangled(symbol: &str) -> bool {
    symbol.starts_with("_Z") || symbol.starts_with("_R")
}

/// Legacy Rust borrows C++'s scheme; only the hash at the end, `17h` and 16 digits, tells them apart.
pub(crate) fn is_legacy_rust(symbol: &str) -> bool {
    let hash = |at: usize| {
        let digits = symbol.as_bytes().get(at + 3..at + 19);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
            && symbol.as_bytes().get(at + 19) == Some(&b'E')
    };
    symbol.starts_with("_ZN") && symbol.match_indices("17h").any(|(at, _)| hash(at))
}

/// A few bytes of a hostile name may stand for gigabytes; nobody reads names longer than this.
const LONGEST: usize = 64 << 10;

struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

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
            // A C++ class whose name looks like a hash that is too short.
            ("_ZN3foo6h12345Ev", Some("foo::h12345()")),
        ];
        for (symbol, name) in cases {
            assert_eq!(demangle(symbol).as_deref(), name, "{symbol}");
        }
    }

    #[test]
    fn a_name_that_doubles_itself_has_an_end() {
        let mut symbol = String::from("_Z1fP1A");
        for i in 0..60 {
            let reference = match i {
                0 => "S_".to_string(),
                i => format!("S{}_", char::from(b'0' + (i as u8 - 1) % 10)),
            };
            symbol = format!("{symbol}I{reference}{reference}E");
        }
        // Whatever it is taken for: it is done soon, and short.
        assert!(demangle(&symbol).is_none_or(|name| name.len() <= 64 << 10));
    }
}
