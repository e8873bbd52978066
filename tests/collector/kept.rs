//! Saved ledgers: programs that can't have a file for one, and copies of a process that were not
//! reported to the library.

use std::path::Path;
use std::process::Command;

use heapprof_tests::built::{build, have};
use heapprof_tests::executables::copy_program;
use heapprof_tests::fixtures::row_of;
use heapprof_tests::harness::{Run, heapprof, root, run};
use heapprof_tests::needs;

/// Runs `record` with a program through a launcher. Returns its output, its messages and its exit
/// code.
fn recorded(folder: &Path, launcher: &[&str], options: &[&str], words: &[&str]) -> Run {
    let heapprof = heapprof().to_str().unwrap();
    let all = [
        launcher,
        &[
            heapprof,
            "record",
            "--exact",
            "--no-symbolize",
            "--keep-small",
        ],
        options,
        &["-o", "p.pb.gz", "--"],
        words,
    ]
    .concat();
    let mut command = Command::new(all[0]);
    command.args(&all[1..]).current_dir(folder);
    Run::from(command.output().unwrap())
}

/// Prints its live heap, in itself and in a child made by a bare clone, and then kills itself if
/// its arguments say so.
const BY_ITSELF: &str = r#"
    #define _GNU_SOURCE
    #include <sched.h>
    #include <signal.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void *volatile kept[40000];
    __attribute__((noinline)) void *leaf(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    __attribute__((noinline)) void *other(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    int main(int argc, char **argv) {
        for (int i = 0; i < 1000; i++) kept[i] = leaf(100);
        if (strchr(argv[1], 'c')) {
            long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
            if (!child) {
                for (int i = 0; i < 1000; i++) free(kept[i]);
                for (int i = 0; i < 30000; i++) kept[i] = other(50);
                _exit(7);
            }
            int status;
            waitpid(child, &status, 0);
            printf("child %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
        }
        printf("held 100000\n");
        fflush(stdout);
        if (strchr(argv[1], 'k')) raise(SIGKILL);
        return 3;
    }
"#;

/// Installs a filter and executes a program. The filter denies one system call, or kills the
/// process that makes it.
const FILTER: &str = r#"
    #include <errno.h>
    #include <linux/filter.h>
    #include <linux/seccomp.h>
    #include <stddef.h>
    #include <string.h>
    #include <sys/prctl.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    int main(int argc, char **argv) {
        int result = strcmp(argv[1], "kill") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_KILL_PROCESS;
        struct sock_filter all[] = {
            BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
            BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_memfd_create, 0, 1),
            BPF_STMT(BPF_RET | BPF_K, result),
            BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        };
        struct sock_fprog program = { 4, all };
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 90;
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 91;
        execvp(argv[2], argv + 2);
        return 92;
    }
"#;

/// If no file can be had for the ledger, the program runs as it does without heapprof, and the last
/// line says why a kill would leave no profile.
#[test]
fn limits_are_said_and_change_nothing() {
    if !have(&["gcc"]) {
        return;
    }
    let (built, filter) = (build(BY_ITSELF, "gcc -O1 -g"), build(FILTER, "gcc -O1 -g"));
    let (program, filter) = (built.path("program"), filter.path("program"));
    let (program, filter) = (program.to_str().unwrap(), filter.to_str().unwrap());
    let sized = ["sh", "-c", "ulimit -f 2000; exec \"$@\"", "sh"];
    let spaced = ["sh", "-c", "ulimit -v 400000; exec \"$@\"", "sh"];
    for (launcher, why) in [
        (&[][..], None),
        (
            &sized[..],
            Some("(files may have no more than 1024000 bytes)"),
        ),
        (&spaced, None),
        (
            &[filter, "deny"],
            Some("(a file in memory could not be created: Operation not permitted (os error 1))"),
        ),
        (
            &[filter, "kill"],
            Some("(a system call filter kills processes that create a file in memory)"),
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let run = |word| recorded(folder.path(), launcher, &[], &[program, word]);
        let ended = run("x");
        assert_eq!(
            (ended.code, ended.out.as_str()),
            (3, "held 100000\n"),
            "{}",
            ended.err
        );
        let line = ended.err.lines().next().unwrap();
        match why {
            Some(why) => assert!(
                line.contains("in private memory") && line.contains(why),
                "{line}"
            ),
            None => assert!(!line.contains("private"), "{launcher:?}: {line}"),
        }
        std::fs::remove_file(folder.path().join("p.pb.gz")).unwrap();
        let killed = run("k");
        assert_eq!((killed.code, killed.out.as_str()), (137, "held 100000\n"));
        let left = folder.path().join("p.pb.gz").exists();
        assert_eq!(left, why.is_none(), "{launcher:?}: {}", killed.err);
        assert!(
            why.is_none_or(|why| killed.err.contains(why)),
            "{}",
            killed.err
        );
    }
}

/// A child of a bare clone, which bypasses libc's handlers, does not count in its parent's ledger.
#[test]
fn a_bare_clone_does_not_count_for_its_parent() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(BY_ITSELF, "gcc -O1 -g -fno-builtin");
    let program = built.path("program");
    for words in ["ck", "c"] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let ended = recorded(folder, &[], &[], &[program.to_str().unwrap(), words]);
        let code = if words == "c" { 3 } else { 137 };
        assert_eq!(ended.code, code, "{}", ended.err);
        assert_eq!(ended.out, "child 7\nheld 100000\n");
        let symbolize = ["symbolize", "p.pb.gz", "-o", "named.pb.gz"];
        assert_eq!(run(folder, &symbolize).code, 0);
        let top = ["top", "-n", "0", "-f", "json", "named.pb.gz"];
        let top = run(folder, &top).out;
        let leaf = row_of(&top, "leaf");
        assert!(
            leaf == Some([100_000; 2]) && !top.contains("\"function\":\"other\""),
            "{words}: {top}"
        );
    }
}

