//! Shortens function names as pprof does: demangled, without parameters, template arguments and
//! return types.
//!
//! pprof does this with a demangling library (ianlancetaylor/demangle). heapprof demangles a name
//! first, and then cuts it. Names that are not linker names, but look like C++, are cut by a
//! simpler rule, as in pprof.

use heapprof_profile::{Profile, is_legacy_rust_name};

use crate::demangle::{demangle, demangle_briefly};

/// Style of function names: which parts of a name are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NameStyle {
    /// The name without parameters, template arguments and return type.
    #[default]
    Short,
    /// The name without parameters and return type.
    Templates,
    /// The whole name.
    Full,
    /// The linker name.
    Linker,
}

/// Replaces linker names of functions by source names. Functions from index `anew` on get a new
/// name even if they already have a source name.
pub fn simplify_names(profile: &mut Profile, style: NameStyle, anew: usize) {
    for f in 0..profile.function.len() {
        let function = profile.function[f];
        let mut name = function.name;
        if f >= anew && !name.is_empty() && !function.system_name.is_empty() {
            name = function.system_name;
        }
        if style != NameStyle::Linker && (name.is_empty() || name == function.system_name) {
            let text = simplified(profile.text(function.system_name), style);
            name = match text {
                Some(text) => profile.strings.intern(&text),
                None => function.system_name,
            };
        }
        profile.function[f].name = name;
    }
}

/// Returns the name of a symbol in a style; `None` if the linker name is to be shown.
fn simplified(symbol: &str, style: NameStyle) -> Option<String> {
    // macOS puts an underscore before each symbol.
    let inner = symbol.strip_prefix('_').filter(|s| s.starts_with('_'));
    let found = demangle_in_style(symbol, style).or_else(|| demangle_in_style(inner?, style));
    if found.is_some() {
        return found;
    }
    if !looks_like_cpp(symbol) || style == NameStyle::Full {
        return None;
    }
    let name = without(symbol, '(', ')');
    Some(match style {
        NameStyle::Short => without(&name, '<', '>'),
        _ => name,
    })
}

/// Returns the demangled name of a symbol in a style; `None` if the symbol is not mangled.
pub fn demangle_in_style(symbol: &str, style: NameStyle) -> Option<String> {
    let whole = match style {
        NameStyle::Full => demangle(symbol),
        // The function in a name such as `guard variable for f(int)::x` keeps its parameters.
        _ if is_special(symbol) => demangle(symbol),
        _ => demangle_briefly(symbol),
    };
    whole.map(|name| cut_name(symbol, &name, style))
}

/// Removes the parts of a demangled name that the style leaves out. `name` must come without the
/// function's parameters and return type, except for the style `Full` and for special symbols.
fn cut_name(symbol: &str, name: &str, style: NameStyle) -> String {
    match style {
        NameStyle::Short if symbol.starts_with("_R") => without_generics(name),
        // In Rust's legacy scheme, types are part of the name.
        NameStyle::Short | NameStyle::Templates if is_legacy_rust_name(symbol) => name.to_string(),
        NameStyle::Short | NameStyle::Templates => {
            let short = SHORT_FORMS
                .iter()
                .fold(name.to_string(), |name, (long, short)| {
                    name.replace(long, short)
                });
            without_arguments(&short, style, is_special(symbol))
        }
        NameStyle::Full | NameStyle::Linker => name.to_string(),
    }
}

/// Whether a linker name belongs to code or data that a compiler generates for a class, a function
/// or a variable, such as a vtable.
fn is_special(symbol: &str) -> bool {
    symbol.starts_with("_ZG") || symbol.starts_with("_ZT")
}

/// Long names for which the mangling has abbreviations, and their short forms.
const SHORT_FORMS: [(&str, &str); 4] = [
    (
        "std::basic_istream<char, std::char_traits<char> >::",
        "std::istream::",
    ),
    (
        "std::basic_ostream<char, std::char_traits<char> >::",
        "std::ostream::",
    ),
    (
        "std::basic_iostream<char, std::char_traits<char> >::",
        "std::iostream::",
    ),
    (
        "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::",
        "std::string::",
    ),
];

/// Operators whose names contain brackets, the longest first.
const OPERATORS: [&str; 14] = [
    "<<=", ">>=", "<=>", "->*", "<<", ">>", "<=", ">=", "->", "()", "[]", "<", ">", "(",
];

/// Returns a C++ name without its template arguments (unless the style keeps them) and without its
/// parameters (unless `whole`).
fn without_arguments(name: &str, style: NameStyle, whole: bool) -> String {
    let mut kept = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("operator") && !kept.ends_with(is_word) {
            let after = &rest["operator".len()..];
            let symbol = OPERATORS.iter().find(|o| after.starts_with(**o));
            let length = "operator".len() + symbol.map_or(0, |o| o.len());
            kept += &rest[..length];
            rest = &rest[length..];
            continue;
        }
        let group = match c {
            '<' | '(' | '{' | '[' => &rest[..find_closing(rest)],
            _ => &rest[..c.len_utf8()],
        };
        rest = &rest[group.len()..];
        match c {
            '<' if style == NameStyle::Short => {}
            '(' if whole => kept += &without_arguments_inside(group, style),
            '(' if group == "(anonymous namespace)" || kept.ends_with("decltype ") => kept += group,
            // These are the parameters of an outer function.
            '(' if rest.starts_with("::") || rest.starts_with(" const::") => kept += "()",
            '(' => {}
            _ => kept += group,
        }
    }
    let mut name = kept.as_str();
    // Removes the qualifiers that followed the parameters.
    while let Some(shorter) = [" const", " volatile", " &&", " &"]
        .iter()
        .find_map(|q| name.strip_suffix(q))
    {
        name = shorter;
    }
    name.trim_end().to_string()
}

