//! Translates Go's regular expressions, which users of pprof write, for the `regex` crate.
//!
//! Both use the syntax of RE2 but differ in details, which are translated:
//!
//! * A `{` that begins no repetition stands for itself (`{{closure}}`). So do `[`, `&&`, `~~` and
//!   `--` in a class, and `\<`.
//! * `\d`, `\s` and `\w` are ASCII, `\Q…\E` quotes, and `\0` and `\12` are octal.
//! * Stacked repetitions (`a**`), more than 1000 repetitions, and flags other than `imsU` are
//!   errors.
//!
//! One difference remains: `\b` takes letters beyond ASCII into account, unlike in Go. Source: Go's
//! package regexp/syntax.

use regex::Regex;

use super::regex_error;

/// Compiles an expression in Go's syntax. The error is one line.
pub fn go_regex(text: &str) -> Result<Regex, String> {
    let translated = GoRegexTranslator {
        rest: text,
        out: String::with_capacity(text.len() + 8),
    };
    let translated = translated
        .translate()
        .map_err(|why| format!("not a regular expression: {why}"))?;
    Regex::new(&translated).map_err(|error| regex_error(&error))
}

struct GoRegexTranslator<'a> {
    rest: &'a str,
    out: String,
}

/// Names of the classes that `[:name:]` stands for.
const POSIX_CLASSES: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Maximum number of repetitions in an expression.
const MAX_REPETITIONS: u32 = 1000;

