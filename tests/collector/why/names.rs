//! A process is found by its name, its program or its script.

use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::harness::run;

use super::{PROGRAM, WaitingProgram};

#[test]
fn processes_are_found_by_name() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -pthread");
    // Another run of the tests may be under way.
    let word = format!("why-name-{}", std::process::id());
    let word = word.as_str();
    let name = built.path(word);
    copy_program(&built.program, &name);
    let start = || {
        let mut command = Command::new(&name);
        command.arg(built.path("words"));
        WaitingProgram::start(command, false)
    };
    let first = start();
    let place = tempfile::tempdir().unwrap();
    // A folder of this name is no profile.
    std::fs::create_dir(place.path().join(word)).unwrap();
    for words in [vec!["why", word], vec!["why", name.to_str().unwrap()]] {
        let found = run(place.path(), &words);
        assert!(
            found.out.contains(&format!("pid {}", first.pid)),
            "{words:?} {}",
            found.err
        );
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let found = run(elsewhere.path(), &[word]);
    assert!(
        found.out.contains(&format!("pid {}", first.pid)),
        "{}",
        found.err
    );
    let second = start();
    let found = run(elsewhere.path(), &[word]);
    assert_eq!(found.code, 2);
    assert!(found.err.contains(&second.id()), "{}", found.err);
}

#[test]
fn scripts_are_found_by_their_names() {
    if !have(&["perl"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let word = format!("why-script-{}.pl", std::process::id());
    let script = place.path().join(&word);
    std::fs::write(&script, "$| = 1; print \"ready\\n\"; <STDIN>").unwrap();
    let mut perl = Command::new("perl");
    perl.arg(&word).current_dir(place.path());
    let program = WaitingProgram::start(perl, false);
    let elsewhere = tempfile::tempdir().unwrap();
    for (folder, word) in [
        (&elsewhere, word.as_str()),
        (&place, word.as_str()),
        (&elsewhere, script.to_str().unwrap()),
    ] {
        for command in ["why", "heap"] {
            if (command, folder.path()) == ("heap", elsewhere.path()) && !word.starts_with('/') {
                // A name without pid: may be a file of Devel::MAT.
                continue;
            }
            let found = run(folder.path(), &[command, word]);
            assert_eq!(found.code, 0, "{command} {word}: {}", found.err);
            assert!(
                command == "heap" || found.out.contains(&format!("pid {}", program.pid)),
                "{}",
                found.out
            );
        }
    }
}
