//! Reads the name of a process's script, or the title that the process has set, from its command
//! line. These names distinguish processes that run the same interpreter, because their program
//! name is only the interpreter's name.
//!
//! A command line may hold passwords. So nothing else is taken from it, unless the user asks for
//! the whole command line.

/// Maximum number of bytes of a title that are stored.
const MAX_TITLE: usize = 100;

/// Command-line options of an interpreter. After a letter that is in none of these lists, the rest
/// of the command line is not interpreted.
struct InterpreterOptions {
    names: &'static [&'static str],
    /// Option letters without a value. Other option letters may follow in the same word.
    flags: &'static str,
    /// Option letters that a number may follow. Other option letters may follow the number.
    numbers: &'static str,
    /// Option letters whose value is the rest of the word, which may be empty.
    rests: &'static str,
    /// Option letters whose value is the rest of the word or, if that is empty, the next word. In a
    /// shell, the value is always the next word.
    values: &'static str,
    /// Option letters whose value is program text to run.
    codes: &'static str,
    /// Long options without a value. Options whose value follows a `=` need not be listed.
    long_flags: &'static [&'static str],
    /// Long options whose value is the next word.
    long_values: &'static [&'static str],
}

const INTERPRETERS: [InterpreterOptions; 7] = [
    InterpreterOptions {
        names: &["python"],
        flags: "bBdEhiIOPqRsStuvVx?",
        numbers: "",
        rests: "",
        values: "WX",
        codes: "c",
        long_flags: &[],
        long_values: &["--check-hash-based-pycs"],
    },
    InterpreterOptions {
        names: &["perl"],
        flags: "acfghnpsStTuUvwWX",
        numbers: "l0",
        rests: "CdDFimMVx",
        values: "I",
        codes: "eE",
        long_flags: &[],
        long_values: &[],
    },
    InterpreterOptions {
        names: &["ruby"],
        flags: "acdhlnpsSUvwy",
        numbers: "0",
        rests: "FiKTWx",
        values: "CEIrX",
        codes: "e",
        long_flags: &["--jit", "--yjit", "--rjit", "--verbose", "--debug"],
        long_values: &["--encoding", "--external-encoding", "--internal-encoding"],
    },
    InterpreterOptions {
        names: &["node"],
        flags: "chiv",
        numbers: "",
        rests: "",
        values: "Cr",
        codes: "ep",
        long_flags: &[
            "--enable-source-maps",
            "--expose-gc",
            "--expose_gc",
            "--inspect",
            "--inspect-brk",
            "--no-deprecation",
            "--no-warnings",
            "--preserve-symlinks",
            "--trace-warnings",
            "--watch",
        ],
        long_values: &[
            "--conditions",
            "--env-file",
            "--experimental-loader",
            "--import",
            "--loader",
            "--require",
        ],
    },
    InterpreterOptions {
        names: &["php"],
        flags: "aCeHhilmnqsvw",
        numbers: "",
        rests: "",
        values: "cdStz",
        codes: "BREr",
        long_flags: &["--no-php-ini"],
        long_values: &["--define", "--php-ini"],
    },
    InterpreterOptions {
        names: &["lua"],
        flags: "iEvW",
        numbers: "",
        rests: "",
        values: "l",
        codes: "e",
        long_flags: &[],
        long_values: &[],
    },
    InterpreterOptions {
        names: &["sh", "bash", "dash", "ksh", "zsh"],
        flags: "abBCefhHikmnpPrtTuvxEDslqVI",
        numbers: "",
        rests: "",
        values: "oO",
        codes: "c",
        long_flags: &[
            "--login",
            "--noediting",
            "--noprofile",
            "--norc",
            "--posix",
            "--restricted",
            "--verbose",
        ],
        long_values: &["--init-file", "--rcfile"],
    },
];

