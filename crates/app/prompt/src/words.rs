//! The words of a line: quotes as in a shell, and a file behind `>`.

use anyhow::{Result, bail};

/// Tells which characters of a line stand outside quotes.
#[derive(Default)]
struct QuoteScan {
    quote: Option<char>,
    is_escaped: bool,
}

impl QuoteScan {
    /// Whether the next character stands for itself: it neither is a quote nor is quoted.
    fn is_bare(&mut self, next: char) -> bool {
        if std::mem::take(&mut self.is_escaped) {
            return false;
        }
        match (self.quote, next) {
            (None, '\'' | '"') => self.quote = Some(next),
            (None | Some('"'), '\\') => self.is_escaped = true,
            (Some(quote), _) if quote == next => self.quote = None,
            (quote, _) => return quote.is_none(),
        }
        false
    }
}

/// Returns where the last word of an unfinished line begins, and the word without its quotes.
pub(crate) fn unfinished_word(line: &str) -> (usize, String) {
    let mut scan = QuoteScan::default();
    let mut start = 0;
    for (at, next) in line.char_indices() {
        if scan.is_bare(next) && is_blank(next) {
            start = at + next.len_utf8();
        }
    }
    let mut word = line.get(start..).unwrap_or_default().to_string();
    if scan.is_escaped {
        word.pop();
    }
    word.extend(scan.quote);
    let word = shlex::split(&word).and_then(|words| words.into_iter().next());
    (start, word.unwrap_or_default())
}

/// Returns a text as one word of a line. It has no quotes, so a person can type more behind it, and
/// words with a common beginning have one here.
pub(crate) fn as_word(text: &str) -> String {
    let mut word = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        let is_sign = at == 0 && matches!(c, '#' | '>');
        if is_sign || is_blank(c) || matches!(c, '\\' | '\'' | '"') {
            word.push('\\');
        }
        word.push(c);
    }
    word
}

/// Name of the program, which lines that were copied from elsewhere begin with.
const PROGRAM: &str = "heapprof";

/// Splits a line into words. `> FILE` at the end becomes the option `-o FILE`. The name of the
/// program at the beginning is left out.
///
/// # Errors
/// A quote has no end, not exactly one file follows `>`, or there is a pipe.
pub(crate) fn split_line(line: &str) -> Result<Vec<String>> {
    if sign(line, '|').is_some_and(|at| line[at + 1..].starts_with(is_blank)) {
        bail!("there are no pipes here; > FILE writes the report into a file");
    }
    let mut words = split_command(line)?;
    if words.len() > 1 && words[0] == PROGRAM {
        words.remove(0);
    }
    Ok(words)
}

fn split_command(line: &str) -> Result<Vec<String>> {
    let Some(at) = sign(line, '>') else {
        return split(line);
    };
    let (command, file) = line.split_at(at);
    let mut words = split(command)?;
    if file.starts_with(">>") {
        bail!(">> adds to no file here; > FILE writes a new one");
    }
    if words.iter().any(|word| word == "--") {
        bail!("> FILE is no output of the program behind --; run it by sh -c 'COMMAND > FILE'");
    }
    match <[String; 1]>::try_from(split(&file[1..])?) {
        Ok([file]) => words.extend(["-o".to_string(), file]),
        Err(none) if none.is_empty() => bail!("no file follows >"),
        Err(several) => bail!("{}: only one file may follow >", several[1]),
    }
    Ok(words)
}

/// Whether a character separates words.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

fn split(line: &str) -> Result<Vec<String>> {
    match shlex::split(line) {
        Some(words) => Ok(words),
        None => bail!("a quote in the line has no end"),
    }
}

/// Returns where the first `sign` is that begins a word and is not quoted.
fn sign(line: &str, sign: char) -> Option<usize> {
    let mut scan = QuoteScan::default();
    let mut begins_word = true;
    for (at, next) in line.char_indices() {
        match (scan.is_bare(next), next) {
            (true, found) if begins_word && found == sign => return Some(at),
            // The rest is a comment.
            (true, '#') if begins_word => return None,
            (is_bare, _) => begins_word = is_bare && is_blank(next),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        for (line, words) in [
            ("top -n 5", "top|-n|5"),
            ("list 'a b' > out.txt", "list|a b|-o|out.txt"),
            ("top >out.txt", "top|-o|out.txt"),
            ("top > 'my file' # comment", "top|-o|my file"),
            ("top --fail-if 'flat > 5MB'", "top|--fail-if|flat > 5MB"),
            ("diff a b --fail-if '>5%'", "diff|a|b|--fail-if|>5%"),
            ("sql 'select 1' \">x\"", "sql|select 1|>x"),
            ("list \\>x a=>b", "list|>x|a=>b"),
            ("list \"a\\\" >b\" 'c\\' >d", "list|a\" >b|c\\|-o|d"),
            ("top # > x", "top"),
            ("heapprof top -n 5 > a", "top|-n|5|-o|a"),
            ("heapprof", "heapprof"),
            ("list 'heapprof'", "list|heapprof"),
            ("list a|b |c", "list|a|b||c"),
            ("list 'a | b'", "list|a | b"),
            ("", ""),
        ] {
            assert_eq!(split_line(line).unwrap().join("|"), words, "{line}");
        }
    }

    #[test]
    fn unfinished_words() {
        for (line, start, word) in [
            ("", 0, ""),
            ("top ", 4, ""),
            ("top a\\ b", 4, "a b"),
            ("top 'a b", 4, "a b"),
            ("top \"a b", 4, "a b"),
            ("top 'a b' c", 10, "c"),
            ("list main.\\\\(", 5, "main.\\("),
            ("list main.\\", 5, "main."),
            ("list ä\u{3000}ö", 5, "ä\u{3000}ö"),
            ("list ä\tö", 8, "ö"),
        ] {
            assert_eq!(unfinished_word(line), (start, word.to_string()), "{line}");
        }
    }

    #[test]
    fn texts_as_words() {
        for text in ["a b", "'\"\\", "#x", ">x", "it's", "x\u{3000}y", "a#b>c"] {
            let word = as_word(text);
            assert_eq!(split_line(&word).unwrap(), [text], "{word}");
            assert_eq!(unfinished_word(&word), (0, text.to_string()), "{word}");
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        for (line, error) in [
            ("list 'x", "a quote in the line has no end"),
            ("list 'x > y", "a quote in the line has no end"),
            ("top > 'x", "a quote in the line has no end"),
            ("top >", "no file follows >"),
            (
                "top | head",
                "there are no pipes here; > FILE writes the report into a file",
            ),
            ("top > a b", "b: only one file may follow >"),
            (
                "top >>a",
                ">> adds to no file here; > FILE writes a new one",
            ),
            (
                "top >> a",
                ">> adds to no file here; > FILE writes a new one",
            ),
        ] {
            assert_eq!(split_line(line).unwrap_err().to_string(), error, "{line}");
        }
        let program = split_line("record -- ls > out").unwrap_err();
        assert!(program.to_string().contains("sh -c"), "{program}");
    }
}
