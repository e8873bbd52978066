//! Shortens long function names. A short name has no parameters, no return type and no default
//! template arguments, and as many levels of the other template arguments as fit a line.
//!
//! Only text and Markdown, which people read, have short names. The data of rows has the full
//! names. If different names have equal short names, the differences are added to them.

mod disambiguation;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use regex::Regex;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use disambiguation::differences;
pub use disambiguation::similar_names;

/// Classes that are default template arguments. The flag marks a class that is a default only if
/// its own argument equals the first argument of the template.
const DEFAULT_ARGUMENTS: &[(&str, bool)] = &[
    ("std::allocator<", false),
    ("std::less<", true),
    ("std::hash<", true),
    ("std::equal_to<", true),
    ("std::default_delete<", true),
    ("std::char_traits<", true),
    ("alloc::alloc::Global", false),
    ("std::hash::random::RandomState", false),
    ("std::collections::hash::map::RandomState", false),
];

/// Templates of which all arguments are kept, because none of them is a default.
const TEMPLATES_WITHOUT_DEFAULTS: &[&str] =
    &["pair", "tuple", "variant", "function", "integral_constant"];

/// Template instances that have a shorter name, each with the shorter name.
const TEMPLATE_ALIASES: &[(&str, &str)] = &[
    ("std::basic_string<char>", "std::string"),
    ("std::basic_string<wchar_t>", "std::wstring"),
    ("std::basic_string_view<char>", "std::string_view"),
    ("std::basic_ostream<char>", "std::ostream"),
    ("std::basic_istream<char>", "std::istream"),
    ("std::basic_iostream<char>", "std::iostream"),
    ("std::basic_ifstream<char>", "std::ifstream"),
    ("std::basic_ofstream<char>", "std::ofstream"),
    ("std::basic_stringstream<char>", "std::stringstream"),
    ("std::basic_ostringstream<char>", "std::ostringstream"),
    ("std::basic_filebuf<char>", "std::filebuf"),
    ("std::basic_stringbuf<char>", "std::stringbuf"),
];

/// Namespaces that contain a library's version, with their replacements.
const VERSION_NAMESPACES: &[(&str, &str)] = &[("std::__cxx11::", "std::"), ("std::__1::", "std::")];

/// Shortens names: removes parameters, return types and default template arguments. `width` returns
/// the maximum number of columns for the name at an index. Different names have different short
/// names.
pub fn shorten(names: &[&str], width: impl Fn(usize) -> usize) -> Vec<String> {
    let both = names.iter().enumerate();
    let mut short: Vec<String> = both
        .map(|(at, name)| shorten_one(name, width(at)))
        .collect();
    for all in groups_of_equal(names, &short) {
        let whole: Vec<&str> = all.iter().map(|&at| names[at]).collect();
        let with: Vec<String> = all
            .iter()
            .map(|&at| with_parameters(names[at], width(at)))
            .collect();
        let mut distinct = with.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let fits = |(at, name): (&usize, &String)| name.width() <= width(*at);
        // Overloads are told apart by their parameters, and instances of a template by what differs
        // in them.
        if distinct.len() == with.len() && all.iter().zip(&with).all(fits) {
            all.into_iter()
                .zip(with)
                .for_each(|(at, name)| short[at] = name);
            continue;
        }
        let least = all.iter().map(|&at| width(at)).min().unwrap_or(0);
        for (at, difference) in all.into_iter().zip(differences(&whole, least / 2)) {
            let room = width(at).saturating_sub(difference.width() + 3);
            short[at] = format!(
                "{} [{difference}]",
                cut(&shorten_one(names[at], room), room)
            );
        }
    }
    // What differs may have been cut out, and a number may make two groups equal.
    let mut number = 0;
    loop {
        let equal = groups_of_equal(names, &short);
        if equal.is_empty() {
            return short;
        }
        for at in equal.into_iter().flatten() {
            number += 1;
            let number = format!(" #{number}");
            short[at] = cut(&short[at], width(at).saturating_sub(number.len())) + &number;
        }
    }
}

/// Returns the groups of names that differ, but have equal short forms.
fn groups_of_equal(names: &[&str], short: &[String]) -> Vec<Vec<usize>> {
    let mut same: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, name) in short.iter().enumerate() {
        same.entry(name).or_default().push(at);
    }
    let differ = |all: &Vec<usize>| all.iter().any(|&at| names[at] != names[all[0]]);
    same.into_values().filter(differ).collect()
}

