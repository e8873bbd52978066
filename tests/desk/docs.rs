//! The docs can't become wrong: each example is run, and must print what the page shows.
//!
//! A block begins with ```` ```console ````, and its first line begins with `$ heapprof`. Words
//! after `console` are options. `exit=N` is the exit code. `stderr` means that the text is what was
//! printed to stderr. `recorded` runs the example in a folder of the page's own, with the programs
//! of docs/examples, and skips it if there is no compiler. `perl-module` skips it where no module
//! of Perl can be built. `any` accepts any output, because it depends on the machine; so does the
//! share of RSS in `record`'s line, which is not always known. `session` is a session of a shell:
//! what follows a prompt is typed, and the greeting, which is on stderr, comes first.
//! HEAPPROF_BLESS=1 writes the outputs anew.

use std::path::{Path, PathBuf};

use heapprof_tests::built;
use heapprof_tests::harness::{bless, command, commands, root, sample_profiles};
use heapprof_tests::needs;

fn pages() -> Vec<PathBuf> {
    let mut pages = vec![
        root().join("README.md"),
        root().join("SECURITY.md"),
        sample_profiles().join("README.md"),
    ];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// Whether a block has this option.
fn says(options: &str, word: &str) -> bool {
    options.split(' ').any(|o| o == word)
}

/// Runs one example line in `folder` and returns its output, with the limits of `| head -N` and
/// `| grep -E REGEX` applied.
fn run_example(line: &str, options: &str, folder: &Path, db: &Path) -> String {
    let (line, head) = match line.split_once(" | head -") {
        Some((line, n)) => (line, n.trim().parse().unwrap()),
        None => (line, usize::MAX),
    };
    let (line, grep) = match line.split_once(" | grep -E ") {
        Some((line, regex)) => (line, regex.trim_matches('\'')),
        None => (line, ""),
    };
    let grep = regex::Regex::new(grep).unwrap();
    // A `>` before a quote is a part of a rule, not a redirection.
    let line = match line.rfind(" > ") {
        Some(at) if !line[at..].contains(['\'', '"']) => &line[..at],
        _ => line,
    };
    let words = shell_words(line);
    assert_eq!(words[0], "heapprof", "{line}");
    let output = command(folder)
        .env("HEAPPROF_DB", db)
        .env("XDG_CACHE_HOME", db.with_file_name("cache"))
        .args(&words[1..])
        .output()
        .unwrap();
    let code = options
        .split(' ')
        .find_map(|o| o.strip_prefix("exit="))
        .unwrap_or("0");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code().unwrap().to_string(),
        code,
        "{line}: {stderr}"
    );
    let text = match says(options, "stderr") {
        true => stderr,
        false => String::from_utf8_lossy(&output.stdout).into_owned(),
    };
    let kept: Vec<&str> = text
        .lines()
        .filter(|line| grep.is_match(line))
        .take(head)
        .collect();
    let mut text = kept.join("\n");
    if !text.is_empty() {
        text.push('\n');
    }
    text
}

/// The prompts of the shells.
const PROMPTS: [&str; 3] = ["(pprof) ", "(jeprof) ", "(heapprof) "];

/// Runs a session of a shell with the lines that `expected` has behind its prompts. Returns the
/// greeting, and these lines with what stdout has for each.
fn run_session(line: &str, expected: &str, folder: &Path) -> String {
    let first = expected.lines().find_map(|line| {
        let mut prompts = PROMPTS.into_iter();
        prompts.find(|prompt| line.starts_with(prompt))
    });
    let prompt = first.unwrap_or_else(|| panic!("{line}: no line is typed"));
    let typed: Vec<&str> = expected
        .lines()
        .filter_map(|l| l.strip_prefix(prompt))
        .collect();
    let words = shell_words(line);
    assert_eq!(words[0], "heapprof", "{line}");
    let run = |lines: &[&str]| {
        let input = tempfile::NamedTempFile::new().unwrap();
        let script: String = lines.iter().map(|line| format!("{line}\n")).collect();
        std::fs::write(input.path(), script).unwrap();
        let output = command(folder)
            .env("TZ", "UTC")
            .args(&words[1..])
            .stdin(input.reopen().unwrap())
            .output()
            .unwrap();
        assert!(output.status.success(), "{line}");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr))
    };
    let (whole, said) = run(&typed);
    let mut text = said.split(prompt).next().unwrap_or_default().to_string();
    let answers: Vec<String> = match whole.contains(prompt) {
        true => whole.split(prompt).skip(1).map(str::to_string).collect(),
        // The prompts are on stderr, so what a line adds to stdout is its answer.
        false => {
            let mut before = run(&[]).0.len();
            let answer = |count| {
                let mut printed = run(&typed[..count]).0;
                let answer = printed.split_off(before);
                before = printed.len() + answer.len();
                answer
            };
            (1..=typed.len()).map(answer).collect()
        }
    };
    for (line, answer) in typed.iter().zip(answers) {
        text += &format!("{prompt}{line}\n{answer}");
    }
    text
}

