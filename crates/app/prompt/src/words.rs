//! The words of a line: quotes as in a shell, and a file behind `>`.

use anyhow::{Result, bail};

/// Splits a line into words. `> FILE` at the end becomes the option `-o FILE`.
///
/// # Errors
/// A quote has no end, or no file follows `>`.
pub(crate) fn split_line(line: &str) -> Result<Vec<String>> {
    let Some(mut words) = shlex::split(line) else {
        bail!("a quote in the line has no end");
    };
    let file = match words.as_slice() {
        [.., last] if last == ">" => bail!("no file follows >"),
        [.., sign, file] if sign == ">" => Some((2, file.clone())),
        // A quoted rule such as '>5 %' has blanks.
        [_, .., last] if !last.contains(' ') => {
            last.strip_prefix('>').map(|file| (1, file.to_string()))
        }
        _ => None,
    };
    if let Some((taken, file)) = file {
        words.truncate(words.len() - taken);
        words.extend(["-o".to_string(), file]);
    }
    Ok(words)
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
            ("top --fail-if 'flat > 5MB'", "top|--fail-if|flat > 5MB"),
            ("", ""),
        ] {
            assert_eq!(split_line(line).unwrap().join("|"), words, "{line}");
        }
        assert!(split_line("list 'x").is_err());
        assert!(split_line("top >").is_err());
    }
}
