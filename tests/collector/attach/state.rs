//! Attaching and detaching leave a program's state unchanged: each part that `tests/attach/state.c`
//! sets up and checks.

use std::process::Command;

use heapprof_tests::built::{Built, build, have};

use super::{Waiting, compilers};

const STATE: &str = include_str!("../../attach/state.c");

/// The parts of the state, named by the program's first argument.
const PARTS: [&str; 10] = [
    // General registers, flags, x87, SSE and AVX, in the middle of a system call.
    "registers",
    "errno",
    // The kernel's state of each signal, signal stacks, masks, rseq, files, names.
    "kernel",
    // A SIGTRAP that is handled, ignored or blocked, and is raised afterwards by a call and by an
    // instruction.
    "trap-handled",
    "trap-ignored",
    "trap-blocked",
    // Pending signals: standard ones, and queued ones with their values and senders.
    "pending",
    // A handler that runs on a signal stack.
    "stack",
    // A call that blocks other signals while it waits.
    "mask",
    // Signals that arrive all the time. None is lost or out of order.
    "arriving",
];

fn built(compiler: &str) -> Built {
    let options = "-O1 -g -masm=intel -no-pie -fno-pie";
    build(STATE, &format!("{compiler} {options}"))
}

#[test]
fn each_part_of_the_state_is_as_before() {
    compilers().for_each(check_each_part);
}

fn check_each_part(compiler: &str) {
    let built = built(compiler);
    for part in PARTS {
        // It is not known whether a handler has interrupted musl with a lock taken.
        if part == "stack" && compiler.starts_with("musl") {
            continue;
        }
        let mut program = Waiting::new(&built.path("program"), part);
        for _ in 0..3 {
            let said = program.attached(0);
            assert_eq!(said.code, 0, "{compiler} {part}: {}", said.err);
            program.ask();
            assert_eq!(program.answer(), "done\n", "{compiler} {part}");
        }
        assert_eq!(program.end().code(), Some(7), "{compiler} {part}");
    }
}

#[test]
fn a_stopped_program_stays_stopped_and_goes_on_as_before() {
    if !have(&["gcc"]) {
        return;
    }
    let built = built("gcc");
    let mut program = Waiting::new(&built.path("program"), "kernel");
    let signal = |name: &str, pid: &str| {
        let sent = Command::new("kill").args([name, pid]).status().unwrap();
        assert!(sent.success());
    };
    let is_stopped = |pid: &str| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().starts_with('T')
    };
    let pid = program.pid();
    // Before the first attach, and during an attach.
    for is_attached in [false, true] {
        let attach = is_attached.then(|| super::Attach::begin(program.folder.path(), &pid, &[]));
        signal("-STOP", &pid);
        while !is_stopped(&pid) {
            std::thread::yield_now();
        }
        let refused = program.run(&["attach", &pid, "--for", "10ms"]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("it is stopped"), "{}", refused.err);
        assert!(is_stopped(&pid));
        signal("-CONT", &pid);
        if let Some(attach) = attach {
            let left = attach.leave();
            assert_eq!(left.code, 0, "{}", left.err);
        }
        program.work();
    }
    assert_eq!(program.end().code(), Some(7));
}
