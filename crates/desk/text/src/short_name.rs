//! Shortens long function names. A short name has no parameters, no return type and no default
//! template arguments, and as many levels of the other template arguments as fit a line.
//!
//! Only text and Markdown, which people read, have short names. The data of rows has the full
//! names. If different names have equal short names, the differences are added to them.

mod apart;
mod arguments;
mod disambiguation;
#[cfg(test)]
mod tests;

use std::fmt;

use regex::Regex;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

pub use apart::shorten;
use arguments::{ArgumentDetail, is_anonymous, push_group};
pub use disambiguation::similar_names;

/// Namespaces that contain a library's version, with their replacements.
const VERSION_NAMESPACES: &[(&str, &str)] = &[("std::__cxx11::", "std::"), ("std::__1::", "std::")];

/// Shortens one name, and keeps as many levels of its template arguments as fit `width` columns.
pub fn shorten_one(name: &str, width: usize) -> String {
    if !is_of_cpp_or_rust(name) || !is_nested_well(name) {
        return cut(name, width);
    }
    let parts = parse(name);
    let mut short = String::new();
    for levels in [usize::MAX, 3, 2, 1, 0] {
        short = format_name(&parts, ArgumentDetail::levels(levels));
        if short.is_empty() {
            return cut(name, width);
        }
        if short.width() <= width {
            return cut(&short, width);
        }
    }
    cut(&short, width)
}

/// Whether the brackets in a name belong to C++ or Rust. Brackets in Go's `main.(*T).Method` and
/// `f[go.shape.int]`, and in Python's `<module>` and `import <frozen site>`, do not.
fn is_of_cpp_or_rust(name: &str) -> bool {
    if name.starts_with("import ") {
        return false;
    }
    let Some(bracket) = name.find(['<', '(', '{']) else {
        return false;
    };
    let is_word = |c: char| c.is_alphanumeric() || "_~ *&:,".contains(c);
    let before = &name[..bracket];
    name.contains("::") || !before.is_empty() && before.chars().all(is_word)
}

/// The likely reason why an expression matches no name. It displays as the end of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MismatchReason {
    /// The expression is a name whose special characters are not escaped. The stored expression, in
    /// which these are escaped, matches the name.
    Unescaped(String),
    /// The expression contains `…`, which replaces omitted parts in a short name.
    Ellipsis,
    /// The expression matches only a short name, but filters match whole names.
    ShortName {
        /// The short name.
        short: String,
        /// The whole name, or its beginning.
        whole: String,
    },
}

impl fmt::Display for MismatchReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unescaped(escaped) => {
                write!(f, "; to match it literally, write {escaped:?}")
            }
            Self::Ellipsis => f.write_str(": … stands for what a short name leaves out"),
            Self::ShortName { short, whole } => write!(
                f,
                ": it must match whole names, and {short:?} is short for {whole:?}"
            ),
        }
    }
}

/// Returns the likely reason why an expression matches none of these names, if there is one.
///
/// Filters match whole names, as in pprof. But reports show short names, so an expression that is
/// copied from a report may match nothing.
pub fn explain_shown_match<'n>(
    regex: &Regex,
    mut names: impl Iterator<Item = &'n str> + Clone,
) -> Option<MismatchReason> {
    let is_shown = |name: &&str| {
        let short = shorten_one(name, usize::MAX);
        short != **name && regex.is_match(&short) && !regex.is_match(name)
    };
    let literal = regex.as_str();
    let escaped = regex::escape(literal);
    if escaped != literal && names.clone().any(|name| name.contains(literal)) {
        return Some(MismatchReason::Unescaped(escaped));
    }
    if literal.contains('…') {
        return Some(MismatchReason::Ellipsis);
    }
    names.find(is_shown).map(|name| MismatchReason::ShortName {
        short: shorten_one(name, 60),
        whole: cut(name, 200),
    })
}

