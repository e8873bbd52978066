//! Finds the differences between names that have equal short names.

use std::collections::HashSet;

use unicode_width::UnicodeWidthStr;

use super::arguments::{ArgumentDetail, argument, count_kept_arguments, is_anonymous};
use super::{ShortNamePart, cut, is_nested_well, is_of_cpp_or_rust, parse, without_versions};

/// Maximum number of types in a name that are searched for differences.
const MAX_SEARCHED_TYPES: usize = 64;

/// Returns the names in `all` whose short names may equal the short name of a name in `shown`. If a
/// report shows only one of two such names, the reader must see which one it is.
pub fn similar_names<'s, 'n>(
    shown: impl Iterator<Item = &'s str>,
    all: impl Iterator<Item = &'n str>,
) -> Vec<&'n str> {
    let words: HashSet<&str> = shown.map(last_word).collect();
    all.filter(|name| words.contains(last_word(name))).collect()
}

/// Returns the last word of a function's name, which is roughly the name without scopes, arguments
/// and parameters. Names with equal short names have equal last words.
fn last_word(name: &str) -> &str {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '~';
    let (mut depth, mut start, mut last) = (0usize, None, "");
    for (at, c) in name.char_indices() {
        match c {
            c if depth == 0 && is_word(c) => {
                start.get_or_insert(at);
                continue;
            }
            '<' | '(' | '{' | '[' => depth += 1,
            '>' | ')' | '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if let Some(start) = start.take() {
            match &name[start..at] {
                "const" => {}
                word => last = word,
            }
        }
    }
    match start.map(|start| &name[start..]) {
        None | Some("const") => last,
        Some(word) => word,
    }
}

/// Returns the differences between these names, each in at most `width` columns. A difference
/// consists of as few types from the arguments and parameters as needed to distinguish the names.
/// The caller numbers differences that are equal after they are cut.
pub(super) fn differences(names: &[&str], width: usize) -> Vec<String> {
    let cut_all = |texts: Vec<String>| texts.iter().map(|text| cut(text, width)).collect();
    if !names
        .iter()
        .all(|name| is_of_cpp_or_rust(name) && is_nested_well(name))
    {
        return cut_all(between(names));
    }
    let all: Vec<Vec<String>> = names.iter().map(|name| types(name)).collect();
    let text = |name: usize, at: usize| all[name].get(at).map_or("", String::as_str);
    let texts_at = |at: usize| (0..all.len()).map(move |name| text(name, at));
    let most = all.iter().map(Vec::len).max().unwrap_or(0);
    // It takes the shortest types that tell all names apart.
    let mut order: Vec<usize> = (0..most.min(MAX_SEARCHED_TYPES)).collect();
    order.retain(|&at| texts_at(at).any(|other| other != text(0, at)));
    order.sort_by_key(|&at| texts_at(at).map(str::width).max());
    let mut chosen = Vec::<usize>::new();
    let joined = |chosen: &[usize]| -> Vec<String> {
        let of = |name: usize| {
            let texts = chosen
                .iter()
                .map(|&at| text(name, at))
                .filter(|text| !text.is_empty());
            texts.collect::<Vec<_>>().join(", ")
        };
        (0..all.len()).map(of).collect()
    };
    let count = |texts: &[String]| texts.iter().collect::<HashSet<_>>().len();
    let mut reported = 1;
    for at in order {
        chosen.push(at);
        chosen.sort_unstable();
        match count(&joined(&chosen)) {
            more if more > reported => reported = more,
            _ => chosen.retain(|&other| other != at),
        }
        if reported == all.len() {
            break;
        }
    }
    match chosen.is_empty() {
        true => cut_all(between(names)),
        false => cut_all(joined(&chosen)),
    }
}

/// Returns the types and values in a name's arguments and parameters, from left to right, without
/// defaults: `std::pair`, `int const` and `A` for `f<std::pair<int const, A>>()`.
fn types(name: &str) -> Vec<String> {
    let parts = parse(name);
    let mut all = Vec::new();
    for one in arguments(&parts) {
        let text = without_versions(argument(one, ArgumentDetail::ALL));
        let each = text
            .split(['<', '>', '(', ')', '{', '}', ','])
            .map(str::trim);
        all.extend(each.filter(|text| !text.is_empty()).map(str::to_string));
    }
    all
}

/// Returns a name's template arguments and parameters, one after the other, without defaults.
fn arguments<'p, 'n>(parts: &'p [ShortNamePart<'n>]) -> Vec<&'p [ShortNamePart<'n>]> {
    let mut all = Vec::new();
    let mut before = "";
    for part in parts {
        match part {
            ShortNamePart::Text(text) => before = text,
            ShortNamePart::Group('(', inner) if is_anonymous(inner) => {}
            ShortNamePart::Group('{', inner) => {
                all.extend(inner.iter().flat_map(|one| arguments(one)));
            }
            ShortNamePart::Group(bracket, inner) => {
                let kept = match bracket {
                    '<' => count_kept_arguments(before, inner),
                    _ => inner.len(),
                };
                all.extend(inner[..kept].iter().map(Vec::as_slice));
            }
        }
    }
    all
}

/// Returns the middle of each name, between the common beginning and the common end of all names,
/// extended to whole words.
fn between(names: &[&str]) -> Vec<String> {
    let common = |a: &str, b: &str| a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count();
    let backwards = |a: &str, b: &str| {
        let pairs = a.chars().rev().zip(b.chars().rev());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let others = || names[1..].iter().filter(|name| **name != names[0]);
    let prefix = others()
        .map(|name| common(names[0], name))
        .min()
        .unwrap_or(0);
    let suffix = others()
        .map(|name| backwards(names[0], name))
        .min()
        .unwrap_or(0);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    names
        .iter()
        .map(|name| {
            let all: Vec<char> = name.chars().collect();
            let mut start = prefix.min(all.len());
            while start > 0 && is_word(all[start - 1]) {
                start -= 1;
            }
            let mut end = all.len().saturating_sub(suffix).max(start);
            while end < all.len() && is_word(all[end]) {
                end += 1;
            }
            all[start..end]
                .iter()
                .collect::<String>()
                .trim()
                .to_string()
        })
        .collect()
}
