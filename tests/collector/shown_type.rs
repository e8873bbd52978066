//! The sample type that reports show if the user names none: the peak of a program that freed most
//! of it before it ended, and what is in use in all other profiles.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use heapprof_profile::decode;
use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{command, run};

/// Holds 1,000,000 bytes in `grow`, frees all but a share of them, and ends as the second argument
/// says.
const PROGRAM: &str = r#"
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static char *volatile kept[100];
    __attribute__((noinline)) static void grow(void) {
        for (int i = 0; i < 100; i++) kept[i] = malloc(10000);
    }
    int main(int argc, char **argv) {
        grow();
        for (int i = atoi(argv[1]); i < 100; i++) free(kept[i]);
        if (!strcmp(argv[2], "kill")) kill(getpid(), SIGKILL);
        if (!strcmp(argv[2], "exec")) execl("/bin/true", "true", (char *)0);
        if (!strcmp(argv[2], "wait")) {
            printf("%d\n", getpid());
            fflush(stdout);
            getchar();
        }
        return argc > 9;
    }
"#;

fn program() -> Option<Built> {
    have(&["gcc"]).then(|| build(PROGRAM, "gcc -O1 -g"))
}

/// Records the program, and returns the profile's path.
fn recorded(built: &Built, kept: &str, end: &str) -> String {
    let folder = built.folder.path();
    let name = format!("{kept}.{end}.pb.gz");
    let record = ["record", "--exact", "-q", "-o", &name];
    let said = run(
        folder,
        &[&record[..], &["--", "./program", kept, end]].concat(),
    );
    assert!(matches!(said.code, 0 | 137), "{}", said.err);
    let of_first_program = std::fs::read_dir(folder).unwrap().find_map(|entry| {
        let found = entry.unwrap().file_name().into_string().unwrap();
        let is_it = end == "exec" && found.starts_with(&format!("{kept}.{end}."));
        (is_it && found != name).then_some(found)
    });
    of_first_program.unwrap_or(name)
}

/// The sample type that a file names, and the one that `top` shows of it.
fn shown(folder: &Path, file: &str) -> [String; 2] {
    let profile = decode(std::fs::File::open(folder.join(file)).unwrap()).unwrap();
    let top = json(folder, &["top", "-f", "json", file]);
    [
        profile.text(profile.default_sample_type).to_string(),
        top["sample_type"]["type"].as_str().unwrap().to_string(),
    ]
}

#[test]
fn a_finished_program_is_shown_where_its_memory_was() {
    let Some(built) = program() else {
        return;
    };
    let folder = built.folder.path();
    for (kept, end, expected) in [
        ("3", "return", "peak_space"),
        ("49", "return", "peak_space"),
        ("51", "return", "inuse_space"),
        ("100", "return", "inuse_space"),
        ("3", "kill", "peak_space"),
        ("60", "kill", "inuse_space"),
        ("3", "exec", "peak_space"),
    ] {
        let file = recorded(&built, kept, end);
        assert_eq!(shown(folder, &file), [expected; 2], "{kept} {end}");
        let top = run(folder, &["top", &file]).out;
        let says_peak = top.contains("Peak values are shown. At the end, ");
        assert_eq!(says_peak, expected == "peak_space", "{kept} {end}: {top}");
        let rows = json(folder, &["top", "-f", "json", &file]);
        assert_eq!(rows["rows"][0]["function"], "grow", "{kept} {end}");
        for (short, whole) in [("inuse", "inuse_space"), ("peak", "peak_space")] {
            let top = json(folder, &["top", "-t", short, "-f", "json", &file]);
            assert_eq!(top["sample_type"]["type"], whole);
        }
    }
}

/// Both sides of a comparison show one type. A gate is about what is in use, whatever the profiles
/// show by themselves.
#[test]
fn a_comparison_has_one_type() {
    let Some(built) = program() else {
        return;
    };
    let folder = built.folder.path();
    let [freed, small, kept] = ["3", "5", "100"].map(|kept| recorded(&built, kept, "return"));
    let compared = |words: &[&str]| {
        let diff = json(folder, &[&["diff", "-f", "json"], words].concat());
        diff["sample_type"]["type"].as_str().unwrap().to_string()
    };
    assert_eq!(compared(&[&freed, &small]), "peak_space");
    assert_eq!(compared(&[&freed, &kept]), "inuse_space");
    assert_eq!(compared(&[&kept, &freed]), "inuse_space");
    let gate = ["--fail-if", "new > 1TiB", &freed, &small];
    assert_eq!(compared(&gate), "inuse_space");
    assert_eq!(
        compared(&[&["-t", "peak"], &gate[..]].concat()),
        "peak_space"
    );
    // The peak did not change, and what is in use grew by two thirds.
    let gate = ["diff", "--fail-if", "flat(grow) > +50%", &freed, &small];
    assert_eq!(run(folder, &gate).code, 1);
}

/// A program that still runs is shown as it is now.
#[test]
fn a_running_program_is_shown_as_it_is() {
    let Some(built) = program() else {
        return;
    };
    let folder = built.folder.path();
    let mut record = command(folder);
    record.args(["record", "--exact", "-q", "-o", "w.pb.gz", "--"]);
    record.args(["./program", "3", "wait"]);
    record.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = record.spawn().unwrap();
    let mut pid = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut pid).unwrap();
    let running = format!("pid:{}", pid.trim());
    let top = json(folder, &["top", "-f", "json", &running]);
    assert_eq!(top["sample_type"]["type"], "inuse_space");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    assert_eq!(shown(folder, "w.pb.gz"), ["peak_space"; 2]);
}