impl<'a> GoRegexTranslator<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn take(&mut self, bytes: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(bytes);
        self.rest = rest;
        taken
    }

    fn copy(&mut self, bytes: usize) {
        let taken = self.take(bytes);
        self.out.push_str(taken);
    }

    fn literal(&mut self, c: char) {
        if c.is_ascii() && !c.is_ascii_alphanumeric() {
            self.out.push_str(&format!(r"\x{:02X}", c as u32));
        } else {
            self.out.push(c);
        }
    }

    fn translate(mut self) -> Result<String, String> {
        let mut after_repetition = false;
        while let Some(c) = self.next() {
            let repetition = match c {
                '*' | '+' | '?' => Some(c.to_string()),
                '{' => self.repetition()?,
                _ => None,
            };
            if let Some(repetition) = repetition {
                if std::mem::replace(&mut after_repetition, true) {
                    return Err(format!(
                        "two repetitions in a row, the second is {repetition}"
                    ));
                }
                self.out.push_str(&repetition);
                if self.rest.starts_with('?') {
                    self.copy(1);
                }
                continue;
            }
            after_repetition = false;
            match c {
                '\\' => self.escape(false)?,
                '[' => self.class()?,
                '(' => self.group()?,
                '{' | '}' | ']' => self.literal(c),
                c => self.out.push(c),
            }
        }
        Ok(self.out)
    }

    /// Reads the text after a `{` if it is a repetition.
    fn repetition(&mut self) -> Result<Option<String>, String> {
        let Some((inside, _)) = self.rest.split_once('}') else {
            return Ok(None);
        };
        let number = |text: &str| match text {
            "0" => Some(0),
            _ if text.starts_with('0') || text.is_empty() => None,
            _ if !text.bytes().all(|b| b.is_ascii_digit()) => None,
            // A number that is too long to parse is too large.
            _ => Some(text.parse::<u32>().unwrap_or(u32::MAX)),
        };
        let (least, most) = match inside.split_once(',') {
            None => (number(inside), number(inside)),
            Some((least, "")) => (number(least), number(least)),
            Some((least, most)) => (number(least), number(most)),
        };
        let (Some(least), Some(most)) = (least, most) else {
            return Ok(None);
        };
        if least > MAX_REPETITIONS || most > MAX_REPETITIONS || most < least {
            return Err(format!(
                "{{{inside}}} is not a count of at most {MAX_REPETITIONS}"
            ));
        }
        let inside = self.take(inside.len() + 1);
        Ok(Some(format!("{{{inside}")))
    }

    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        let Some(after) = self.rest.strip_prefix('?') else {
            return Ok(());
        };
        let named = after.strip_prefix("P<").or(after.strip_prefix('<'));
        if let Some(named) = named {
            // Names do not matter for a match, and Go allows more of them.
            let end = named.find('>').unwrap_or(0);
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if end == 0 || !named[..end].chars().all(is_word) {
                return Err("a group has no valid name".to_string());
            }
            self.rest = &named[end + 1..];
            return Ok(());
        }
        let flags = after
            .find(|c: char| !matches!(c, 'i' | 'm' | 's' | 'U' | '-'))
            .filter(|&at| after[at..].starts_with([')', ':']));
        match flags {
            Some(flags) => {
                self.copy(flags + 1);
                Ok(())
            }
            None => Err("(? is followed by neither a name nor flags of imsU".to_string()),
        }
    }

    /// Reads the text after a backslash, inside a class or not.
    fn escape(&mut self, in_class: bool) -> Result<(), String> {
        let c = self.next().ok_or("it ends in a backslash")?;
        let bare = |bare: &'static str, whole: &'static str| if in_class { bare } else { whole };
        match c {
            'd' => self.out.push_str(bare("0-9", "[0-9]")),
            'D' => self.out.push_str("[^0-9]"),
            's' => self.out.push_str(bare(r"\t\n\x0C\r ", r"[\t\n\x0C\r ]")),
            'S' => self.out.push_str(r"[^\t\n\x0C\r ]"),
            'w' => self.out.push_str(bare("0-9A-Za-z_", "[0-9A-Za-z_]")),
            'W' => self.out.push_str("[^0-9A-Za-z_]"),
            'Q' if !in_class => {
                let end = self.rest.find(r"\E").unwrap_or(self.rest.len());
                for c in self.take(end).chars() {
                    self.literal(c);
                }
                self.take(self.rest.len().min(2));
            }
            'A' | 'z' | 'b' | 'B' if !in_class => self.out.extend(['\\', c]),
            'p' | 'P' | 'x' | 'a' | 'f' | 'n' | 'r' | 't' | 'v' => {
                self.out.extend(['\\', c]);
                // The braces after these letters are no repetition.
                if self.rest.starts_with('{') && matches!(c, 'p' | 'P' | 'x') {
                    let end = self.rest.find('}').map_or(self.rest.len(), |at| at + 1);
                    self.copy(end);
                }
            }
            '0'..='7' => {
                let octal = self.rest.bytes().take_while(|b| matches!(b, b'0'..=b'7'));
                let more = octal.take(2).count();
                if c != '0' && more == 0 {
                    return Err(format!(r"\{c} is a back-reference, which is not supported"));
                }
                let digits = format!("{c}{}", self.take(more));
                let value = u32::from_str_radix(&digits, 8).unwrap_or(0);
                self.out.push_str(&format!(r"\x{{{value:X}}}"));
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => self.literal(c),
            c => return Err(format!(r"\{c} is not a known escape")),
        }
        Ok(())
    }

    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.starts_with('^') {
            self.copy(1);
        }
        let mut first = true;
        while first || !self.rest.starts_with(']') {
            first = false;
            if let Some(named) = self.rest.strip_prefix("[:")
                && let Some(end) = named.find(":]")
            {
                let name = &named[..end];
                if !POSIX_CLASSES.contains(&name.strip_prefix('^').unwrap_or(name)) {
                    return Err(format!("[:{name}:] is no class of characters"));
                }
                self.copy(end + 4);
                continue;
            }
            self.member()?;
            let is_range = self.rest.starts_with('-') && !self.rest[1..].starts_with(']');
            if is_range && self.rest.len() > 1 {
                self.copy(1);
                self.member()?;
            }
        }
        self.copy(1);
        Ok(())
    }

    fn member(&mut self) -> Result<(), String> {
        match self.next() {
            None => Err("a [ has no ]".to_string()),
            Some('\\') => self.escape(true),
            Some(c) => {
                self.literal(c);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::go_regex;

    /// Compares matches of expressions with the results of Go's regexp.
    #[test]
    fn as_in_go() {
        let matching = [
            ("{{closure}}", "core::{{closure}}"),
            ("a{,2}", "a{,2}"),
            ("a{2}", "aa"),
            ("a{01}", "a{01}"),
            ("x{2,}?y", "xxxy"),
            ("}]", "a}]"),
            ("[[]", "["),
            ("[]a]", "]"),
            ("[a&&b]$", "&"),
            ("[+--]", ","),
            ("[a-]", "-"),
            (r"[^\d]", "x"),
            (r"[[:alpha:]_]", "_"),
            ("[[:]]", ":]"),
            ("[[:^digit:]]", "x"),
            (r"\<T\>", "<T>"),
            (r"\Qa.b(\E.", "a.b(c"),
            (r"\Qa.b", "a.b"),
            (r"\101\0", "A\0"),
            (r"\x41\x{42}", "AB"),
            (r"\_\/", "_/"),
            (r"(?i:MAIN)", "main"),
            (r"(?P<n>a)(?<m>b)", "ab"),
            ("(?P<1>a)(?P<1>b)", "ab"),
            (r"\p{Greek}\pL", "αb"),
            (r"operator new\(", "operator new(unsigned long)"),
            ("^$", ""),
            ("a??b", "b"),
        ];
        for (pattern, text) in matching {
            let regex = go_regex(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"));
            assert!(regex.is_match(text), "{pattern} {text}");
        }
        for (pattern, text) in [(r"\d", "٣"), (r"\w", "é"), ("[a&&b]", "c"), (r"\s", "\x0B")] {
            assert!(!go_regex(pattern).unwrap().is_match(text), "{pattern}");
        }
    }

    #[test]
    fn errors_are_one_line() {
        let wrong = [
            "(",
            ")",
            "[",
            "[a",
            "a**",
            "a+*",
            "a{2}{3}",
            "a{1001}",
            "a{2,1}",
            r"\1",
            r"\y",
            r"\",
            "(?x)a",
            "(?=a)",
            r"\pX1",
            "*",
            r"[b-a]",
            r"\Z",
            "[[:nope:]]",
            "[[:^ALPHA:]]",
            "(?P<n",
            "(?P<>x)",
            "(?P<a b>x)",
        ];
        for pattern in wrong {
            let error = go_regex(pattern).expect_err(pattern);
            assert!(error.starts_with("not a regular expression: "), "{error}");
            assert_eq!(error.lines().count(), 1, "{pattern}");
        }
    }
}
