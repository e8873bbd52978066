//! Removes the secrets in addresses (user names, passwords) from the words of a command line.

use crate::url::without_secrets;

/// The pprof options whose values name profiles.
const SOURCE_OPTIONS: [&str; 2] = ["base", "diff_base"];

/// Returns where the value in an argument begins: after `--option=` or `-o`, or at 0 if the
/// argument is not an option. Returns `None` for an option without a value.
fn value_at(argument: &str) -> Option<usize> {
    let Some(word) = argument.strip_prefix('-') else {
        return Some(0);
    };
    let scheme = argument.find("://");
    let equals = argument.find('=');
    match word.chars().next()? {
        '-' => {}
        letter if scheme.is_some() && equals.is_none_or(|at| Some(at) > scheme) => {
            return Some(1 + letter.len_utf8());
        }
        _ => {}
    }
    equals.map(|at| at + 1)
}

/// Returns an argument without the secrets of its address; `None` if it has no secrets. The address
/// may stand after `--option=` or `-o`.
///
/// If `needs_scheme` is false, `user:password@host` counts as an address, too. In an option, it
/// counts only if the option takes a profile: the value of any other option may be, for example, a
/// regular expression.
pub fn argument_without_secrets(argument: &str, needs_scheme: bool) -> Option<String> {
    let (option, text) = argument.split_at(value_at(argument)?);
    let is_source = SOURCE_OPTIONS.contains(&option.trim_matches(['-', '=']));
    let needs_scheme = needs_scheme || !option.is_empty() && !is_source;
    let shown = without_secrets(text, needs_scheme)?;
    Some(format!("{option}{shown}"))
}

/// Returns a line of a shell without the secrets of the addresses in it. Quotes around an address
/// stay.
pub fn line_without_secrets(line: &str) -> String {
    let is_end = |c: char| c.is_whitespace() || matches!(c, '\'' | '"');
    let hidden = |piece: &str| {
        let word = piece.trim_end_matches(is_end);
        let end = &piece[word.len()..];
        match argument_without_secrets(word, true) {
            Some(shown) => shown + end,
            None => piece.to_string(),
        }
    };
    line.split_inclusive(is_end).map(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_secret_is_shown_behind_an_option() {
        for argument in [
            "http://me:PASSWORD@host/heap",
            "--base=http://me:PASSWORD@host/heap",
            "-phttp://host/heap?token=PASSWORD&x=1",
            "-phttp://me:PASSWORD@host/heap",
        ] {
            let shown = argument_without_secrets(argument, true).unwrap();
            assert!(!shown.contains("PASS") && shown.contains("host"), "{shown}");
            // Secrets that were taken out are not taken out again.
            assert!(
                !argument_without_secrets(&shown, true).is_some_and(|again| again.contains("PASS"))
            );
        }
        let shown = argument_without_secrets("-base=me:PASSWORD@host:80/heap?x=1", false).unwrap();
        assert!(shown.starts_with("-base=") && !shown.contains("PASS"));
    }

    #[test]
    fn lines_lose_all_secrets_and_nothing_else() {
        for line in [
            "top http://me:PASSWORD@host/heap -n 3",
            "diff 'http://me:PASSWORD@host/a'  \"https://h/b?token=PASSWORD\"",
            "tree --base=http://me:PASSWORD@host/heap ",
        ] {
            let shown = line_without_secrets(line);
            assert!(!shown.contains("PASS") && shown.contains("http"), "{shown}");
            assert_eq!(shown.split(' ').count(), line.split(' ').count(), "{shown}");
        }
        for line in [
            "",
            " top  -n 3 'a b'",
            "list http://host/x",
            "list \"'a@b'\"",
        ] {
            assert_eq!(line_without_secrets(line), line);
        }
    }

    #[test]
    fn what_has_no_secret_stays() {
        for argument in ["--focus", "-", "-phttp://host/heap#peak", "--", "-ä"] {
            assert_eq!(argument_without_secrets(argument, true), None, "{argument}");
        }
        for argument in ["-hide=step.*1?23?", "-focus=a:b@c"] {
            assert_eq!(
                argument_without_secrets(argument, false),
                None,
                "{argument}"
            );
        }
    }
}