/// Returns the number of columns of the address and the bracket in a name such as
/// `0x7f9b08ca262f [libc.so.6]`; 0 for any other name.
fn address_columns(name: &str) -> usize {
    let Some(rest) = name.strip_prefix("0x") else {
        return 0;
    };
    match rest.find(|c: char| !c.is_ascii_hexdigit()) {
        Some(end) if rest[end..].starts_with(" [") => "0x".len() + end + " [".len(),
        _ => 0,
    }
}

/// Cuts out the middle of a text that is longer than `width` columns. An address at its beginning
/// stays whole if it fits. The number of characters is limited as well, because a text may have any
/// number of marks without width.
pub fn cut(text: &str, width: usize) -> String {
    let most = width.saturating_mul(8).saturating_add(64);
    if text.len() <= most && text.width() <= width {
        return text.to_string();
    }
    // The end says more, as in a path, so it gets more room.
    let left = width.saturating_sub(1);
    let of_last = (left * 2 / 3).min(left.saturating_sub(address_columns(text)));
    let taken = |chars: &mut dyn Iterator<Item = char>, mut left: usize| -> Vec<char> {
        let fits = |c: &char| match left.checked_sub(c.width().unwrap_or(1)) {
            Some(rest) => {
                left = rest;
                true
            }
            None => false,
        };
        chars.take(most / 8).take_while(fits).collect()
    };
    let last = taken(&mut text.chars().rev(), of_last);
    let first = taken(&mut text.chars(), left - of_last);
    let both = [first, vec!['…'], last.into_iter().rev().collect()];
    both.into_iter().flatten().collect()
}

/// A part of a parsed name.
enum ShortNamePart<'a> {
    Text(&'a str),
    /// The content of a pair of brackets, split at its commas.
    Group(char, Vec<Vec<ShortNamePart<'a>>>),
}

/// Nesting depth of brackets at which a name is no longer parsed.
const MAX_NESTING: usize = 64;

/// Whether the nesting depth of a name's brackets is below [`MAX_NESTING`].
fn is_nested_well(name: &str) -> bool {
    let mut depth = 0usize;
    name.chars().all(|c| {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth < MAX_NESTING
    })
}

/// Operators whose names contain brackets, the longest first.
const BRACKET_OPERATORS: &[&str] = &[
    "<<=", ">>=", "<=>", "->*", "<<", ">>", "<=", ">=", "->", "()", "<", ">",
];

fn parse(name: &str) -> Vec<ShortNamePart<'_>> {
    let mut rest = name;
    let mut all = Vec::new();
    while !rest.is_empty() {
        let mut parts = parse_list(&mut rest, None);
        all.append(&mut parts.pop().unwrap_or_default());
        // This bracket closes nothing.
        if let Some(c) = rest.chars().next() {
            let (bracket, after) = rest.split_at(c.len_utf8());
            all.push(ShortNamePart::Text(bracket));
            rest = after;
        }
    }
    all
}

/// Parses a name up to the bracket that closes `open`. If a bracket is open, commas split the list.
fn parse_list<'a>(rest: &mut &'a str, open: Option<char>) -> Vec<Vec<ShortNamePart<'a>>> {
    let mut lists = vec![Vec::new()];
    let mut text = 0;
    let whole = *rest;
    let mut at = 0;
    let push = |lists: &mut Vec<Vec<ShortNamePart<'a>>>, from: usize, to: usize| {
        if from < to {
            lists
                .last_mut()
                .expect("there is one")
                .push(ShortNamePart::Text(&whole[from..to]));
        }
    };
    while let Some(c) = whole[at..].chars().next() {
        let before = &whole[..at];
        if before.ends_with("operator")
            && let Some(operator) = BRACKET_OPERATORS
                .iter()
                .find(|o| whole[at..].starts_with(**o))
        {
            at += operator.len();
            continue;
        }
        match c {
            // `->` closes nothing.
            '>' if before.ends_with('-') => at += 1,
            '<' | '(' | '{' => {
                push(&mut lists, text, at);
                *rest = &whole[at + 1..];
                let inner = parse_list(rest, Some(c));
                at = whole.len() - rest.len();
                let closes = rest.chars().next();
                at += closes.map_or(0, char::len_utf8);
                lists
                    .last_mut()
                    .expect("there is one")
                    .push(ShortNamePart::Group(c, inner));
                text = at;
            }
            '>' | ')' | '}' => {
                push(&mut lists, text, at);
                *rest = &whole[at..];
                return lists;
            }
            ',' if open.is_some() => {
                push(&mut lists, text, at);
                lists.push(Vec::new());
                at += 1;
                at += whole[at..].len() - whole[at..].trim_start().len();
                text = at;
            }
            c => at += c.len_utf8(),
        }
    }
    push(&mut lists, text, at);
    *rest = "";
    lists
}