/// Returns the text without the share of RSS, which depends on this machine's code and libraries.
fn of_any_machine(text: &str) -> String {
    let share = regex::Regex::new(r" \([0-9.<]+% of peak RSS [0-9.]+[KM]iB\)").unwrap();
    share.replace_all(text, "").into_owned()
}

/// Splits words as a shell does, with both kinds of quotes.
fn shell_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ' ') => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[test]
fn examples_print_what_the_pages_say() {
    let mut examples = 0;
    let mut wrong = Vec::new();
    for page in pages() {
        let folder = tempfile::tempdir().unwrap();
        let db = folder.path().join("heapprof.db");
        let mut programs = None;
        let text = std::fs::read_to_string(&page).unwrap();
        let mut lines = text.lines().peekable();
        let mut written = String::new();
        while let Some(line) = lines.next() {
            written.push_str(line);
            written.push('\n');
            let Some(options) = line.strip_prefix("```console") else {
                continue;
            };
            let example = lines.next().unwrap();
            let mut expected = String::new();
            for line in lines.by_ref() {
                if line == "```" {
                    break;
                }
                expected.push_str(line);
                expected.push('\n');
            }
            let asked = example
                .strip_prefix("$ ")
                .unwrap_or_else(|| panic!("{}: {example}", page.display()));
            let options = options.trim();
            let recorded = says(options, "recorded");
            let built = || {
                let example = |name, options| built::example(folder.path(), name, options);
                example("shop", "") && example("mailroom", "-pthread") && example("hoard", "")
            };
            let builds_module =
                || needs::have(&["gcc", "make", "perl"]) && needs::perl_options(false).is_some();
            let found = if says(options, "perl-module") && !builds_module() {
                expected.clone()
            } else if says(options, "session") {
                run_session(asked, &expected, &sample_profiles())
            } else if !recorded {
                run_example(asked, options, &sample_profiles(), &db)
            } else if *programs.get_or_insert_with(built) {
                run_example(asked, options, folder.path(), &db)
            } else {
                expected.clone()
            };
            // Lines of a page have no blanks at their end.
            let mut found: String = found
                .lines()
                .map(|l| format!("{}\n", l.trim_end()))
                .collect();
            if says(options, "any") {
                assert_eq!(found.is_empty(), expected.is_empty(), "{asked}");
                found.clone_from(&expected);
            }
            if of_any_machine(&found) == of_any_machine(&expected) {
                found.clone_from(&expected);
            }
            examples += 1;
            if found != expected && !bless() {
                wrong.push(format!("{}: $ {asked}\n{found}", page.display()));
            }
            written.push_str(&format!("{example}\n{found}```\n"));
        }
        if bless() {
            std::fs::write(&page, written).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "{} examples print something else now (HEAPPROF_BLESS=1 writes them anew):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    assert!(examples > 15, "{examples}");
}

#[test]
fn every_command_has_a_page_and_links_lead_somewhere() {
    let index = std::fs::read_to_string(root().join("docs/README.md")).unwrap();
    for command in commands() {
        let name = command.rsplit(' ').next().unwrap();
        let page = root().join(format!("docs/commands/{name}.md"));
        assert!(page.is_file(), "{}", page.display());
        let link = format!("](commands/{name}.md)");
        assert!(
            index.contains(&link),
            "docs/README.md does not lead to {command}.md"
        );
    }
    let link = regex::Regex::new(r"\]\(([^)#\s]+)(#[^)]*)?\)").unwrap();
    for page in pages() {
        let text = std::fs::read_to_string(&page).unwrap();
        let prose: String = text.split("```").step_by(2).collect();
        for found in link.captures_iter(&prose) {
            let target = &found[1];
            if !target.contains("://") {
                let path = page.parent().unwrap().join(target);
                assert!(path.exists(), "{}: {target}", page.display());
            }
        }
    }
}

/// A path of the repository that a page names is there, and so is what it says of the ledger's
/// layout.
#[test]
fn pages_name_files_that_exist() {
    let path = regex::Regex::new(
        r"`((?:crates|tests|docs|bench|oracle|fuzz|perl|python|include|proto|\.ci)/[\w./-]+)",
    )
    .unwrap();
    let own = [root().join("CONTRIBUTING.md")];
    let mut missing = Vec::new();
    for page in pages().into_iter().chain(own) {
        let text = std::fs::read_to_string(&page).unwrap();
        for found in path.captures_iter(&text) {
            let named = found[1].trim_end_matches('.');
            // These words stand for any name.
            let is_pattern = ["NAME", "REPORT", "LAYER"]
                .iter()
                .any(|word| named.contains(word));
            if !is_pattern && !root().join(named).exists() {
                missing.push(format!("{}: {named}", page.display()));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
    let page = std::fs::read_to_string(root().join("docs/dev/ledger.md")).unwrap();
    let version = format!("`version` is {}", heapprof_abi::LEDGER_VERSION);
    assert!(
        page.contains(&version),
        "docs/dev/ledger.md does not say that {version}"
    );
}