/// Shortens one name, and keeps as many levels of its template arguments as fit `width` columns.
pub fn shorten_one(name: &str, width: usize) -> String {
    if !is_of_cpp_or_rust(name) || !is_nested_well(name) {
        return cut(name, width);
    }
    let parts = parse(name);
    let mut short = String::new();
    for levels in [usize::MAX, 3, 2, 1, 0] {
        short = format_name(&parts, levels);
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
                write!(f, "; as a name, and no expression, it is {escaped:?}")
            }
            Self::Ellipsis => f.write_str(": … stands for what a short name leaves out"),
            Self::ShortName { short, whole } => write!(
                f,
                ": it is looked for in whole names, and {short:?} is short for {whole:?}"
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

/// Returns a function's short name with its parameters. The template arguments in the parameters
/// are shortened until the name fits, if possible.
fn with_parameters(name: &str, width: usize) -> String {
    let short = shorten_one(name, width);
    if !is_of_cpp_or_rust(name) || !is_nested_well(name) {
        return short;
    }
    let parts = parse(name);
    let at = parts
        .iter()
        .rposition(|part| matches!(part, ShortNamePart::Group('(', inner) if !is_anonymous(inner)));
    let Some(ShortNamePart::Group(_, inner)) = at.map(|at| &parts[at]) else {
        return short;
    };
    let mut whole = String::new();
    for levels in [usize::MAX, 2, 1, 0] {
        let inner: Vec<String> = inner.iter().map(|one| argument(one, levels)).collect();
        whole = format!("{short}({})", inner.join(", "));
        if whole.width() <= width {
            break;
        }
    }
    whole
}

/// Cuts out the middle of a text that is longer than `width` columns. The number of characters is
/// limited as well, because a text may have any number of marks without width.
pub fn cut(text: &str, width: usize) -> String {
    let most = width.saturating_mul(8).saturating_add(64);
    if text.len() <= most && text.width() <= width {
        return text.to_string();
    }
    // The end says more, as in a path, so it gets more room.
    let of_last = width.saturating_sub(1) * 2 / 3;
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
    let first = taken(&mut text.chars(), width.saturating_sub(1 + of_last));
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
fn format_name(parts: &[ShortNamePart<'_>], levels: usize) -> String {
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
                    name.push_str(own);
                }
                ShortNamePart::Group(bracket, inner) => {
                    push_group(&mut name, *bracket, inner, levels)
                }
            }
            continue;
        };
        // `main::(eval)` is a name of Perl's.
        if is_anonymous(inner) || name.ends_with("::") {
            push_group(&mut name, '(', inner, levels);
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

fn is_anonymous(inner: &[Vec<ShortNamePart<'_>>]) -> bool {
    matches!(inner, [one] if matches!(one[..], [ShortNamePart::Text("anonymous namespace")]))
}

fn push_group(name: &mut String, bracket: char, inner: &[Vec<ShortNamePart<'_>>], levels: usize) {
    match bracket {
        '{' => {
            name.push('{');
            for part in inner.first().into_iter().flatten() {
                match part {
                    ShortNamePart::Text(text) => name.push_str(text),
                    // A lambda is identified by its number and by what it is in.
                    ShortNamePart::Group('(', _) => {}
                    ShortNamePart::Group(bracket, inner) => {
                        push_group(name, *bracket, inner, levels)
                    }
                }
            }
            name.push('}');
        }
        // A bracket that begins a path holds a type and not arguments: `<Order as Drop>::drop`.
        '<' if !name.ends_with(|c: char| c.is_alphanumeric() || "_:<>=".contains(c)) => {
            let path: Vec<String> = inner.iter().map(|one| argument(one, levels)).collect();
            name.push_str(&format!("<{}>", path.join(", ")));
        }
        '<' => push_arguments(name, inner, levels),
        _ => {
            let inner: Vec<String> = inner.iter().map(|one| argument(one, levels)).collect();
            name.push_str(&format!("({})", inner.join(", ")));
        }
    }
}

fn push_arguments(name: &mut String, inner: &[Vec<ShortNamePart<'_>>], levels: usize) {
    // Rust writes two colons before the arguments.
    let plain = name.strip_suffix("::").map(str::len);
    if let Some(length) = plain {
        name.truncate(length);
    }
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let mut before = name.char_indices().rev();
    let start = before
        .find(|&(_, c)| !is_word(c))
        .map_or(0, |(at, c)| at + c.len_utf8());
    let kept = count_kept_arguments(&name[start..], inner);
    let plain = |arguments: &[String]| {
        without_versions(format!("{}<{}>", &name[start..], arguments.join(", ")))
    };
    let kept = &inner[..kept];
    let texts =
        |levels: usize| -> Vec<String> { kept.iter().map(|one| argument(one, levels)).collect() };
    let whole = plain(&texts(usize::MAX));
    let text = match TEMPLATE_ALIASES.iter().find(|(long, _)| *long == whole) {
        Some((_, alias)) => alias.to_string(),
        // This text exists already. Making it twice at each level would take forever.
        None if levels == usize::MAX => whole,
        None if levels == 0 => format!("{}<…>", &name[start..]),
        None => plain(&texts(levels - 1)),
    };
    name.truncate(start);
    name.push_str(&text);
}

/// Returns the number of a template's arguments without the defaults at the end. `before` is the
/// text before the arguments.
fn count_kept_arguments(before: &str, inner: &[Vec<ShortNamePart<'_>>]) -> usize {
    let before = before.strip_suffix("::").unwrap_or(before);
    let template = before.rsplit("::").next().unwrap_or_default();
    let is_default = |text: &str, first: &str| {
        DEFAULT_ARGUMENTS.iter().any(|&(default, of_first)| {
            let rest = text.strip_prefix(default);
            rest.is_some_and(|rest| !of_first || rest.strip_suffix('>') == Some(first))
        })
    };
    let whole: Vec<String> = inner.iter().map(|one| argument(one, usize::MAX)).collect();
    let mut kept = &whole[..];
    while !TEMPLATES_WITHOUT_DEFAULTS.contains(&template)
        && let [first, .., last] = kept
        && is_default(last, first)
    {
        kept = &kept[..kept.len() - 1];
    }
    kept.len()
}

/// Returns the text of one template argument, which is a type or a value.
fn argument(parts: &[ShortNamePart<'_>], levels: usize) -> String {
    let mut text = String::new();
    for part in parts {
        match part {
            ShortNamePart::Text(plain) => text.push_str(plain),
            ShortNamePart::Group('(', inner) if is_anonymous(inner) => {
                text.push_str("(anonymous namespace)");
            }
            ShortNamePart::Group(bracket, inner) => push_group(&mut text, *bracket, inner, levels),
        }
    }
    text.trim().to_string()
}
