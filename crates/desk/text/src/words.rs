//! Folds texts of words into lines.

use unicode_width::UnicodeWidthStr;

/// Returns the lines of a text, each of at most `columns` terminal columns. A word that is wider
/// has a line of its own.
#[must_use]
pub fn fold_words(text: &str, columns: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut width = 0;
    for word in text.split(' ') {
        let (Some(line), of_word) = (lines.last_mut(), word.width()) else {
            break;
        };
        if !line.is_empty() && width + 1 + of_word > columns {
            lines.push(word.to_string());
            width = of_word;
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            width += 1;
        }
        line.push_str(word);
        width += of_word;
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        for (text, columns, expected) in [
            ("one two three", 7, vec!["one two", "three"]),
            ("one two three", 13, vec!["one two three"]),
            ("a-word-that-is-long b", 4, vec!["a-word-that-is-long", "b"]),
            ("", 4, vec![""]),
            ("\u{30c7}\u{30fc} x", 5, vec!["\u{30c7}\u{30fc}", "x"]),
        ] {
            assert_eq!(fold_words(text, columns), expected, "{text:?}");
        }
    }
}
