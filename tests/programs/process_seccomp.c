// scenario: process: a seccomp filter forbids new threads and processes, or opening files (argument: clone or open)
// build: gcc -O2 -g
// needs: x86-64
#include "expect.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

static struct tally by_block = {.name = "seccomp_block"};

ALLOCATING void *seccomp_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

static void forbid(const int *calls, int count) {
    struct sock_filter code[32];
    unsigned short n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0);
    for (int i = 0; i < count; i++) {
        code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1);
        code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {n, code};
    REQUIRE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    REQUIRE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

int main(int argc, char **argv) {
    int opening = argc > 1 && strcmp(argv[1], "open") == 0;
    for (int i = 0; i < 1000; i++) seccomp_block(100);
    expect_numbers(0, by_block.name, 6000, 1100000, 6000, 1100000);
    if (opening) {
        const int calls[] = {SYS_open, SYS_openat, SYS_creat, SYS_openat2};
        forbid(calls, 4);
        REQUIRE(open("/dev/null", O_RDONLY) == -1 && errno == EPERM);
    } else {
        const int calls[] = {SYS_clone, SYS_clone3, SYS_fork, SYS_vfork};
        forbid(calls, 4);
        REQUIRE(fork() == -1);
    }
    for (int i = 0; i < 5000; i++) seccomp_block(200);
    say(opening ? "no files\n" : "no children\n");
    return 33;
}