/// The effect of an option on the meaning of the next words.
#[derive(Debug, PartialEq, Eq)]
enum OptionEffect {
    /// The option does not change the meaning of the next word.
    Same,
    /// The next word is the option's value.
    Value,
    /// The script is a module with this name. If the name is empty, the next word is the name.
    Module(String),
    /// The script cannot be found, because the option holds code or is unknown.
    Nothing,
}

impl InterpreterOptions {
    /// Returns the effect of an option on the meaning of the next words. `word` is the option,
    /// which begins with `-` or `+`.
    fn behind(&self, word: &str) -> OptionEffect {
        if word.starts_with("--") {
            return match word {
                _ if self.long_values.contains(&word) => OptionEffect::Value,
                _ if self.long_flags.contains(&word) || word.contains('=') => OptionEffect::Same,
                _ => OptionEffect::Nothing,
            };
        }
        let is_shell = self.names.contains(&"sh");
        let mut letters = word[1..].chars().peekable();
        // The values of a shell's options come after the whole word.
        let mut wants_value = false;
        while let Some(letter) = letters.next() {
            let rest = || letters.clone().collect::<String>();
            match letter {
                'm' if self.names == ["python"] => return OptionEffect::Module(rest()),
                // The value of PHP's `-f` is the script itself.
                'f' if self.names == ["php"] && rest().is_empty() => return OptionEffect::Same,
                _ if self.codes.contains(letter) => return OptionEffect::Nothing,
                _ if self.values.contains(letter) && is_shell => wants_value = true,
                _ if self.values.contains(letter) => {
                    return match letters.peek() {
                        Some(_) => OptionEffect::Same,
                        None => OptionEffect::Value,
                    };
                }
                _ if self.rests.contains(letter) => return OptionEffect::Same,
                _ if self.numbers.contains(letter) => {
                    while letters.next_if(char::is_ascii_digit).is_some() {}
                }
                _ if self.flags.contains(letter) => {}
                _ => return OptionEffect::Nothing,
            }
        }
        match wants_value {
            true => OptionEffect::Value,
            false => OptionEffect::Same,
        }
    }
}

/// Returns the script that an interpreter runs, without its folder, or `-m MODULE`. Returns `None`
/// if the program is not an interpreter, if the process has set a title, if the interpreter runs
/// code from its command line, or if an option is unknown. `command_line` is the text of
/// `/proc/PID/cmdline`.
pub(crate) fn script(program: &str, command_line: &[u8]) -> Option<String> {
    let name = stem(program);
    let interpreter = INTERPRETERS.iter().find(|of| of.names.contains(&name))?;
    if title(program, command_line).is_some() {
        return None;
    }
    let words = command_line.split(|&byte| byte == 0).skip(1);
    let mut words = words.map(String::from_utf8_lossy);
    while let Some(word) = words.next() {
        if word == "--" {
            return words.next().and_then(|word| last_part(&word));
        }
        let is_shell = interpreter.names.contains(&"sh");
        let is_option = word.starts_with('-') || is_shell && word.starts_with('+');
        if !is_option || word.len() == 1 {
            return last_part(&word);
        }
        match interpreter.behind(&word) {
            OptionEffect::Same => {}
            OptionEffect::Value => drop(words.next()),
            OptionEffect::Module(module) if module.is_empty() => {
                return words.next().map(|module| format!("-m {module}"));
            }
            OptionEffect::Module(module) => return Some(format!("-m {module}")),
            OptionEffect::Nothing => return None,
        }
    }
    None
}

/// Returns the title that a process has set in place of its command line; `None` if the process has
/// set no title.
pub(crate) fn title(program: &str, command_line: &[u8]) -> Option<String> {
    let first = command_line.split(|&byte| byte == 0).next()?;
    let first = String::from_utf8_lossy(&first[..first.len().min(MAX_TITLE)]);
    let text = first.trim();
    let is_path = text.starts_with(['/', '.']);
    let own = text.strip_prefix('-').unwrap_or(text);
    let is_title = match text.contains(' ') {
        true => !is_path,
        false => !text.contains('/') && stem(own) != stem(program),
    };
    (is_title && !text.is_empty()).then(|| text.to_string())
}

