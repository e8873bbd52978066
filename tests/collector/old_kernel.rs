//! Kernels without the system calls that came after Linux 3.10: a filter returns ENOSYS for these,
//! to `record` and to the program.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use heapprof_tests::built::{Built, build, have};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{Run, heapprof, run};

use crate::attach::{Waiting, hostile};

/// Returns ENOSYS for every system call whose number is greater than the first argument, or equals
/// the second.
const FILTER: &str = r#"
    #include <errno.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <stdlib.h>
    #include <sys/prctl.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        unsigned last = atoi(argv[1]), other = atoi(argv[2]);
        struct sock_filter all[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, other, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { 5, all };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 90;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 91;
        execvp(argv[3], argv + 3);
        return 92;
    }
"#;

/// Keeps 1,000 blocks of 1,000 bytes, has a child and a thread, and may kill itself or wait.
const PROGRAM: &str = r#"
    #include <pthread.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *volatile kept[100000];
    static int count;
    __attribute__((noinline)) void *leaf(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    static void *work(void *none) {
        for (int i = 0; i < 500; i++) kept[count++] = leaf(1000);
        return none;
    }
    int main(int argc, char **argv) {
        pthread_t thread;
        work(0);
        pthread_create(&thread, 0, work, 0);
        pthread_join(thread, 0);
        if (!strcmp(argv[1], "child")) {
            pid_t child = fork();
            if (!child) {
                for (int i = 0; i < 2000; i++) kept[count++] = leaf(100);
                return 5;
            }
            int status;
            waitpid(child, &status, 0);
            printf("child %d\n", WEXITSTATUS(status));
        }
        puts("held 1000000");
        fflush(stdout);
        if (!strcmp(argv[1], "kill")) raise(SIGKILL);
        if (!strcmp(argv[1], "wait")) getchar();
        return 3;
    }
"#;

/// System calls that old kernels or filters of containers lack, besides memfd_create.
const NEWER_CALLS: [(&str, i32); 14] = [
    ("process_vm_readv", 310),
    ("renameat2", 316),
    ("getrandom", 318),
    ("userfaultfd", 323),
    ("membarrier", 324),
    ("copy_file_range", 326),
    ("statx", 332),
    ("pidfd_send_signal", 424),
    ("pidfd_open", 434),
    ("clone3", 435),
    ("close_range", 436),
    ("openat2", 437),
    ("pidfd_getfd", 438),
    ("faccessat2", 439),
];
/// Number of memfd_create.
const MEMFD_CREATE: &str = "319";
/// Number of the last system call of Linux 3.10 (finit_module).
const LAST: &str = "313";
/// Number that no system call has.
const NONE: &str = "99999";

/// Builds the filter, with the program in the same folder.
fn built() -> Built {
    let built = build(FILTER, "gcc -O1 -g");
    std::fs::write(built.path("held.c"), PROGRAM).unwrap();
    built.run("gcc -O1 -g -pthread held.c -o held");
    built
}

fn recorded(folder: &Path, built: &Built, denied: [&str; 2], options: &[&str], how: &str) -> Run {
    let mut command = Command::new(built.path("program"));
    command
        .args(denied)
        .arg(heapprof())
        .args(["record", "-o", "p.pb.gz"])
        .args(options)
        .arg("--")
        .arg(built.path("held"))
        .arg(how);
    Run::from(command.current_dir(folder).output().unwrap())
}

#[test]
fn profiles_are_written_without_newer_system_calls() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = built();
    for options in [
        &["--exact"][..],
        &["--period", "4KiB"],
        &["--exact", "--threads"],
    ] {
        for how in ["", "child"] {
            let folder = tempfile::tempdir().unwrap();
            let denied = [LAST, NONE];
            let said = recorded(folder.path(), &built, denied, options, how);
            let out = if how == "child" {
                "child 5\nheld 1000000\n"
            } else {
                "held 1000000\n"
            };
            assert_eq!((said.code, &*said.out), (3, out), "{}", said.err);
            assert!(!said.err.contains("could not be written"), "{}", said.err);
            let words = ["top", "-t", "inuse_space", "-f", "json", "p.pb.gz"];
            let total = json(folder.path(), &words)["total"].as_i64().unwrap();
            let is_so = match options[0] {
                "--exact" => (1_000_000..1_100_000).contains(&total),
                _ => (500_000..2_000_000).contains(&total),
            };
            assert!(is_so, "{options:?} {how}: {total}\n{}", said.err);
            let top = run(folder.path(), &["top", "p.pb.gz"]).out;
            assert!(top.contains("leaf"), "{top}");
        }
    }
}

/// Without files in memory, a killed program leaves nothing, and `record` explains why and what
/// helps.
#[test]
fn a_killed_program_without_memory_files_is_said() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = built();
    for options in [&["--exact"][..], &["--period", "4KiB"]] {
        let folder = tempfile::tempdir().unwrap();
        let said = recorded(folder.path(), &built, [LAST, NONE], options, "kill");
        assert_eq!(
            (said.code, &*said.out),
            (137, "held 1000000\n"),
            "{}",
            said.err
        );
        let is_told = [
            "no profile",
            "signal 9",
            "a file in memory could not be created",
            "--interval",
        ];
        assert!(
            is_told.iter().all(|text| said.err.contains(text)),
            "{}",
            said.err
        );
    }
}

