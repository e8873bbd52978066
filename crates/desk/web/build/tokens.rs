//! Cuts a script into tokens, so that changes of names and spaces leave texts alone.

/// The kind of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TokenKind {
    Space,
    Line,
    Text,
    Number,
    Word,
    Sign,
    Regex,
    /// A piece of a text in backquotes.
    Raw,
    /// The `${` before an expression in a text in backquotes. Its characters belong to the
    /// [`TokenKind::Raw`] before it.
    Open,
    /// The `}` after an expression in a text in backquotes. Its character belongs to the
    /// [`TokenKind::Raw`] after it.
    Close,
}

/// A token of a script.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ScriptToken {
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
}

impl ScriptToken {
    pub(crate) fn is_gap(&self) -> bool {
        matches!(self.kind, TokenKind::Space | TokenKind::Line)
    }

    pub(crate) fn opens(&self) -> bool {
        self.kind == TokenKind::Open
            || self.kind == TokenKind::Sign && matches!(self.text.as_str(), "(" | "[" | "{")
    }

    pub(crate) fn closes(&self) -> bool {
        self.kind == TokenKind::Close
            || self.kind == TokenKind::Sign && matches!(self.text.as_str(), ")" | "]" | "}")
    }
}

const LONG_SIGNS: &[&str] = &[
    "=>", "...", "?.", "??=", "||=", "&&=", "??", "++", "--", ">>>",
];
const SIGNS: &str = "{}()[];,<>+-*/%&|^!~?:=.";
/// Signs after which a slash begins a regular expression. Elsewhere a slash divides.
const BEFORE_REGEX: &[&str] = &[
    "(", ",", "=", ":", "[", "!", "&", "|", "?", "{", "}", ";", "=>", "+", "-", "*", "%", "<", ">",
    "??", "||=", "??=",
];

/// Returns the tokens of a script, including the tokens of expressions in texts in backquotes.
pub(crate) fn tokens(code: &str) -> Result<Vec<ScriptToken>, String> {
    let mut out = Vec::new();
    let mut at = 0;
    let mut may_be_regex = true;
    while at < code.len() {
        let rest = &code[at..];
        if rest.starts_with('`') {
            at = template(code, at, Some(&mut out))?;
            may_be_regex = false;
            continue;
        }
        let (kind, length) = if rest.starts_with('/') && may_be_regex {
            (TokenKind::Regex, regex_length(rest)?)
        } else {
            token(rest)?
        };
        let text = rest[..length].to_owned();
        match kind {
            TokenKind::Space | TokenKind::Line => {}
            TokenKind::Sign => may_be_regex = BEFORE_REGEX.contains(&text.as_str()),
            _ => may_be_regex = text == "return",
        }
        out.push(ScriptToken { kind, text });
        at += length;
    }
    Ok(out)
}

/// Whether a character may be in a name.
pub(crate) fn in_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// Returns the kind and length of the token that a text begins with.
fn token(rest: &str) -> Result<(TokenKind, usize), String> {
    let unknown = || format!("what is this: {:?}", shown(rest));
    let first = rest.chars().next().ok_or_else(unknown)?;
    let second = rest.chars().nth(1).unwrap_or(' ');
    let run = |is_in: &dyn Fn(char) -> bool| rest.find(|c| !is_in(c)).unwrap_or(rest.len());
    if let Some(sign) = LONG_SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
        return Ok((TokenKind::Sign, sign.len()));
    }
    Ok(match first {
        ' ' | '\t' => (TokenKind::Space, run(&|c| c == ' ' || c == '\t')),
        '\n' => (TokenKind::Line, 1),
        '\'' | '"' => (TokenKind::Text, text_length(rest, first)?),
        '0'..='9' => (
            TokenKind::Number,
            run(&|c| in_word(c) && c != '$' || c == '.'),
        ),
        '.' if second.is_ascii_digit() => {
            let end = rest[1..].find(|c| !in_word(c) || c == '$');
            (TokenKind::Number, end.map_or(rest.len(), |end| end + 1))
        }
        'a'..='z' | 'A'..='Z' | '_' | '$' => (TokenKind::Word, run(&in_word)),
        _ if SIGNS.contains(first) => (TokenKind::Sign, 1),
        _ => return Err(unknown()),
    })
}

fn text_length(rest: &str, quote: char) -> Result<usize, String> {
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            '\n' => break,
            _ if c == quote => return Ok(at + 1),
            _ => {}
        }
    }
    Err(format!("a text does not end: {:?}", shown(rest)))
}

fn regex_length(rest: &str) -> Result<usize, String> {
    let mut in_class = false;
    let mut characters = rest.char_indices().skip(1);
    while let Some((at, c)) = characters.next() {
        match c {
            '\\' => drop(characters.next()),
            '\n' => break,
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => {
                let flags = rest[at + 1..].find(|c: char| !c.is_alphabetic());
                return Ok(flags.map_or(rest.len(), |flags| at + 1 + flags));
            }
            _ => {}
        }
    }
    Err(format!(
        "a regular expression does not end: {:?}",
        shown(rest)
    ))
}

/// Returns the end of the text in backquotes that begins at `start`. Adds the tokens of the text to
/// `wanted`, if that is given.
fn template(
    code: &str,
    start: usize,
    mut wanted: Option<&mut Vec<ScriptToken>>,
) -> Result<usize, String> {
    let mut add = |kind, text: &str| {
        if let Some(out) = wanted.as_deref_mut() {
            let text = text.to_owned();
            out.push(ScriptToken { kind, text });
        }
    };
    let unfinished = || {
        format!(
            "a text in backquotes does not end: {:?}",
            shown(&code[start..])
        )
    };
    let (mut begin, mut at) = (start, start + 1);
    loop {
        let rest = code.get(at..).ok_or_else(unfinished)?;
        let first = rest.chars().next().ok_or_else(unfinished)?;
        if rest.starts_with("${") {
            let end = expression_end(code, at + 2)?;
            add(TokenKind::Raw, &code[begin..at + 2]);
            add(TokenKind::Open, "${");
            for token in tokens(&code[at + 2..end])? {
                add(token.kind, &token.text);
            }
            add(TokenKind::Close, "}");
            (begin, at) = (end, end + 1);
        } else if first == '`' {
            add(TokenKind::Raw, &code[begin..=at]);
            return Ok(at + 1);
        } else {
            let escaped = rest.chars().nth(1).map_or(0, char::len_utf8);
            at += first.len_utf8() + if first == '\\' { escaped } else { 0 };
        }
    }
}

/// Returns the position of the closing brace of the expression that begins at `at`.
fn expression_end(code: &str, mut at: usize) -> Result<usize, String> {
    let mut depth = 1;
    while let Some(first) = code[at..].chars().next() {
        match first {
            '`' => at = template(code, at, None)?,
            '\'' | '"' => at += text_length(&code[at..], first)?,
            '}' if depth == 1 => return Ok(at),
            _ => {
                depth += i32::from(first == '{') - i32::from(first == '}');
                at += first.len_utf8();
            }
        }
    }
    Err("an expression in backquotes does not end".to_owned())
}

fn shown(text: &str) -> String {
    text.chars().take(40).collect()
}