/// Returns the name of a function without its return type, its parameters, and any text after them.
fn format_name(parts: &[ShortNamePart<'_>], detail: ArgumentDetail<'_>) -> String {
    let mut name = String::new();
    for (at, part) in parts.iter().enumerate() {
        let ShortNamePart::Group('(', inner) = part else {
            match part {
                ShortNamePart::Text(text) => {
                    let text = match text.find(" [clone ") {
                        Some(end) => &text[..end],
                        None => text,
                    };
                    // This `const` is that of a member function which contains this one.
                    let text = match text.strip_prefix(" const") {
                        Some(rest) if rest.starts_with("::") => rest,
                        _ => text,
                    };
                    let own = without_return_type(&mut name, text);
                    if name.is_empty() {
                        detail.restart();
                    }
                    name.push_str(own);
                }
                ShortNamePart::Group(bracket, inner) => {
                    push_group(&mut name, *bracket, inner, detail)
                }
            }
            continue;
        };
        // `main::(eval)` is a name of Perl's.
        if is_anonymous(inner) || name.ends_with("::") {
            push_group(&mut name, '(', inner, detail);
            continue;
        }
        let next = match parts.get(at + 1) {
            Some(ShortNamePart::Text(text)) => *text,
            _ => "",
        };
        // These are the parameters of a function that contains this one, or an expression in a
        // return type.
        let is_inner =
            next.starts_with("::") || next.starts_with(" const::") || name.ends_with("decltype ");
        if !is_inner {
            break;
        }
        if detail.has_outer_parameters && !name.ends_with("decltype ") {
            push_group(&mut name, '(', inner, detail);
        }
    }
    let name = without_versions(name);
    match name.strip_suffix("::operator()") {
        Some(lambda) if lambda.ends_with('}') => lambda.to_string(),
        _ => name.trim().to_string(),
    }
}

/// Removes the return type from a name that is read in parts. `name` has the parts so far, and
/// `text` is the next part. If a blank in `text` ends a return type, clears `name`, and returns the
/// rest of `text` after the blank. If `text` begins with a special prefix such as `vtable for `,
/// appends the prefix to `name`, and returns the rest.
fn without_return_type<'t>(name: &mut String, text: &'t str) -> &'t str {
    const SPECIAL_PREFIXES: &[&str] = &[
        "non-virtual thunk to ",
        "virtual thunk to ",
        "covariant return thunk to ",
        "vtable for ",
        "guard variable for ",
        "TLS init function for ",
        "TLS wrapper function for ",
    ];
    if let Some(special) = SPECIAL_PREFIXES
        .iter()
        .find(|special| text.starts_with(**special))
    {
        name.push_str(special);
        return &text[special.len()..];
    }
    // These are names such as `operator bool`, `operator new` and `operator<< <int>`.
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut operators = text.match_indices("operator").map(|(at, _)| at);
    let operator = operators.find(|&at| {
        let after = &text[at + "operator".len()..];
        !text[..at].ends_with(is_word) && !after.starts_with(is_word)
    });
    let operator = operator.unwrap_or(text.len());
    if let Some(blank) = text[..operator].rfind(' ')
        && !text[..blank].ends_with("const")
    {
        name.clear();
        return &text[blank + 1..];
    }
    text
}

fn without_versions(name: String) -> String {
    match name.contains("std::__") {
        true => VERSION_NAMESPACES
            .iter()
            .fold(name, |name, (long, short)| name.replace(long, short)),
        false => name,
    }
}