/// Returns a command line as words that a shell can read: plain words as they are, other words in
/// quotes, and control characters and bytes that are not text as escapes, as in `$'a\n\xff'`. At
/// most `max` bytes of the command line are used. If bytes were left out, a note at the end says
/// so.
pub(crate) fn whole(program: &str, command_line: &[u8], max: usize) -> String {
    let is_cut = command_line.len() > max;
    let bytes = &command_line[..command_line.len().min(max)];
    // A title leaves zero bytes in place of the former words. Without a title, the last zero byte
    // ends the last word.
    let bytes = match title(program, command_line) {
        Some(_) => {
            &bytes[..bytes
                .iter()
                .rposition(|&byte| byte != 0)
                .map_or(0, |last| last + 1)]
        }
        None => bytes.strip_suffix(b"\0").unwrap_or(bytes),
    };
    let words: Vec<String> = bytes.split(|&byte| byte == 0).map(quoted).collect();
    let mut text = words.join(" ");
    if is_cut {
        text.push_str(&format!(" (cut after {max} bytes)"));
    }
    text
}

/// Quotes a word, if necessary, so that a shell reads the original word.
fn quoted(word: &[u8]) -> String {
    let is_plain = |&byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+=:,./-".contains(&byte);
    let needs_escape = |c: char| c.is_control() || matches!(c, '\'' | '\\');
    match std::str::from_utf8(word) {
        Ok(text) if !text.is_empty() && word.iter().all(is_plain) => text.to_string(),
        Ok(text) if !text.contains(needs_escape) => format!("'{text}'"),
        _ => {
            let mut text = "$'".to_string();
            for chunk in word.utf8_chunks() {
                for c in chunk.valid().chars() {
                    match c {
                        '\n' => text.push_str("\\n"),
                        '\t' => text.push_str("\\t"),
                        '\r' => text.push_str("\\r"),
                        '\'' | '\\' => text.extend(['\\', c]),
                        c if c.is_ascii_control() => text.push_str(&format!("\\x{:02x}", c as u32)),
                        c if c.is_control() => text.push_str(&format!("\\u{:04x}", c as u32)),
                        c => text.push(c),
                    }
                }
                for byte in chunk.invalid() {
                    text.push_str(&format!("\\x{byte:02x}"));
                }
            }
            text.push('\'');
            text
        }
    }
}

/// Returns a program's name without its folder and version.
fn stem(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    name.trim_end_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | '-'))
}

