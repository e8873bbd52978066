//! What somebody who attached and left has not changed: each part of a program's state that
//! `tests/attach/state.c` makes and looks at.

use std::process::Command;

use heapprof_tests::built::{Built, build, have};

use super::Waiting;

const STATE: &str = include_str!("../../attach/state.c");

/// The parts of the state, by the program's first argument.
const PARTS: [&str; 10] = [
    // General registers, flags, x87, SSE, AVX, in the middle of a system call.
    "registers",
    "errno",
    // What the kernel keeps of each signal, stacks for signals, masks, rseq, files, names.
    "kernel",
    // A SIGTRAP that is handled, ignored, or blocked, raised afterwards and by an instruction.
    "trap-handled",
    "trap-ignored",
    "trap-blocked",
    // Signals that wait: standard ones, and queued ones with their values and senders.
    "pending",
    // A handler that runs on a stack for signals.
    "stack",
    // A call that blocks other signals as long as it waits.
    "mask",
    // Signals that come all the time, none of which is lost or comes out of turn.
    "arriving",
];

fn built() -> Built {
    build(STATE, "gcc -O1 -g -masm=intel -no-pie -fno-pie")
}

#[test]
fn each_part_of_the_state_is_as_before() {
    if !have(&["gcc"]) {
        return;
    }
    let built = built();
    for part in PARTS {
        let mut program = Waiting::new(&built.path("program"), part);
        for _ in 0..3 {
            let said = program.attached(0);
            assert_eq!(said.code, 0, "{part}: {}", said.err);
            program.ask();
            assert_eq!(program.answer(), "done\n", "{part}");
        }
        assert_eq!(program.end().code(), Some(7), "{part}");
    }
}

#[test]
fn a_stopped_program_stays_stopped_and_goes_on_as_before() {
    if !have(&["gcc"]) {
        return;
    }
    let built = built();
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
    // Before anybody has attached, and while somebody is attached.
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
