//! heapprof in a second container: it has fewer capabilities than root outside, and can't read the
//! filters of system calls of other containers.

use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{Run, heapprof, is_root};
use heapprof_tests::needs;

use super::{TestContainer, WaitingProgram};

/// The capabilities of root in a container by default, as setpriv names them.
const DEFAULT_CAPABILITIES: &str = "-all,+chown,+dac_override,+fsetid,+fowner,+mknod,+net_raw,\
                                    +setgid,+setuid,+setfcap,+setpcap,+net_bind_service,\
                                    +sys_chroot,+kill,+audit_write";
/// User id of a user without an entry anywhere.
const NOBODY: &str = "65533";

/// Returns heapprof with the capabilities that a container has by default, and others.
fn heapprof_with(others: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.arg(format!("--bounding-set={DEFAULT_CAPABILITIES}{others}"));
    command.arg("--inh-caps=-all").arg(heapprof());
    command
}

/// Runs `attach` to a process for a moment, and writes p.pb.gz.
fn attach(container: &TestContainer, mut heapprof: Command, options: &[&str], pid: &str) -> Run {
    let words = ["attach", "--exact", "--for", "10ms", "-o", "p.pb.gz"];
    heapprof.args(words).args(options).arg(pid);
    Run::from(
        heapprof
            .current_dir(container.folder.path())
            .output()
            .unwrap(),
    )
}

#[test]
fn a_filter_that_cannot_be_read_may_be_trusted() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    if !is_root() || !have(&["setpriv"]) {
        needs::cannot("root, who has capabilities to drop");
        return;
    }
    let filter = build(include_str!("filter.c"), "gcc -O1 -w");
    let mut command = Command::new(&filter.program);
    command.arg(container.app("hold"));
    let mut program = WaitingProgram::start(command);
    let refused = attach(&container, heapprof_with(",+sys_ptrace"), &[], &program.pid);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("or trust the filter"),
        "{}",
        refused.err
    );
    program.work();
    let trusting = ["--trust-filter"];
    let said = attach(
        &container,
        heapprof_with(",+sys_ptrace"),
        &trusting,
        &program.pid,
    );
    assert_eq!(said.code, 0, "{}", said.err);
    program.work();
    // Root outside reads the filter.
    let said = attach(&container, Command::new(heapprof()), &[], &program.pid);
    assert_eq!(said.code, 0, "{}", said.err);
    program.work();
}

#[test]
fn a_process_of_another_user_needs_one_more_capability() {
    let Some(container) = TestContainer::new() else {
        return;
    };
    if !is_root() || !have(&["setpriv"]) {
        needs::cannot("root, who has capabilities to drop");
        return;
    }
    let mut command = Command::new("setpriv");
    let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
    command
        .args(user)
        .arg("--clear-groups")
        .arg(container.app("hold"));
    let mut program = WaitingProgram::start(command);
    let refused = attach(&container, heapprof_with(""), &[], &program.pid);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(
        refused.err.contains("root lacks CAP_SYS_PTRACE"),
        "{}",
        refused.err
    );
    // Without the right to act as the other user, names are those of files that all may read.
    for others in [",+sys_ptrace", ",+sys_ptrace,-setuid,-setgid"] {
        let said = attach(&container, heapprof_with(others), &[], &program.pid);
        assert_eq!(said.code, 0, "{others}: {}", said.err);
        program.work();
    }
}
