//! A function's name as a regular expression, for prompts that complete names.

/// Returns a regular expression that matches a name. It has no blanks, and the beginning of a name
/// becomes the beginning of the expression. A dot stays, because it also matches itself.
pub fn name_pattern(name: &str) -> String {
    let mut pattern = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            c if c.is_whitespace() => pattern.push_str("\\s"),
            '\\' | '(' | ')' | '[' | ']' | '{' | '}' | '*' | '+' | '?' | '|' | '^' | '$' => {
                pattern.push('\\');
                pattern.push(c);
            }
            c => pattern.push(c),
        }
    }
    pattern
}

/// Returns the beginning of a name that [`name_pattern`] made `pattern` of. What a person typed
/// without escapes stays.
pub fn pattern_name(pattern: &str) -> String {
    let mut name = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some('s') => name.push(' '),
                escaped => name.extend(escaped),
            },
            c => name.push(c),
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_names() {
        for (name, pattern) in [
            ("main.(*tree).insert", "main.\\(\\*tree\\).insert"),
            ("operator new", "operator\\snew"),
            ("a::b<[u8]>::{closure#0}", "a::b<\\[u8\\]>::\\{closure#0\\}"),
            ("C:\\x|y^$+?", "C:\\\\x\\|y\\^\\$\\+\\?"),
        ] {
            assert_eq!(name_pattern(name), pattern, "{name}");
            assert_eq!(pattern_name(pattern), name, "{pattern}");
        }
        assert_eq!(pattern_name("main.(*tr"), "main.(*tr");
        assert_eq!(pattern_name("main.\\"), "main.");
    }
}