fn last_part(path: &str) -> Option<String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    (!name.is_empty()).then(|| name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_named_and_nothing_else_of_a_command_line() {
        for (program, line, expected) in [
            (
                "python3.11",
                "/usr/bin/python3\0./app/app.py\0--password\0x\0",
                "app.py",
            ),
            (
                "python3",
                "python3\0-u\0-W\0ignore\0-X\0dev\0run.py\0",
                "run.py",
            ),
            ("python", "python\0-um\0pytest\0-k\0secret\0", "-m pytest"),
            ("python3", "python3\0-c\0print('secret')\0", ""),
            ("python3", "python3\0", ""),
            (
                "perl",
                "perl\0-I\0lib\0-Mstrict\0-w\0bin/worker.pl\0-p\0secret\0",
                "worker.pl",
            ),
            ("perl", "perl\0-lane\0print\0file\0", ""),
            ("perl", "perl\0-e\0secret\0", ""),
            ("bash", "-bash\0", ""),
            ("sh", "sh\0-ec\0mysql -psecret\0", ""),
            ("sh", "/bin/sh\0-o\0pipefail\0./build.sh\0", "build.sh"),
            ("ruby3.1", "ruby3.1\0-rjson\0--\0-odd.rb\0", "-odd.rb"),
            (
                "node",
                "node\0--require\0./hook.js\0server.js\0",
                "server.js",
            ),
            ("node", "node\0-e\0secret\0", ""),
            ("perl", "perl\0-esecret\0hunter2\0", ""),
            ("perl", "perl\0-lnesecret\0hunter2\0", ""),
            (
                "perl",
                "perl\0-l012\0-0777\0-MPOSIX=floor\0-i.bak\0x.pl\0",
                "x.pl",
            ),
            ("perl", "perl\0-Ilib\0x.pl\0", "x.pl"),
            ("python3", "python3\0-cprint(1)\0hunter2\0", ""),
            ("python3", "python3\0-Bc\0x\0hunter2\0", ""),
            ("python3", "python3\0-mhttp.server\0", "-m http.server"),
            ("python3", "python3\0-Wignore\0-Xdev\0a.py\0", "a.py"),
            ("python3", "python3\0--new-option\0hunter2\0", ""),
            ("python3", "python3\0-Z\0hunter2\0", ""),
            ("php", "php\0--run\0secret\0", ""),
            ("php", "php\0-rsecret\0hunter2\0", ""),
            ("php", "php\0-d\0memory_limit=1G\0index.php\0", "index.php"),
            ("php", "php\0-qf\0index.php\0", "index.php"),
            ("node", "node\0--loader\0hunter2\0app.js\0", "app.js"),
            ("node", "node\0--max-old-space-size=99\0app.js\0", "app.js"),
            ("node", "node\0-pe\0secret\0", ""),
            ("node", "node\0--eval\0secret\0", ""),
            ("bash", "bash\0-eo\0pipefail\0a.sh\0", "a.sh"),
            ("bash", "bash\0+x\0--norc\0a.sh\0", "a.sh"),
            ("mysql", "mysql\0-psecret\0db\0", ""),
        ] {
            let found = script(program, line.as_bytes()).unwrap_or_default();
            assert_eq!(found, expected, "{line:?}");
            assert_eq!(title(program, line.as_bytes()), None, "{line:?}");
        }
    }

    #[test]
    fn a_whole_command_line_is_words_of_a_shell() {
        let of = |line: &[u8]| whole("app", line, 100);
        assert_eq!(of(b"app\0--to=x,y\0\0a b\0"), "app --to=x,y '' 'a b'");
        assert_eq!(of(b"app\0it's\0c:\\d\0"), r"app $'it\'s' $'c:\\d'");
        assert_eq!(
            of(b"app\0a\nb\xff\x1b\xc2\x85\xc3\xa9\0"),
            r"app $'a\nb\xff\x1b\u0085\u{e9}'".replace(r"\u{e9}", "\u{e9}")
        );
        assert_eq!(of(b"app: idle\0\0\0"), "'app: idle'");
        let long = [&b"app\0"[..], &[b'x'; 200]].concat();
        let cut = format!("app {} (cut after 100 bytes)", "x".repeat(96));
        assert_eq!(of(&long), cut);
    }

    #[test]
    fn a_title_is_what_a_process_has_set() {
        for (program, line, expected) in [
            (
                "nginx",
                "nginx: worker process\0\0\0\0",
                "nginx: worker process",
            ),
            ("perl", "worker 3\0\0\0", "worker 3"),
            ("perl", "worker3\0\0\0", "worker3"),
            (
                "python3.11",
                "gunicorn: worker [app]\0",
                "gunicorn: worker [app]",
            ),
            ("vim.basic", "vim\0-u\0x\0", "vim"),
        ] {
            assert_eq!(title(program, line.as_bytes()).as_deref(), Some(expected));
            assert_eq!(script(program, line.as_bytes()), None);
        }
        assert_eq!(title("app", b""), None);
        assert_eq!(title("app", b"/opt/my app/app\0x\0"), None);
        let long = "w ".repeat(200);
        assert!(title("app", long.as_bytes()).unwrap().len() <= MAX_TITLE);
    }
}
