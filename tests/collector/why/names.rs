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
    let name = built.path("why-name-test");
    copy_program(&built.program, &name);
    let start = || {
        let mut command = Command::new(&name);
        command.arg(built.path("words"));
        WaitingProgram::start(command, false)
    };
    let first = start();
    let place = tempfile::tempdir().unwrap();
    // A folder of this name is no profile.
    std::fs::create_dir(place.path().join("why-name-test")).unwrap();
    for words in [
        vec!["why", "why-name-test"],
        vec!["why", name.to_str().unwrap()],
    ] {
        let found = run(place.path(), &words);
        assert!(
            found.out.contains(&format!("pid {}", first.pid)),
            "{words:?} {}",
            found.err
        );
    }
    let elsewhere = tempfile::tempdir().unwrap();
    let found = run(elsewhere.path(), &["why-name-test"]);
    assert!(
        found.out.contains(&format!("pid {}", first.pid)),
        "{}",
        found.err
    );
    let second = start();
    let found = run(elsewhere.path(), &["why-name-test"]);
    assert_eq!(found.code, 2);
    assert!(found.err.contains(&second.id()), "{}", found.err);
}

#[test]
fn scripts_are_found_by_their_names() {
    if !have(&["perl"]) {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let script = place.path().join("why-script-test.pl");
    std::fs::write(&script, "$| = 1; print \"ready\\n\"; <STDIN>").unwrap();
    let mut perl = Command::new("perl");
    perl.arg("why-script-test.pl").current_dir(place.path());
    let program = WaitingProgram::start(perl, false);
    let elsewhere = tempfile::tempdir().unwrap();
    for (folder, word) in [
        (&elsewhere, "why-script-test.pl"),
        (&place, "why-script-test.pl"),
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
