//! A program of another user, in namespaces of its own, is attached to from outside.

use std::path::PathBuf;
use std::process::Command;

use heapprof_tests::built::have;
use heapprof_tests::needs;

use super::{Attach, Waiting, hostile};

#[test]
fn a_container_is_attached_to_from_outside() {
    let container = ["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !have(&["gcc", "setpriv"]) || !needs::namespaces(&container) {
        return;
    }
    let built = hostile("");
    let mut command = Command::new("unshare");
    command.args(container);
    command.args([
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ]);
    command.arg(built.path("program")).arg("");
    // Other users must be able to run the program.
    let folder = built.folder.path();
    Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(folder)
        .status()
        .unwrap();
    let mut program = Waiting::start(command);
    let pid = child_of(program.child.id());
    let attach = Attach::begin(program.folder.path(), &pid, &["--exact"]);
    program.work();
    program.work();
    let said = attach.leave();
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(program.total("alloc_objects"), 20, "{}", said.err);
    let top = program.run(&["top", "--sort", "cum", "p.pb.gz"]).out;
    assert!(top.contains("keep"), "{top}");
    program.input = None;
    assert!(program.child.wait().is_ok());
}

/// Returns the process that `unshare` created.
fn child_of(parent: u32) -> String {
    let path = PathBuf::from(format!("/proc/{parent}/task/{parent}/children"));
    let children = std::fs::read_to_string(path).unwrap();
    children.split_whitespace().next().unwrap().to_string()
}
