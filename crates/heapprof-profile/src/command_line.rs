//! What a process calls itself besides its program's name, so that the workers of one interpreter
//! can be told apart: its script, or a title that it has set.
//!
//! A command line may hold passwords. So nothing of it is taken but the name of a script, unless
//! somebody asks for the whole of it.

/// The longest title that is kept, in bytes.
const MAX_TITLE: usize = 100;

/// Options of interpreters that are followed by a value, by the interpreter's name.
const WITH_VALUE: [(&str, &[&str]); 6] = [
    ("python", &["-W", "-X", "--check-hash-based-pycs"]),
    ("perl", &["-I"]),
    ("ruby", &["-I", "-r"]),
    ("node", &["-r", "--require", "--import", "-C"]),
    ("php", &["-c", "-d"]),
    ("lua", &["-l"]),
];

/// Shells, whose options with a value are the same.
const SHELLS: [&str; 5] = ["sh", "bash", "dash", "ksh", "zsh"];

/// The script that an interpreter runs, without its folder, or `-m MODULE`; `None` for a program
/// that is no interpreter, and for one that was given its code. `command_line` is the text of
/// `/proc/PID/cmdline`.
pub(crate) fn script(program: &str, command_line: &[u8]) -> Option<String> {
    let name = stem(program);
    let is_shell = SHELLS.contains(&name);
    let with_value = match WITH_VALUE.iter().find(|(of, _)| *of == name) {
        Some((_, options)) => options,
        None if is_shell => &["-o", "+o", "-O", "+O"][..],
        None => return None,
    };
    if title(program, command_line).is_some() {
        return None;
    }
    let words = command_line.split(|&byte| byte == 0).skip(1);
    let mut words = words.map(String::from_utf8_lossy);
    while let Some(word) = words.next() {
        if word == "--" {
            return words.next().and_then(|word| last_part(&word));
        }
        if with_value.contains(&&*word) {
            words.next();
            continue;
        }
        let Some(letters) = word.strip_prefix('-').filter(|letters| !letters.is_empty()) else {
            return last_part(&word);
        };
        let last = letters.chars().next_back();
        let is_long = letters.starts_with('-');
        let gives_code = match name {
            "python" => !is_long && last == Some('c'),
            "php" => letters == "r",
            "node" => matches!(letters, "e" | "p" | "pe" | "-eval" | "-print"),
            _ if is_shell => !is_long && letters.contains('c'),
            _ => !is_long && matches!(last, Some('e' | 'E')),
        };
        if gives_code {
            return None;
        }
        if name == "python" && !is_long && last == Some('m') {
            return words.next().map(|module| format!("-m {module}"));
        }
    }
    None
}

/// The title that a process has set in the place of its command line; `None` if it has not.
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

/// Puts a command line into words of a shell: one that is nothing but a plain word as it is, others
/// in quotes, with control characters and bytes that are no text as escapes, as in `$'a\n\xff'`.
/// At most `max` bytes of it are shown; whether there is more is said behind them.
pub(crate) fn whole(program: &str, command_line: &[u8], max: usize) -> String {
    let is_cut = command_line.len() > max;
    let bytes = &command_line[..command_line.len().min(max)];
    // A title leaves zeros where the words were. Otherwise the last one ends the last word.
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

/// A word as a shell reads it.
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

/// A program's name without its version.
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
