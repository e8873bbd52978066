//! The shells of jeprof, google-pprof and heapprof carry out the same commands.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use super::live::{LIVE, dumped};
use heapprof_tests::built::{build, have};
use heapprof_tests::harness::heapprof;

/// Runs a session. Returns its exit code and what it printed to stdout.
fn session(command: &[&str], folder: &Path, commands: &str) -> (Option<i32>, String) {
    let mut child = Command::new(command[0])
        .args(&command[1..])
        .args(["./program", "exact.2"])
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(commands.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (output.status.code(), text)
}

#[test]
fn sessions_of_jeprof() {
    if !have(&["jeprof", "gcc", "nm", "addr2line", "objdump"]) {
        return;
    }
    let built = build(LIVE, "gcc -g -O0 -fno-omit-frame-pointer -pthread");
    let folder = built.folder.path();
    if !dumped(&built, "exact", "lg_prof_sample:0,prof_accum:true") {
        return;
    }
    for (options, commands) in [
        (&[][..], "top\ntop3 --cum\n\nquit\ntop\n"),
        (
            &["--show_bytes"],
            "top5 -nested -other\r\ntexting\nnothing\ntop1",
        ),
        (&["--alloc_space"], "top2 --lines\ntop2\nlist fill|keep\n"),
        (
            &["--show_bytes", "--cum"],
            "list nested -fill\nlist \nlist nosuch\n",
        ),
        (
            &[],
            "disasm ^worker\ndisasm fill|small -nested\ndisasm nosuch\n",
        ),
        (&["--inuse_objects"], "disasm nested\ntop3\n"),
        (&["--thread=*"], "top1\nquit\ntop2\n"),
        (&["--focus=nested"], "top\nlist other\n"),
    ] {
        let theirs = [&["jeprof", "--interactive"], options].concat();
        let theirs = session(&theirs, folder, commands);
        let program = heapprof();
        let ours = [
            &[program.to_str().unwrap(), "jeprof", "--interactive"],
            options,
        ]
        .concat();
        let ours = session(&ours, folder, commands);
        assert!(theirs.1.contains("Total: "), "{commands:?}: {theirs:?}");
        assert_eq!(ours, theirs, "{options:?} {commands:?}");
    }
}