/// Returns a parameter list without the template arguments of its types.
fn without_arguments_inside(group: &str, style: NameStyle) -> String {
    if style != NameStyle::Short {
        return group.to_string();
    }
    let mut kept = String::new();
    let mut rest = group;
    while let Some(at) = rest.find('<') {
        kept += &rest[..at];
        rest = &rest[at..];
        rest = &rest[find_closing(rest)..];
    }
    kept + rest
}

/// Returns a Rust name without the text between the brackets of generic arguments.
fn without_generics(name: &str) -> String {
    let mut kept = String::new();
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        // A bracket at the beginning of a path encloses a type, not arguments.
        if c == '<' && (kept.ends_with("::") || kept.ends_with(is_word)) {
            kept += "<>";
            rest = &rest[find_closing(rest)..];
            continue;
        }
        kept.push(c);
        rest = &rest[c.len_utf8()..];
    }
    kept
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns the position after the bracket that closes the first bracket of a text; the end of the
/// text if there is none.
fn find_closing(text: &str) -> usize {
    let mut open = Vec::new();
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => open.push(c),
            // Within parentheses, `<` may be a comparison.
            '<' if open.last() != Some(&'(') => open.push(c),
            '>' if open.last() == Some(&'<') && before != '-' => _ = open.pop(),
            ')' | ']' | '}' => {
                while let Some(bracket) = open.pop() {
                    if bracket != '<' {
                        break;
                    }
                }
            }
            _ => {}
        }
        if open.is_empty() {
            return at + c.len_utf8();
        }
        before = c;
    }
    text.len()
}

/// Whether a name looks like C++. Java's `Class.<init>` and Go's `f.(*T[...]).M` do not.
fn looks_like_cpp(name: &str) -> bool {
    !name.contains(".<")
        && !name.contains("]).")
        && (name.contains(['<', '>', '[', ']']) || name.contains("::"))
}

/// Removes matching brackets and the text between them, up to a bracket that does not match.
fn without(name: &str, open: char, close: char) -> String {
    let mut kept = String::new();
    let mut rest = name;
    loop {
        let Some(at) = rest.find([open, close]) else {
            return kept + rest;
        };
        if rest[at..].starts_with(close) {
            return kept + rest;
        }
        // Finds the closing bracket. Without one, nothing is cut.
        let mut depth = 0;
        let end = rest[at..].char_indices().find_map(|(i, c)| {
            if c == open {
                depth += 1;
            } else if c == close {
                depth -= 1;
            }
            (depth == 0).then_some(at + i + c.len_utf8())
        });
        let Some(end) = end else {
            return kept + rest;
        };
        kept += &rest[..at];
        rest = &rest[end..];
    }
}

#[cfg(test)]
mod tests {
    use super::{NameStyle, simplified};

    /// Compares names with pprof's: the linker name, then the default style, `templates` and
    /// `full`.
    #[test]
    fn names_as_pprof_shows_them() {
        let table = [
            ("_Z3fooi", "foo", "foo", "foo(int)"),
            ("_Z1fIiEvv", "f", "f<int>", "void f<int>()"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backEOi",
                "std::vector::push_back",
                "std::vector<int, std::allocator<int> >::push_back",
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
            ),
            ("_ZZ3fooiE3bar", "foo()::bar", "foo()::bar", "foo(int)::bar"),
            // This is no linker name with an underscore before it.
            (
                "__invoke_impl<void, int>(int)",
                "__invoke_impl",
                "__invoke_impl<void, int>",
                "__invoke_impl<void, int>(int)",
            ),
            ("__ZN3foo3barEv", "foo::bar", "foo::bar", "foo::bar()"),
            (
                "_ZZ4mainENKUliE_clEi",
                "main::{lambda(int)#1}::operator()",
                "main::{lambda(int)#1}::operator()",
                "main::{lambda(int)#1}::operator()(int) const",
            ),
            (
                "_ZN12_GLOBAL__N_14walkEv",
                "(anonymous namespace)::walk",
                "(anonymous namespace)::walk",
                "(anonymous namespace)::walk()",
            ),
            (
                "_ZlsRSoRK1AIiE",
                "operator<<",
                "operator<<",
                "operator<<(std::ostream&, A<int> const&)",
            ),
            (
                "_RINvMNtCsgEmfK2I1SDS_4core3stre18trim_start_matchesReECsgY6Mt91CT9J_14rustc_demangle",
                "<str>::trim_start_matches::<>",
                "<str>::trim_start_matches::<&str>",
                "<str>::trim_start_matches::<&str>",
            ),
            (
                "_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE",
                "core::fmt::Write::write_fmt",
                "core::fmt::Write::write_fmt",
                "core::fmt::Write::write_fmt",
            ),
            ("main", "main", "main", "main"),
            (
                "main.(*T[...]).run",
                "main.(*T[...]).run",
                "main.(*T[...]).run",
                "main.(*T[...]).run",
            ),
            (
                "ns::put<int, std::less<int>>(int)",
                "ns::put",
                "ns::put<int, std::less<int>>",
                "ns::put<int, std::less<int>>(int)",
            ),
            ("a<b", "a<b", "a<b", "a<b"),
        ];
        for (symbol, short, templates, full) in table {
            for (style, expected) in [
                (NameStyle::Short, short),
                (NameStyle::Templates, templates),
                (NameStyle::Full, full),
            ] {
                let name = simplified(symbol, style);
                assert_eq!(
                    name.as_deref().unwrap_or(symbol),
                    expected,
                    "{symbol} {style:?}"
                );
            }
        }
    }
}