/// A /proc in which users can't see the processes of others (`hidepid`) changes nothing.
#[test]
fn a_hidden_proc_is_no_obstacle() {
    let own_proc = ["-mpf", "--mount-proc"];
    if !have(&["gcc", "setpriv"]) || !needs::namespaces(&own_proc) {
        return;
    }
    let built = build(BY_ITSELF, "gcc -O1 -g");
    let folder = tempfile::tempdir().unwrap();
    let program = built.path("program");
    let script = "mount -o remount,hidepid=2 /proc 2>/dev/null || exit 77; chmod 777 .; \
                  exec setpriv --reuid 65534 --clear-groups env HOME=/ TMPDIR=/tmp \"$@\"";
    let bin = tempfile::tempdir().unwrap();
    for (from, to) in [(heapprof(), "heapprof"), (&program, "program")] {
        copy_program(from, &bin.path().join(to));
    }
    for open in [bin.path(), folder.path()] {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o777)).unwrap();
    }
    let (heapprof, program) = (bin.path().join("heapprof"), bin.path().join("program"));
    let mut command = Command::new("unshare");
    command.args(own_proc).args(["sh", "-c", script, "sh"]);
    command.arg(heapprof);
    command.args(["record", "--exact", "-o", "p.pb.gz", "--"]);
    let output = command.arg(program).arg("k").current_dir(folder.path());
    let run = Run::from(output.output().unwrap());
    if run.code == 77 {
        needs::cannot("root, for a namespace with a /proc of its own");
        return;
    }
    assert_eq!(
        (run.code, run.out.as_str()),
        (137, "held 100000\n"),
        "{}",
        run.err
    );
    assert!(run.err.contains("was killed by SIGKILL"), "{}", run.err);
}

/// Ends in the way that its first argument names, after an exec that fails if there is a second
/// argument.
const ENDS: &str = r#"
    #include <signal.h>
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    static void *volatile kept[2000];
    __attribute__((noinline)) void *leaf(size_t size) { void *p = malloc(size); memset(p, 1, size); return p; }
    int main(int argc, char **argv) {
        for (int i = 0; i < 1000; i++) kept[i] = leaf(100);
        if (argc > 2) {
            execl("/nonexistent/program", "program", (char *)0);
            for (int i = 0; i < 10; i++) kept[1000 + i] = leaf(100);
            sleep(6);
        }
        if (*argv[1] == 'k') raise(SIGKILL);
        if (*argv[1] == 'a') abort();
        return 0;
    }
