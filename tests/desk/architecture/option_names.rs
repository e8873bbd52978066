//! Options in the texts of libraries. Only the program has options, so only the program advises to
//! use one: a library returns what is to be advised as a value.

use std::sync::LazyLock;

use heapprof_tests::harness::sources;
use regex::Regex;

use super::relative;

/// Crates and files whose texts may name options, with the reason.
const EXEMPT: &[(&str, &str)] = &[
    ("crates/app/cli/", "it is the program that has the options"),
    ("crates/desk/dropin/", "it speaks for pprof and jeprof"),
    (
        "crates/contract/profile/src/command_line.rs",
        "it reads the options of interpreters",
    ),
    (
        "crates/desk/formats/src/foreign_files",
        "it names commands of the tools whose files are not read",
    ),
];

/// Options that a text may name, with the file and the reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    (
        "crates/desk/report/src/coverage.rs",
        "--heap-prof",
        "it is node's",
    ),
    (
        "crates/desk/formats/src/readers/memray/capture.rs",
        "--trace-python-allocators",
        "it is memray's",
    ),
    (
        "crates/desk/formats/src/readers/memray/capture.rs",
        "--aggregate",
        "it is memray's",
    ),
    (
        "crates/desk/analysis/src/relation/total.rs",
        "--granularity",
        "it documents a table, which users of sql read",
    ),
    (
        "crates/app/stores/src/batches.rs",
        "--features",
        "it is cargo's",
    ),
    (
        "crates/app/stores/src/clickhouse.rs",
        "--features",
        "it is cargo's",
    ),
    (
        "crates/app/stores/src/open.rs",
        "--features",
        "it is cargo's",
    ),
    (
        "crates/inside/providers/src/python/report.rs",
        "--python-objects",
        "the profiled program writes it, into the profile",
    ),
];

/// Returns the texts of a source file, each with its line. Those of tests are left out.
fn texts(source: &str) -> Vec<(usize, String)> {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        let token = r####"(?s)//[^\n]*|r##"(.*?)"##|r#"(.*?)"#|\br"([^"]*)"|"((?:\\.|[^"\\])*)"|'(?:\\.|[^'\\])'"####;
        Regex::new(token).unwrap()
    });
    static TEST: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"(?s)#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*[^;{]*\{.*?\n\}").unwrap()
    });
    static FOLD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\\\n\s*").unwrap());
    let tests: Vec<_> = TEST.find_iter(source).map(|test| test.range()).collect();
    let found = TOKEN.captures_iter(source).filter_map(|token| {
        let text = token.iter().skip(1).flatten().next()?;
        let is_of_test = tests.iter().any(|test| test.contains(&text.start()));
        let line = source[..text.start()].matches('\n').count() + 1;
        let text = FOLD.replace_all(text.as_str(), "").into_owned();
        (!is_of_test).then_some((line, text))
    });
    found.collect()
}

/// Returns the options that a text names. `--{` is one whose name is put in later.
fn options(text: &str) -> Vec<String> {
    static OPTION: LazyLock<Regex> = LazyLock::new(|| {
        let long = r#"(?:^|[\s(\["'`])(--(?:[a-z][a-z-]*[a-z]|\{))"#;
        let short = r"\bheapprof [a-z-]+ (-[a-zA-Z])\b|(?:^|[\s(])(-n) [0-9]";
        Regex::new(&format!("{long}|{short}")).unwrap()
    });
    let found = OPTION.captures_iter(text);
    let named = found.filter_map(|found| found.iter().skip(1).flatten().next());
    named.map(|option| option.as_str().to_string()).collect()
}

#[test]
fn texts_of_libraries_name_no_options() {
    let mut found = Vec::new();
    let mut unused: Vec<_> = ALLOWED.iter().map(|row| (row.0, row.1)).collect();
    for path in sources() {
        let file = relative(&path);
        let is_library = file.starts_with("crates/") && file.contains("/src/");
        let is_test = file.ends_with("tests.rs") || file.contains("/tests/");
        if !is_library || is_test || EXEMPT.iter().any(|(exempt, _)| file.starts_with(exempt)) {
            continue;
        }
        for (line, text) in texts(&std::fs::read_to_string(&path).unwrap()) {
            for option in options(&text) {
                match ALLOWED.iter().any(|row| row.0 == file && row.1 == option) {
                    true => unused.retain(|row| *row != (file.as_str(), option.as_str())),
                    false => found.push(format!("{file}:{line}: {option} in {text:?}")),
                }
            }
        }
    }
    assert!(
        found.is_empty(),
        "return the advice as a value, and let heapprof-cli word it:\n{}",
        found.join("\n")
    );
    assert!(unused.is_empty(), "no text names these: {unused:?}");
}

#[test]
fn options_in_texts_are_found() {
    let source = r##"
        /// With --exact, all is counted.
        const HELP: &str = "try \
                            --exact"; // "--comment"
        #[error("rows; -n 0 shows all")]
        struct Raw(r#"heapprof top -t x"#, '"', "a--b and -- CMD");
#[cfg(test)]
mod tests {
    const TEXT: &str = "--unit";
}
const LATE: &str = "(--late)";
"##;
    let all = texts(source);
    let named: Vec<(usize, String)> = all
        .iter()
        .flat_map(|(line, text)| options(text).into_iter().map(|option| (*line, option)))
        .collect();
    let named: Vec<(usize, &str)> = named.iter().map(|(line, name)| (*line, &**name)).collect();
    assert_eq!(
        named,
        [(3, "--exact"), (5, "-n"), (6, "-t"), (11, "--late")]
    );
}
