// scenario: process: the program installs a seccomp filter that kills for all that it does not call itself, as sshd does (argument: by which call, strict, or lenient)
// build: gcc -O2 -g
// needs: x86-64
#include "expect.h"
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

static struct tally by_block = {.name = "sandbox_block"};

ALLOCATING void *sandbox_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

#define ALLOW(call) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "prctl";
    struct sock_filter narrow[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        ALLOW(SYS_read), ALLOW(SYS_write), ALLOW(SYS_exit_group), ALLOW(SYS_brk), ALLOW(SYS_mmap), ALLOW(SYS_munmap),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_filter lenient[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ptrace, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof narrow / sizeof *narrow, narrow};
    for (int i = 0; i < 1000; i++) free(sandbox_block(100));
    for (int i = 0; i < 1000; i++) tally_free(&by_block, 100);
    for (int i = 0; i < 50; i++) sandbox_block(300);
    if (strcmp(how, "lenient") == 0) {
        program = (struct sock_fprog){sizeof lenient / sizeof *lenient, lenient};
        sandbox_block(5000);
    }
    void (*stop)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "heapprof_stop");
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    // What is no filter changes nothing.
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1);
    REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_STRICT, 1, NULL) == -1);
    REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, NULL) == -1);
    for (int i = 0; i < 30; i++) sandbox_block(40);
    expect_tally(&by_block);
    if (strcmp(how, "strict") == 0) REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    else if (strcmp(how, "syscall") == 0) REQUIRE(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
    else REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    for (int i = 0; i < 1000; i++) {
        void *p = malloc(64);
        keep(p);
        free(p);
    }
    if (stop) stop();
    say("shut in\n");
    if (strcmp(how, "strict") == 0) syscall(SYS_exit, 9);
    _exit(9);
}