"#;

/// A program has one last profile, whether it writes the profile itself or is killed, even after a
/// failed exec.
#[test]
fn there_is_one_last_profile() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(ENDS, "gcc -O1 -g -fno-builtin");
    let program = built.path("program");
    let program = program.to_str().unwrap();
    for (words, bytes, is_kept, files) in [
        (&[program, "a"][..], 100_000, false, 1),
        (&[program, "k"], 100_000, true, 1),
        // The profile that was written before the exec stays beside the last one.
        (&[program, "k", "exec"], 101_000, true, 2),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let ended = recorded(folder, &[], &[], words);
        let said = ended.err.contains("shows the moment at which");
        assert_eq!(said, is_kept, "{words:?}: {}", ended.err);
        let there = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(there, files, "{words:?}: {}", ended.err);
        let symbolize = ["symbolize", "p.pb.gz", "-o", "named.pb.gz"];
        assert_eq!(run(folder, &symbolize).code, 0, "{}", ended.err);
        let top = run(folder, &["top", "-n", "0", "-f", "json", "named.pb.gz"]).out;
        assert_eq!(row_of(&top, "leaf"), Some([bytes; 2]), "{words:?}: {top}");
    }
}

/// Loads one plugin late, and another one in a child, which then only waits and is killed.
const LOADS: &str = r#"
    #include <dlfcn.h>
    #include <signal.h>
    #include <unistd.h>
    #include <sys/wait.h>
    static void load(const char *name) {
        void *library = dlopen(name, RTLD_NOW);
        void *(**entry)(unsigned long) = dlsym(library, "plugin_entry");
        for (int i = 0; i < 20; i++) (*entry)(200000);
    }
    int main(int argc, char **argv) {
        sleep(1);
        load(argv[1]);
        if (fork() == 0) {
            load(argv[2]);
            usleep(100000);
            raise(SIGKILL);
        }
        wait(0);
    }
"#;

/// A child has its own share of time for scans of loaded code, regardless of how recently its
/// parent scanned.
#[test]
fn a_killed_child_has_names_of_what_it_loaded() {
    if !have(&["gcc"]) {
        return;
    }
    let built = build(LOADS, "gcc -O1 -g -fno-builtin");
    let source = root().join("tests/programs/lib_plugin.c");
    for plugin in ["early", "late"] {
        built.run(&format!(
            "gcc -O1 -g -shared -fPIC -fno-builtin -DSHIFT=0 -DPLUGIN={plugin} {} -o {plugin}.so",
            source.display()
        ));
    }
    let folder = tempfile::tempdir().unwrap();
    let paths = ["program", "early.so", "late.so"].map(|name| built.path(name));
    let words = paths.each_ref().map(|path| path.to_str().unwrap());
    let ended = recorded(folder.path(), &[], &[], &words);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let children = std::fs::read_dir(folder.path().join("p.children")).unwrap();
    let child = children.last().unwrap().unwrap().path();
    let named = ["symbolize", child.to_str().unwrap(), "-o", "named.pb.gz"];
    assert_eq!(run(folder.path(), &named).code, 0, "{}", ended.err);
    let top = ["top", "-f", "json", "-t", "alloc_space", "named.pb.gz"];
    let top = run(folder.path(), &top).out;
    assert_eq!(row_of(&top, "late"), Some([4_000_000; 2]), "{top}");
}

/// A killed Python process leaves its profile, although some of its stacks are the oldest part of
/// others.
#[test]
fn a_killed_python_leaves_its_profile() {
    if !have(&["python3"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script =
        "import os, json\nkept = [dict(a=i) for i in range(9999)]\nos.kill(os.getpid(), 9)";
    let ended = recorded(folder.path(), &[], &[], &["python3", "-c", script]);
    assert_eq!(ended.code, 137);
    assert!(ended.err.contains("was killed by SIGKILL"), "{}", ended.err);
    let top = run(folder.path(), &["top", "-f", "json", "p.pb.gz"]);
    assert_eq!(top.code, 0, "{}", top.err);
}
