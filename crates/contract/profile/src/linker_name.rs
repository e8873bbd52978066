//! Recognizes Rust functions by the form of their symbols.

/// Whether a symbol is a Rust name, mangled in the `_R` scheme or in Rust's older scheme.
pub fn is_rust_name(symbol: &str) -> bool {
    // A path begins with a tag, which is a capital letter. A version may precede it.
    let tag = symbol
        .strip_prefix("_R")
        .map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
    tag.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
        || is_legacy_rust_name(symbol)
}

/// Whether a symbol is a Rust name, mangled in Rust's older scheme. This is C++'s scheme with a
/// hash at the end: `17h` and 16 digits.
pub fn is_legacy_rust_name(symbol: &str) -> bool {
    let hash = |at: usize| {
        let digits = symbol.as_bytes().get(at + 3..at + 19);
        digits.is_some_and(|d| d.iter().all(u8::is_ascii_hexdigit))
            && symbol.as_bytes().get(at + 19) == Some(&b'E')
    };
    symbol.starts_with("_ZN") && symbol.match_indices("17h").any(|(at, _)| hash(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rust_s() {
        for (symbol, is_rust) in [
            ("_RNvCs15kBYyAo9fc_7mycrate7example", true),
            ("_ZN3foo3bar17h0123456789abcdefE.llvm.1", true),
            ("_ZN4shop17handle_everythingIiEEvT_", false),
            ("_ZN3foo6h12345Ev", false),
            ("_Read", false),
            ("_R", false),
            ("main", false),
        ] {
            assert_eq!(is_rust_name(symbol), is_rust, "{symbol}");
        }
    }
}
