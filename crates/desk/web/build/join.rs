//! Joins the scripts and the styles that page/order.txt lists.
//!
//! The rule for scripts. It works on whole lines, in the order of order.txt:
//!  1. A line that starts with `import ` begins an import. It is dropped, and so are the lines
//!     after it up to the first one that ends in `;`.
//!  2. The word `export ` at the start of a line is dropped; the rest of the line stays.
//!  3. White space at the start of a line is dropped. Then a line is dropped if it is empty or
//!     starts with `//`.
//!  4. The remaining lines of all files are joined with line feeds and wrapped in
//!     `(() => {` `'use strict';` … `})();`.
//!
//! So a script must not have: a default export, `export {`, `export *`, `import *`, an import that
//! renames, a text over several lines (in backquotes), or a top-level name that another file has,
//! too. Such a script is refused. Then squeeze.rs makes the joined script smaller.
//!
//! The rule for styles: white space at the start of a line is dropped, and so are empty lines, line
//! feeds, spaces beside signs, and comments from `/*` at the start of a line to `*/` at its end or
//! at the end of a later one.

use std::collections::BTreeMap;
use std::path::Path;

use crate::squeeze::squeeze;
use crate::tokens::{ScriptToken, TokenKind, tokens};

/// Names of the browser that the scripts use without a qualifier.
const BROWSER_NAMES: &str = "AbortController Array Blob Boolean CSS DataView DecompressionStream Error \
    Event Float64Array Infinity Int32Array JSON Map Math Number Object Promise RegExp \
    ResizeObserver Response Set String TextDecoder URLSearchParams Uint8Array addEventListener \
    atob clearTimeout devicePixelRatio document fetch history innerHeight innerWidth isFinite \
    isNaN location matchMedia navigator performance requestAnimationFrame setInterval setTimeout";
/// Names of fields that only the scripts use: they occur neither in the browser nor in the data,
/// and are not looked up by a text.
const SCRIPT_FIELDS: &str = "question model palette state isDiff measures write functionName functionCount \
    isOutermost nodeToTree moduleName moduleText moduleOf familyLabel samplesOf companion families \
    inks names shape trees mirror isLibrary keeper isLive redrawTools pivotOn toggleOwn toggleSql \
    toggleTheme saved classText labelOf kept allowsNothing hovered hasSearch openOther whole \
    weight series app tree brush onQuestion applyTheme times depth fileOf isHeap \
    addressOf active fields found destroy full part layout chain";

/// Returns the page's script, minified.
pub(crate) fn script(page: &Path) -> Result<String, String> {
    let small = squeeze(&plain_script(page)?, BROWSER_NAMES, SCRIPT_FIELDS)?;
    refuse_text("the script", small, &["</script", "<!--"])
}

/// Returns the page's script in one piece, not minified.
pub(crate) fn plain_script(page: &Path) -> Result<String, String> {
    let mut owners = BTreeMap::new();
    let mut body = String::new();
    for (name, text) in files(page, ".js")? {
        check_script(&name, &text, &mut owners).map_err(|why| format!("{name}: {why}"))?;
        for line in script_lines(&text) {
            body.push_str(line);
            body.push('\n');
        }
    }
    Ok(format!("(() => {{\n'use strict';\n{body}}})();"))
}

/// Returns the page's style, minified.
pub(crate) fn style(page: &Path) -> Result<String, String> {
    let mut out = String::new();
    for (name, text) in files(page, ".css")? {
        let mut in_comment = false;
        for line in text.lines().map(str::trim) {
            if in_comment || line.starts_with("/*") {
                in_comment = !line.ends_with("*/");
            } else if line.is_empty() || line.ends_with(['{', '}', ';', ':', ',']) {
                out.push_str(&small_style(line));
            } else {
                return Err(format!("{name}: this line goes on in the next one: {line}"));
            }
        }
    }
    refuse_text("the style", out.replace(";}", "}"), &["</style", "/*"])
}

/// Removes the spaces beside the signs of a line.
fn small_style(line: &str) -> String {
    let is_sign = |c: &char| "{};:,>".contains(*c);
    let characters: Vec<char> = line.chars().chain([' ']).collect();
    let mut out = String::new();
    let mut rest = characters.as_slice();
    loop {
        rest = match rest {
            [] => return out.trim().to_owned(),
            [' ', sign, ' ', after @ ..] | [sign, ' ', after @ ..] if is_sign(sign) => {
                out.push(*sign);
                after
            }
            [first, after @ ..] => {
                out.push(*first);
                after
            }
        };
    }
}

