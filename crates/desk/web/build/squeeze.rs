//! Makes a joined script smaller without changing its effect, in two steps on its tokens.
//!
//! Step 1, signs. A gap is removed unless it stands between two characters of words, two `+` or two
//! `-`. So every statement must end in a semicolon or a brace. A comma before a closing bracket is
//! removed, and so is a semicolon before a closing brace. `const` becomes `let`, `'a' + 'b'`
//! becomes `'ab'`, and 0.5 becomes .5.
//!
//! Step 2, names. A variable that the script declares gets a short name. A name that is declared
//! for the whole script gets two letters, the same everywhere. Any other name gets one letter,
//! which is unique within one function (or const, or class) of the top level. So no two names of
//! one scope become equal. `{name}` becomes `{name:n}`. Names of the browser (`foreign`) stay.
//! Texts are not changed, so the script must not look up a variable by its name. Fields in the list
//! `ours` get `$` and a character, everywhere.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::names::{NameRole, RESERVED_WORDS, declared_names, near_text, roles, statements};
use crate::tokens::{ScriptToken, TokenKind, in_word, tokens};

const FIRST_CHARACTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ$_";
const MORE_CHARACTERS: &str = "0123456789";

/// Returns a smaller script. `foreign` has the browser's names that the script uses without a
/// qualifier. `ours` has the names of fields that only this script has.
pub(crate) fn squeeze(code: &str, foreign: &str, ours: &str) -> Result<String, String> {
    let parts = merge_texts(tokens(code)?);
    let role = roles(&parts);
    let names = short_names(&parts, &role, foreign)?;
    let fields = short_fields(&parts, ours)?;
    let mut out = String::with_capacity(code.len());
    for (i, token) in parts.iter().enumerate() {
        let text = token.text.as_str();
        let field = fields.get(text).map_or(text, String::as_str);
        match token.kind {
            TokenKind::Open | TokenKind::Close => {}
            TokenKind::Space | TokenKind::Line => {
                let (a, b) = (out.chars().last(), near_text(&parts, i, 1).chars().next());
                let in_words = |c: Option<char>| c.is_some_and(in_word);
                if in_words(a) && in_words(b) || a == b && matches!(a, Some('+' | '-')) {
                    out.push(' ');
                }
            }
            TokenKind::Sign if is_idle(text, near_text(&parts, i, 1)) => {}
            TokenKind::Number if text.starts_with("0.") && text.len() > 2 => {
                out.push_str(&text[1..])
            }
            TokenKind::Word => match role[i] {
                None if text == "const" => out.push_str("let"),
                None => out.push_str(text),
                Some(NameRole::Key) => out.push_str(field),
                Some(is) => {
                    let name = names[i].as_deref().unwrap_or(text);
                    if is == NameRole::Both && field != name {
                        out.push_str(field);
                        out.push(':');
                    }
                    out.push_str(name);
                }
            },
            _ => out.push_str(text),
        }
    }
    Ok(out)
}

/// Whether a comma or semicolon is needless, because a closing bracket follows.
fn is_idle(text: &str, next: &str) -> bool {
    match text {
        "," => matches!(next, "}" | ")" | "]"),
        ";" => next == "}",
        _ => false,
    }
}

/// Joins `'a' + 'b'` to one text.
fn merge_texts(mut parts: Vec<ScriptToken>) -> Vec<ScriptToken> {
    const TOKENS_BEFORE_TEXT: &[&str] = &["(", ",", "=", ":", "+", "?", "[", "=>", "return"];
    for i in 0..parts.len() {
        if parts[i].kind != TokenKind::Text
            || !TOKENS_BEFORE_TEXT.contains(&near_text(&parts, i, -1))
        {
            continue;
        }
        let end = parts.len().min(i + 8);
        let mut ahead = (i + 1..end).filter(|k| !parts[*k].is_gap());
        let (Some(plus), Some(text), Some(then)) = (ahead.next(), ahead.next(), ahead.next())
        else {
            continue;
        };
        let quote = &parts[i].text[..1];
        if parts[plus].text == "+"
            && parts[text].kind == TokenKind::Text
            && parts[text].text.starts_with(quote)
            && !matches!(parts[then].text.as_str(), "." | "?." | "[")
        {
            let first = parts[i].text.strip_suffix(quote).unwrap_or_default();
            parts[text].text = first.to_owned() + &parts[text].text[1..];
            for gap in &mut parts[i..text] {
                gap.kind = TokenKind::Space;
                gap.text.replace_range(.., " ");
            }
        }
    }
    parts
}

