//! Finds the names of a script: which words are variables, and which of them the script declares.

use std::collections::BTreeSet;

use crate::tokens::{ScriptToken, TokenKind};

/// The role of a word in a script.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NameRole {
    Variable,
    /// A field: the word follows a dot, or is a key of an object.
    Key,
    /// A key and a variable at once: `{name}` in an object or a pattern.
    Both,
}

/// Words of the language, which are never renamed.
pub(crate) const RESERVED_WORDS: &str = "await async break case catch class const constructor continue \
    default delete do else export extends false finally for function if import in instanceof let \
    new null of return static super switch this throw true try typeof undefined var void while \
    with yield arguments eval name";
const DECLARATION_WORDS: &[&str] = &["function", "const", "let", "class"];

/// Returns the text of the nearest token that is no gap, before `at` (`step` is -1) or after it
/// (1).
pub(crate) fn near_text(parts: &[ScriptToken], at: usize, step: isize) -> &str {
    near_token(parts, at, step).map_or("", |token| &token.text)
}

fn near_token(parts: &[ScriptToken], at: usize, step: isize) -> Option<&ScriptToken> {
    let next = |at: usize| at.checked_add_signed(step).filter(|at| *at < parts.len());
    std::iter::successors(next(at), |at| next(*at))
        .map(|at| &parts[at])
        .find(|token| !token.is_gap())
}

/// Returns the role of each token; `None` for tokens that are no names.
pub(crate) fn roles(parts: &[ScriptToken]) -> Vec<Option<NameRole>> {
    let reserved: BTreeSet<&str> = RESERVED_WORDS.split_whitespace().collect();
    let mut braces = Vec::new();
    let mut found = vec![None; parts.len()];
    for (i, token) in parts.iter().enumerate() {
        if token.opens() {
            braces.push(token.text == "{" && is_object(parts, i));
        } else if token.closes() {
            braces.pop();
        }
        if token.kind != TokenKind::Word || reserved.contains(token.text.as_str()) {
            continue;
        }
        let (before, after) = (near_text(parts, i, -1), near_text(parts, i, 1));
        let in_object = braces.last() == Some(&true) && matches!(before, "{" | "," | "async");
        found[i] = Some(
            if matches!(before, "." | "?.") || in_object && matches!(after, ":" | "(") {
                NameRole::Key
            } else if in_object && matches!(after, "," | "}" | "=") {
                NameRole::Both
            } else {
                NameRole::Variable
            },
        );
    }
    found
}

/// Whether a brace opens an object or a pattern, and not a block or a class.
fn is_object(parts: &[ScriptToken], at: usize) -> bool {
    let words: Vec<&ScriptToken> = parts[at.saturating_sub(6)..at]
        .iter()
        .filter(|token| !token.is_gap())
        .collect();
    let is_class =
        words.len() > 1 && matches!(words[words.len() - 2].text.as_str(), "class" | "extends");
    let opens_block = matches!(
        near_text(parts, at, -1),
        ")" | "=>" | "else" | "try" | "finally" | "do" | ";" | "{" | "}" | ""
    );
    !is_class && !opens_block
}

/// Returns the names that the script itself declares.
pub(crate) fn declared_names(parts: &[ScriptToken], role: &[Option<NameRole>]) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for i in (0..parts.len()).filter(|i| role[*i].is_some()) {
        if DECLARATION_WORDS.contains(&near_text(parts, i, -1)) || near_text(parts, i, 1) == "=>" {
            names.insert(parts[i].text.clone());
        }
    }
    for (start, end) in patterns(parts) {
        for i in start + 1..end {
            if matches!(role[i], Some(NameRole::Variable | NameRole::Both))
                && matches!(near_text(parts, i, -1), "(" | "," | "[" | "{" | ":" | "...")
                && matches!(near_text(parts, i, 1), "," | ")" | "]" | "}" | "=")
            {
                names.insert(parts[i].text.clone());
            }
        }
    }
    names
}

/// Returns the ranges of brackets in which names are declared: parameters and `const [a, b]`.
fn patterns(parts: &[ScriptToken]) -> Vec<(usize, usize)> {
    let (mut opened, mut found) = (Vec::new(), Vec::new());
    for (i, token) in parts.iter().enumerate() {
        if token.opens() {
            opened.push(i);
        } else if token.closes()
            && let Some(start) = opened.pop()
        {
            let (before, after) = (near_text(parts, start, -1), near_text(parts, i, 1));
            let is_body = after == "{" && !matches!(before, "if" | "for" | "while" | "switch");
            let is_list = token.text == ")" && (after == "=>" || is_body);
            if is_list || matches!(before, "const" | "let") {
                found.push((start, i));
            }
        }
    }
    found
}

/// Numbers the top-level statements of the script, and finds the names that they declare for the
/// whole script.
pub(crate) fn statements(parts: &[ScriptToken]) -> Result<(Vec<usize>, BTreeSet<String>), String> {
    let (mut depth, mut number) = (0, 0);
    let (mut numbers, mut names) = (Vec::with_capacity(parts.len()), BTreeSet::new());
    for (i, token) in parts.iter().enumerate() {
        depth += i32::from(token.opens()) - i32::from(token.closes());
        // The script is wrapped in a function in parentheses, so its top level is at depth 2.
        if depth == 2
            && token.kind == TokenKind::Word
            && DECLARATION_WORDS.contains(&token.text.as_str())
        {
            let name = near_token(parts, i, 1).filter(|next| next.kind == TokenKind::Word);
            let name = name.ok_or("a pattern or a generator at the top level is not possible")?;
            number += 1;
            names.insert(name.text.clone());
        }
        if depth == 2 && token.text == "," {
            return Err(format!(
                "two names in one statement at the top level are not possible: {}",
                near_text(parts, i, 1)
            ));
        }
        numbers.push(number);
    }
    Ok((numbers, names))
}
