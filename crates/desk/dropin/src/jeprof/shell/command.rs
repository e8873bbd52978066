//! The command lines of the shell, parsed as the scripts' patterns do. A command is recognized by
//! its first letters: `topmost` is `top`, and `quitting` is `quit`.

/// A parsed command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShellCommand {
    Quit,
    Help,
    /// The line is blank.
    Nothing,
    /// The line is none of the commands.
    Unknown,
    /// Prints rows, at most `limit` of them.
    Top {
        limit: usize,
        words: CommandWords,
    },
    /// Writes a callgrind file. Without a name, KCachegrind shows a temporary file.
    Callgrind {
        file: String,
    },
    /// Prints source lines of routines.
    List {
        words: CommandWords,
    },
    /// Shows source lines and instructions of routines in a browser.
    WebList {
        words: CommandWords,
    },
    /// Prints instructions of routines.
    Disasm {
        words: CommandWords,
    },
    /// Shows the call graph in a viewer.
    Picture {
        viewer: PictureViewer,
        words: CommandWords,
    },
}

/// A program that shows the call graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PictureViewer {
    /// `gv`, which shows PostScript.
    Gv,
    /// `evince`, which shows PDF.
    Evince,
    /// A browser, which shows SVG.
    Browser,
}

/// The words behind a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct CommandWords {
    /// Regular expression: the words without a dash, as alternatives.
    pub(super) pattern: String,
    /// Regular expression: the words with a dash, as alternatives.
    pub(super) ignore: String,
    /// Whether `--cum` is among the words.
    pub(super) by_cum: bool,
    /// Whether `--lines` is among the words.
    pub(super) by_line: bool,
}

/// Number of rows of a command without a number.
const DEFAULT_ROWS: usize = 10;

impl ShellCommand {
    /// Parses a line, which may end in a line end.
    pub(super) fn parse(line: &str) -> Self {
        let line = line.replace('\r', "");
        let line = line.split('\n').next().unwrap_or_default();
        let line = trim_start(line);
        let after = |name: &str| line.strip_prefix(name);
        if after("quit").is_some() {
            return Self::Quit;
        }
        if after("help").is_some() {
            return Self::Help;
        }
        if let Some(rest) = after("text").or_else(|| after("top")) {
            let words = rest.trim_start_matches(|c: char| c.is_ascii_digit());
            let number = &rest[..rest.len() - words.len()];
            return Self::Top {
                limit: match number {
                    "" => DEFAULT_ROWS,
                    number => number.parse().unwrap_or(usize::MAX),
                },
                words: CommandWords::parse(trim_start(words)),
            };
        }
        if let Some(rest) = after("callgrind") {
            let file = trim_start(rest).split(' ').next().unwrap_or_default();
            return Self::Callgrind {
                file: file.to_string(),
            };
        }
        // These commands need at least one character behind their name.
        let needed = |name: &str| after(name).filter(|rest| !rest.is_empty());
        let words = |rest: &str| CommandWords::parse(trim_start(rest));
        if let Some(rest) = needed("list") {
            return Self::List { words: words(rest) };
        }
        if let Some(rest) = needed("weblist") {
            return Self::WebList { words: words(rest) };
        }
        if let Some(rest) = needed("disasm") {
            return Self::Disasm { words: words(rest) };
        }
        let viewers = [
            ("gv", PictureViewer::Gv),
            ("web", PictureViewer::Browser),
            ("evince", PictureViewer::Evince),
        ];
        for (name, viewer) in viewers {
            if let Some(rest) = after(name) {
                let words = words(rest);
                return Self::Picture { viewer, words };
            }
        }
        match line {
            "" => Self::Nothing,
            _ => Self::Unknown,
        }
    }
}

impl CommandWords {
    fn parse(text: &str) -> Self {
        let mut words = Self::default();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            match word {
                "--lines" | "-lines" => words.by_line = true,
                "--cum" | "-cum" => words.by_cum = true,
                _ => match word.strip_prefix('-') {
                    Some(ignored) => add_alternative(&mut words.ignore, ignored),
                    None => add_alternative(&mut words.pattern, word),
                },
            }
        }
        words
    }
}

fn add_alternative(pattern: &mut String, other: &str) {
    if !pattern.is_empty() {
        pattern.push('|');
    }
    pattern.push_str(other);
}

/// Removes the leading characters that Perl takes for white space.
fn trim_start(text: &str) -> &str {
    text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(pattern: &str, ignore: &str) -> CommandWords {
        CommandWords {
            pattern: pattern.to_string(),
            ignore: ignore.to_string(),
            ..CommandWords::default()
        }
    }

    fn top(limit: usize, words: CommandWords) -> ShellCommand {
        ShellCommand::Top { limit, words }
    }

    fn picture(viewer: PictureViewer, words: CommandWords) -> ShellCommand {
        ShellCommand::Picture { viewer, words }
    }

    #[test]
    fn lines_and_their_commands() {
        let callgrind = |file: &str| ShellCommand::Callgrind {
            file: file.to_string(),
        };
        let list = |words| ShellCommand::List { words };
        for (line, expected) in [
            ("quit\n", ShellCommand::Quit),
            ("  quitting", ShellCommand::Quit),
            ("helpless", ShellCommand::Help),
            ("\n", ShellCommand::Nothing),
            (" \t\r\n", ShellCommand::Nothing),
            ("options", ShellCommand::Unknown),
            ("Top", ShellCommand::Unknown),
            ("top", top(10, words("", ""))),
            ("text 5", top(10, words("5", ""))),
            ("top0", top(0, words("", ""))),
            ("top37 -a -b", top(37, words("", "a|b"))),
            ("topmost\r\n", top(10, words("most", ""))),
            ("top99999999999999999999999", top(usize::MAX, words("", ""))),
            ("callgrind", callgrind("")),
            ("callgrind  a b\n", callgrind("a")),
            ("list", ShellCommand::Unknown),
            ("list ", list(words("", ""))),
            ("listmain", list(words("main", ""))),
            ("list a  b --c -\n", list(words("a|b", "-c|"))),
            (
                "weblist a",
                ShellCommand::WebList {
                    words: words("a", ""),
                },
            ),
            (
                "weblist",
                picture(PictureViewer::Browser, words("list", "")),
            ),
            ("disasm", ShellCommand::Unknown),
            (
                "disasm ^a",
                ShellCommand::Disasm {
                    words: words("^a", ""),
                },
            ),
            ("gv", picture(PictureViewer::Gv, words("", ""))),
            (
                "evince x -y",
                picture(PictureViewer::Evince, words("x", "y")),
            ),
        ] {
            assert_eq!(ShellCommand::parse(line), expected, "{line:?}");
        }
    }

    #[test]
    fn options_among_the_words() {
        let expected = CommandWords {
            by_cum: true,
            by_line: true,
            ..words("a", "cumulative")
        };
        for line in [
            "top --cum -lines a -cumulative",
            "top -cum --lines a -cumulative",
        ] {
            assert_eq!(
                ShellCommand::parse(line),
                top(10, expected.clone()),
                "{line}"
            );
        }
    }
}