/// Each system call is missing alone, in a run that is killed: only memfd_create is needed for the
/// profile of a killed program.
#[test]
fn each_newer_system_call_can_be_missing_alone() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = built();
    let every = i32::MAX.to_string();
    for (name, number) in NEWER_CALLS {
        for how in ["", "kill"] {
            let folder = tempfile::tempdir().unwrap();
            let denied = [&*every, &*number.to_string()];
            let said = recorded(folder.path(), &built, denied, &["--exact"], how);
            let code = if how == "kill" { 137 } else { 3 };
            assert_eq!(
                (said.code, &*said.out),
                (code, "held 1000000\n"),
                "{name} {}",
                said.err
            );
            let words = ["top", "-t", "inuse_space", "-f", "json", "p.pb.gz"];
            let total = json(folder.path(), &words)["total"].as_i64().unwrap();
            let is_so = (1_000_000..1_100_000).contains(&total);
            assert!(is_so, "{name} {how}: {total}\n{}", said.err);
        }
    }
}

/// `attach` works without each of these calls, in itself and in the program. Only the program must
/// be able to make a file in memory; if it can't, one line says so, and the program goes on.
#[test]
fn attach_works_without_newer_calls_or_says_why_not() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let (filter, program) = (built(), hostile(""));
    let (every, program) = (i32::MAX.to_string(), program.path("program"));
    let filtered = |denied: [&str; 2]| {
        let mut command = Command::new(filter.path("program"));
        command.args(denied);
        command
    };
    let attach = |mut command: Command, waiting: &Waiting| {
        command.args(["attach", &waiting.pid(), "--for", "10ms", "-o", "p.pb.gz"]);
        Run::from(command.current_dir(waiting.folder.path()).output().unwrap())
    };
    let numbers = NEWER_CALLS.map(|(_, number)| number.to_string());
    let alone = numbers.iter().map(|number| [&*every, number]);
    for denied in alone.chain([[&every, MEMFD_CREATE], [LAST, NONE]]) {
        // The calls are missing for attach.
        let waiting = Waiting::new(&program, "");
        let mut command = filtered(denied);
        command.arg(heapprof());
        let said = attach(command, &waiting);
        assert_eq!(said.code, 0, "{denied:?}: {}", said.err);
        assert!(waiting.folder.path().join("p.pb.gz").exists());
        assert_eq!(waiting.end().code(), Some(7), "{denied:?}");
        // They are missing for the program.
        let mut command = filtered(denied);
        command.arg(&program).arg("");
        let mut waiting = Waiting::start(command);
        let said = attach(Command::new(heapprof()), &waiting);
        let has_files = denied != [&*every, MEMFD_CREATE] && denied != [LAST, NONE];
        assert_eq!(said.code, if has_files { 0 } else { 2 }, "{}", said.err);
        if !has_files {
            assert_eq!(said.err.lines().count(), 1, "{}", said.err);
            assert!(said.err.contains("memfd_create"), "{}", said.err);
        }
        waiting.work();
        assert_eq!(waiting.end().code(), Some(7), "{denied:?}");
    }
}

/// `dump` works without each of these calls, in itself and in the program. It needs no file in
/// memory, unlike the profile of a killed program.
#[test]
fn dump_works_without_newer_calls() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = built();
    // Other tests record programs, too. The name is no other's.
    let name = format!("held{}", std::process::id());
    std::fs::copy(built.path("held"), built.path(&name)).unwrap();
    let every = i32::MAX.to_string();
    let numbers = NEWER_CALLS.map(|(_, number)| number.to_string());
    let alone = numbers.iter().map(|number| [&*every, number]);
    for denied in alone.chain([[&every, MEMFD_CREATE], [LAST, NONE]]) {
        for is_of_dump in [true, false] {
            let filtered = |is_so: bool| {
                let mut command = Command::new(built.path("program"));
                command.args(if is_so { denied } else { [&every, NONE] });
                command.arg(heapprof());
                command
            };
            let folder = tempfile::tempdir().unwrap();
            let mut record = filtered(!is_of_dump);
            record.args(["record", "--exact", "-q", "--"]);
            record.arg(built.path(&name)).arg("wait");
            record.current_dir(folder.path());
            let mut record = record
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut said = String::new();
            let mut out = BufReader::new(record.stdout.take().unwrap());
            out.read_line(&mut said).unwrap();
            assert_eq!(said, "held 1000000\n", "{denied:?}");
            let mut dump = filtered(is_of_dump);
            dump.args(["dump", &name, "-o", "d.pb.gz"]);
            let said = Run::from(dump.current_dir(folder.path()).output().unwrap());
            assert_eq!(said.code, 0, "{denied:?}: {}", said.err);
            let words = ["top", "-t", "inuse_space", "-f", "json", "d.pb.gz"];
            let total = json(folder.path(), &words)["total"].as_i64().unwrap();
            let is_so = (1_000_000..1_100_000).contains(&total);
            assert!(is_so, "{denied:?} {total}");
            drop(record.stdin.take());
            assert_eq!(record.wait().unwrap().code(), Some(3), "{denied:?}");
        }
    }
}
