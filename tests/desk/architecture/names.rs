//! Names and first words: what a newcomer reads first.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use heapprof_tests::harness::{root, sources};
use regex::{Captures, Regex};

use super::relative;

/// Types whose names end like a participle and are nouns, or are the word of the field.
const NOUNS: &[&str] = &["Token", "Seed", "Speed", "Feed"];

/// The lines of code of a file, without comments and texts, each with its place.
fn code(path: &std::path::Path) -> Vec<(String, String)> {
    // Comments, texts and characters are not names. A text of several lines keeps their number.
    static OTHER: LazyLock<Regex> = LazyLock::new(|| {
        let other =
            r###"(?s)//[^\n]*|r##".*?"##|r#".*?"#|\br"[^"]*"|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])'"###;
        Regex::new(other).unwrap()
    });
    let name = relative(path);
    let text = std::fs::read_to_string(path).unwrap();
    let text = OTHER.replace_all(&text, |found: &Captures<'_>| {
        "\n".repeat(found[0].matches('\n').count())
    });
    let lines = text.lines().enumerate();
    lines
        .map(|(i, line)| (format!("{name}:{}", i + 1), line.to_string()))
        .collect()
}

/// Files that people write, beside the generated one.
fn own_files() -> Vec<std::path::PathBuf> {
    let all = sources().into_iter();
    all.filter(|file| !file.ends_with("src/proto.rs")).collect()
}

#[test]
fn constants_and_functions_say_what_they_are() {
    let constant = Regex::new(r"\b(MOST|LONGEST|PATIENCE|PAUSE|AT_ONCE)\b").unwrap();
    let function = Regex::new(r"\bfn (of|look)\b").unwrap();
    let old_term = Regex::new(
        r"(?i)(\b|_)(books|held_up|untold|is_apart)(\b|_)|\b((is|was)_)?told\b|[a-z]Books\b|\bBooks[A-Z]",
    )
    .unwrap();
    let mut found = Vec::new();
    for file in own_files() {
        let is_test = file.starts_with(root().join("tests"));
        for (place, line) in code(&file) {
            let is_old = old_term.is_match(&line) && !is_test;
            if is_old || constant.is_match(&line) || function.is_match(&line) {
                found.push(format!("{place}: {}", line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// A type's name is read alone, in an editor's list. It may not be a bare participle, few types may
/// share a name with two others, and few may be one bare word.
#[test]
fn types_are_nouns() {
    let is_type = Regex::new(
        r"^\s*(?:pub(?:\([a-z]+\))? )?(?:unsafe )?(?:struct|enum|trait|union|type) ([A-Z]\w*)",
    )
    .unwrap();
    let participle = Regex::new(r"^[A-Z][a-z]+(ed|en)$").unwrap();
    let irregular = [
        "Known", "Found", "Kept", "Held", "Told", "Said", "Shown", "Read", "Left", "Led", "Cut",
        "Drawn", "Done", "Gone", "Made", "Met", "Sent", "Set", "Built", "Sought", "Thrown",
    ];
    let mut names = BTreeMap::<String, usize>::new();
    let mut participles = Vec::new();
    let crates = root().join("crates");
    for file in own_files().iter().filter(|file| file.starts_with(&crates)) {
        if file.ends_with("tests.rs") || file.iter().any(|part| part == "tests") {
            continue;
        }
        for (place, line) in code(file) {
            let Some(named) = is_type.captures(&line) else {
                continue;
            };
            let name = &named[1];
            *names.entry(name.to_string()).or_default() += 1;
            let is_bare = participle.is_match(name) || irregular.contains(&name);
            if is_bare && !NOUNS.contains(&name) {
                participles.push(format!("{place}: {name}"));
            }
        }
    }
    assert!(participles.is_empty(), "{}", participles.join("\n"));
    let types: usize = names.values().sum();
    let shared: usize = names.values().filter(|&&uses| uses >= 3).sum();
    let word = Regex::new("^[A-Z][a-z0-9]+$").unwrap();
    let words: usize = names
        .iter()
        .filter(|(name, _)| word.is_match(name))
        .map(|(_, n)| n)
        .sum();
    assert!(
        shared * 10 <= types,
        "{shared} of {types} types share a name with two others"
    );
    assert!(
        words * 4 <= types,
        "{words} of {types} types are one bare word"
    );
}

/// "So many lines are read." says less than "How many lines are read at a time."
#[test]
fn comments_do_not_begin_with_so_many() {
    let opener = Regex::new(r"^\s*//[/!]? So (many|often|long|much|far)\b").unwrap();
    let mut found = Vec::new();
    for file in own_files() {
        let text = std::fs::read_to_string(&file).unwrap();
        let mut is_inside = false;
        for (i, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if is_comment && !is_inside && opener.is_match(line) {
                found.push(format!("{}:{}: {}", relative(&file), i + 1, line.trim()));
            }
            is_inside = is_comment;
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