fn refuse_text(what: &str, text: String, refused: &[&str]) -> Result<String, String> {
    match refused
        .iter()
        .find(|bad| text.to_lowercase().contains(**bad))
    {
        Some(bad) => Err(format!("{what} has {bad}, which would end it")),
        None => Ok(text),
    }
}

/// Reads the files that order.txt lists. Fails if the folders contain other files.
fn files(page: &Path, end: &str) -> Result<Vec<(String, String)>, String> {
    let read = |name: &str| {
        let text = std::fs::read_to_string(page.join(name));
        let text = text.map_err(|why| format!("{name} cannot be read: {why}"))?;
        refuse_text(name, text, &["\r"])
    };
    let order = read("order.txt")?;
    let names: Vec<&str> = order.split_whitespace().collect();
    for folder in ["script", "style"] {
        let entries = std::fs::read_dir(page.join(folder)).map_err(|why| why.to_string())?;
        for entry in entries.flatten() {
            let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if !names.contains(&name.as_str()) {
                return Err(format!("{name} is not in order.txt"));
            }
        }
    }
    let wanted = names.into_iter().filter(|name| name.ends_with(end));
    wanted
        .map(|name| Ok((name.to_owned(), read(name)?)))
        .collect()
}

/// Returns the lines of a script that are kept.
fn script_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut in_import = false;
    text.split('\n').filter_map(move |line| {
        if in_import || line.starts_with("import ") {
            in_import = !line.ends_with(';');
            return None;
        }
        let line = line.strip_prefix("export ").unwrap_or(line).trim();
        (!line.is_empty() && !line.starts_with("//")).then_some(line)
    })
}

/// Refuses scripts that the line-based rule would handle wrongly.
fn check_script(
    name: &str,
    text: &str,
    owners: &mut BTreeMap<String, String>,
) -> Result<(), String> {
    for bad in ["export default", "export {", "export *", "import *"] {
        if text.split('\n').any(|line| line.starts_with(bad)) {
            return Err(format!("{bad} is not possible"));
        }
    }
    for import in text.split("\nimport ").skip(1) {
        let names = import.split(" from ").next().unwrap_or_default();
        if names.split_whitespace().any(|word| word == "as") {
            return Err(format!("another name is not possible: import {names}"));
        }
    }
    if let Some(line) = text
        .split('\n')
        .find(|line| line.matches('`').count() % 2 == 1)
    {
        return Err(format!("a text over several lines: {line}"));
    }
    for found in text.split('\n').filter_map(top_name) {
        if let Some(owner) = owners.insert(found.to_owned(), name.to_owned()) {
            return Err(format!("{found} is also in {owner}"));
        }
    }
    let kept: Vec<&str> = script_lines(text).collect();
    check_ends(&tokens(&kept.join("\n"))?)
}

/// Returns the name that a top-level line declares.
fn top_name(line: &str) -> Option<&str> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let line = line.strip_prefix("async ").unwrap_or(line);
    let rest = ["function* ", "function ", "const ", "let ", "class "]
        .iter()
        .find_map(|word| line.strip_prefix(word))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
    Some(&rest[..end.unwrap_or(rest.len())]).filter(|name| !name.is_empty())
}

/// Refuses a statement without a semicolon, as far as it can be recognized: a line that ends in a
/// value before a line that begins with a word.
fn check_ends(parts: &[ScriptToken]) -> Result<(), String> {
    let solid: Vec<&ScriptToken> = parts
        .iter()
        .filter(|token| token.kind != TokenKind::Space)
        .collect();
    for three in solid.windows(3) {
        let [before, line, after] = three else {
            continue;
        };
        let is_value = matches!(
            before.kind,
            TokenKind::Number | TokenKind::Text | TokenKind::Regex | TokenKind::Raw
        ) || before.text == "]"
            || before.kind == TokenKind::Word && before.text != "else";
        if line.kind == TokenKind::Line
            && is_value
            && after.kind == TokenKind::Word
            && !matches!(after.text.as_str(), "in" | "of" | "instanceof")
        {
            return Err(format!("a semicolon is missing before {}", after.text));
        }
    }
    Ok(())
}
