//! The command line is a shell: it is small, and its dispatcher is used by nothing below it.

use heapprof_tests::harness::{root, sources};

use super::circles::{module, used};

/// Maximum number of lines of heapprof-cli. What grows beyond it belongs into a crate that another
/// front end could use.
const MAX_CLI_LINES: usize = 12_000;

#[test]
fn the_command_line_is_a_shell() {
    let folder = root().join("crates/app/cli");
    let files = sources()
        .into_iter()
        .filter(|file| file.starts_with(&folder));
    let texts = files.map(|file| std::fs::read_to_string(file).unwrap());
    let lines: usize = texts.map(|text| text.lines().count()).sum();
    assert!(0 < lines && lines <= MAX_CLI_LINES, "{lines}");
}

/// The file that chooses the command uses the commands, and no command uses anything of it but its
/// modules.
#[test]
fn no_command_calls_the_dispatcher() {
    let folder = root().join("crates/app/cli/src");
    let commands = folder.join("command");
    let is_module =
        |name: &str| commands.join(format!("{name}.rs")).is_file() || commands.join(name).is_dir();
    assert!(is_module("top") && !is_module("run"));
    let mut seen = 0;
    for file in sources().iter().filter(|file| file.starts_with(&commands)) {
        let text = std::fs::read_to_string(file).unwrap();
        for path in used(&module(&folder, file), &text) {
            seen += 1;
            if path[0] == "command" {
                let named = path.get(1).map_or("", String::as_str);
                assert!(is_module(named), "{}: {}", file.display(), path.join("::"));
            }
        }
    }
    assert!(seen > 100, "{seen}");
}
