//! System call filters that kill: whatever a program forbids, it ends as it does without heapprof,
//! because the library checks first whether it may make a system call.

use std::process::{Command, Stdio};

use heapprof_tests::built::{build, have};
use heapprof_tests::harness::{command, ends, ok};

/// Forks a child for each call and each system call number. The child forbids itself the number and
/// makes the call. The parent prints how each child ended.
const PROGRAM: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int numbers[] = {
    SYS_read, SYS_write, SYS_close, SYS_fstat, SYS_poll, SYS_lseek, SYS_mmap, SYS_mprotect,
    SYS_munmap, SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_pread64, SYS_access, SYS_sched_yield,
    SYS_mremap, SYS_mincore, SYS_madvise, SYS_nanosleep, SYS_getpid, SYS_socket, SYS_connect,
    SYS_sendto, SYS_sendmsg, SYS_recvfrom, SYS_clone, SYS_kill, SYS_fcntl, SYS_getdents64,
    SYS_getcwd, SYS_rename, SYS_mkdir, SYS_unlink, SYS_readlink, SYS_fchmod, SYS_gettimeofday,
    SYS_getuid, SYS_getgid, SYS_geteuid, SYS_getegid, SYS_getppid, SYS_capget, SYS_gettid,
    SYS_futex, SYS_clock_gettime, SYS_clock_nanosleep, SYS_tgkill, SYS_openat, SYS_mkdirat,
    SYS_newfstatat, SYS_unlinkat, SYS_renameat, SYS_readlinkat, SYS_fchmodat, SYS_faccessat,
    SYS_ppoll, SYS_prlimit64, SYS_process_vm_readv, SYS_renameat2, SYS_memfd_create,
    SYS_membarrier, SYS_getrandom, SYS_waitid, SYS_getsid, SYS_sigaltstack,
};

static void *work(void *p) { free(malloc(5000)); return p; }

static void *library;

static void make(char call) {
    pthread_t thread;
    struct rlimit limit;
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    switch (call) {
        case 'f': if (fork() == 0) _exit(0); wait(0); break;
        case 'u': setgid(0); setuid(0); setuid(65534); break;
        case 'y': syscall(SYS_setresuid, 65534, 65534, 65534); break;
        case 'c': syscall(SYS_capset, &head, data); break;
        case 'n': unshare(CLONE_NEWUSER); break;
        case 'l': getrlimit(RLIMIT_NOFILE, &limit); setrlimit(RLIMIT_NOFILE, &limit); break;
        case 's': setsid(); break;
        case 'd': dlclose(library); break;
        case 't': pthread_create(&thread, 0, work, 0); pthread_join(thread, 0); break;
        /* There is no such program, so the process goes on. */
        case 'e':
            execl("./nothing", "nothing", (char *)0);
            execl("/etc/passwd", "x", (char *)0);
            break;
        case 'm': for (int i = 0; i < 300; i++) work(0); break;
    }
}

int main(void) {
    library = dlopen("libutil.so.1", RTLD_NOW);
    char *volatile kept = malloc(200000);
    for (int i = 0; i < 200000; i += 4096) kept[i] = 1;
    for (const char *call = "fuycnlsdtem"; *call; call++) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
            /* Whether a join waits for a thread, and so asks the kernel, hangs on the moment. */
            if (*call == 't' && numbers[i] == SYS_futex) continue;
            pid_t child = fork();
            if (child == 0) {
                struct sock_filter filter[] = {
                    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, numbers[i], 0, 1),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                };
                struct sock_fprog program = {4, filter};
                prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
                if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) _exit(77);
                make(*call);
                _exit(33);
            }
            int status = 0;
            waitpid(child, &status, 0);
            printf("%c %d: %d\n", *call, numbers[i], status);
        }
    }
    return 0;
}
"#;

#[test]
fn what_is_forbidden_kills_nobody_that_it_would_not_kill() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -pthread");
    let folder = built.folder.path();
    let bare = ends(&mut Command::new(&built.program));
    assert!(bare.0.lines().count() > 600, "{}", bare.0);
    assert!(
        !bare.0.contains(": 19712"),
        "there are no filters: {}",
        bare.0
    );
    for mode in ["--exact", "--period=64KiB"] {
        let mut recorded = command(folder);
        recorded.args(["record", "--no-symbolize", mode, "-o", "out/", "--"]);
        recorded.stderr(Stdio::null());
        let found = ends(recorded.arg(&built.program));
        let lines = bare.0.lines().zip(found.0.lines());
        let differing: Vec<_> = lines.filter(|(bare, found)| bare != found).collect();
        assert!(differing.is_empty(), "{mode}: {differing:?}");
        assert_eq!(found, bare);
    }
}

/// The library is in a program that is not recorded, and whose filter its parent has installed: no
/// trial comes before its start.
#[test]
fn a_program_that_is_not_recorded_starts_below_a_filter() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    const FILTERED: &str = r#"
        #include <linux/filter.h>
        #include <linux/seccomp.h>
        #include <stddef.h>
        #include <stdlib.h>
        #include <sys/prctl.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(int argc, char **argv) {
            struct sock_filter filter[] = {
                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 1),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
            };
            struct sock_fprog program = {5, filter};
            setenv("LD_PRELOAD", argv[1], 1);
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
            if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
            execlp("true", "true", (char *)0);
            return 78;
        }
    "#;
    let built = build(FILTERED, "gcc -O1");
    let library = ok(&["preload-path"]);
    let ended = Command::new(&built.program).arg(library.trim()).status();
    assert_eq!(ended.unwrap().code(), Some(0));
}

/// An exec reads the file that it is to run, but opens no pipe, because that could release a
/// process that waits for a reader.
#[test]
fn an_exec_opens_no_pipe() {
    if !have(&["gcc", "mkfifo"]) {
        return;
    }
    let source = r#"
#include <errno.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>
int main(void) {
    char events[4096];
    int watch = inotify_init1(IN_NONBLOCK);
    if (inotify_add_watch(watch, "./queue", IN_OPEN) < 0) return 1;
    execl("./queue", "queue", (char *)0);
    printf("%d", errno == EACCES);
    printf(" %d\n", (int)read(watch, events, sizeof events));
    return 0;
}
"#;
    let built = build(source, "gcc -O1");
    built.run("mkfifo -m 755 queue");
    let bare = ends(Command::new(&built.program).current_dir(built.folder.path()));
    let mut recorded = command(built.folder.path());
    recorded.args(["record", "--exact", "-o", "out/", "--", "./program"]);
    assert_eq!(ends(&mut recorded), bare);
    assert_eq!(bare, ("1 -1\n".to_string(), Some(0)));
}
