//! The command line is a shell: its dispatcher is used by nothing below it.

use heapprof_tests::harness::{root, sources};
use regex::Regex;

/// The file that chooses the command uses the commands, and no command uses it.
#[test]
fn no_command_calls_the_dispatcher() {
    let folder = root().join("crates/app/cli/src");
    let dispatcher = std::fs::read_to_string(folder.join("command.rs")).unwrap();
    let function = Regex::new(r"(?m)^(?:pub\S* )?fn (\w+)").unwrap();
    let names: Vec<&str> = function
        .captures_iter(&dispatcher)
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    assert!(names.contains(&"run"), "{names:?}");
    let up = Regex::new(&format!(r"\bcommand::({})\b", names.join("|"))).unwrap();
    // In a file of the folder itself, `super` is the dispatcher.
    let next_up = Regex::new(&format!(r"\bsuper::({})\b", names.join("|"))).unwrap();
    let commands = folder.join("command");
    for file in sources().iter().filter(|file| file.starts_with(&commands)) {
        let text = std::fs::read_to_string(file).unwrap();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let is_next = file.parent() == Some(&commands);
        let found = up.find(text).or(next_up.find(text).filter(|_| is_next));
        assert!(found.is_none(), "{}: {found:?}", file.display());
    }
}