/// Returns the new name of each token that is a variable of the script.
fn short_names(
    parts: &[ScriptToken],
    role: &[Option<NameRole>],
    foreign: &str,
) -> Result<Vec<Option<String>>, String> {
    let foreign: BTreeSet<&str> = foreign.split_whitespace().collect();
    let mut own = declared_names(parts, role);
    own.retain(|name| !foreign.contains(name.as_str()));
    let (number, shared) = statements(parts)?;
    let mut taken: BTreeSet<&str> = RESERVED_WORDS.split_whitespace().chain(foreign).collect();
    // Names of the whole script are counted under the key `None`.
    let mut counts: BTreeMap<Option<usize>, Vec<(&str, usize)>> = BTreeMap::new();
    let place = |i: usize| (!shared.contains(&parts[i].text)).then_some(number[i]);
    for i in (0..parts.len()).filter(|i| role[*i].is_some()) {
        let word = parts[i].text.as_str();
        if !own.contains(word) {
            taken.insert(word);
        } else if role[i] != Some(NameRole::Key) {
            let found = counts.entry(place(i)).or_default();
            match found.iter_mut().find(|(known, _)| *known == word) {
                Some((_, count)) => *count += 1,
                None => found.push((word, 1)),
            }
        }
    }
    let one: Vec<String> = FIRST_CHARACTERS.chars().map(String::from).collect();
    let unused = |short: &String| !taken.contains(short.as_str());
    let is_bare = |i: usize| !matches!(role[i], None | Some(NameRole::Key));
    let mut bare = (0..parts.len())
        .filter(|i| is_bare(*i))
        .map(|i| &parts[i].text);
    if let Some(word) = bare.find(|word| word.len() == 1 && !own.contains(*word)) {
        return Err(format!(
            "{word} is used and not declared, so names cannot be shortened"
        ));
    }
    let second = || FIRST_CHARACTERS.chars().chain(MORE_CHARACTERS.chars());
    let pairs: Vec<String> = one
        .iter()
        .flat_map(|a| second().map(move |b| format!("{a}{b}")))
        .filter(unused)
        .collect();
    let shared_count = counts.get(&None).map_or(0, Vec::len);
    if pairs.len() < shared_count {
        return Err("there are too many names for two letters".to_owned());
    }
    let (of_all, rest) = pairs.split_at(shared_count);
    let mut short = BTreeMap::new();
    for (place, mut found) in counts {
        found.sort_by_key(|(_, count)| Reverse(*count));
        let free: Vec<&String> = match place {
            None => of_all.iter().collect(),
            Some(_) => one.iter().chain(rest).collect(),
        };
        for ((word, _), name) in found.into_iter().zip(free) {
            short.insert((place, word), name.clone());
        }
    }
    let name_of = |i: usize| short.get(&(place(i), parts[i].text.as_str())).cloned();
    let named = |i: usize| is_bare(i).then(|| name_of(i)).flatten();
    Ok((0..parts.len()).map(named).collect())
}

/// Returns the new name of each field that only this script has.
fn short_fields(parts: &[ScriptToken], ours: &str) -> Result<BTreeMap<String, String>, String> {
    let letters = FIRST_CHARACTERS
        .trim_end_matches(['$', '_'])
        .chars()
        .chain(MORE_CHARACTERS.chars());
    let words: Vec<&str> = ours.split_whitespace().collect();
    let fields: BTreeMap<String, String> = words
        .iter()
        .zip(letters)
        .map(|(word, letter)| ((*word).to_owned(), format!("${letter}")))
        .collect();
    if fields.len() < words.len() {
        return Err("a field is listed twice, or there are more than 62".to_owned());
    }
    let is_text = |token: &&ScriptToken| {
        token.kind == TokenKind::Text && fields.contains_key(&token.text[1..token.text.len() - 1])
    };
    match parts.iter().find(is_text) {
        Some(text) => Err(format!(
            "{} is a text, so that field must keep its name",
            text.text
        )),
        None => Ok(fields),
    }
}
