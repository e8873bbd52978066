// scenario: process: raw clone(CLONE_VM): a child without a thread's rights allocates in the parent's memory
// build: gcc -O2 -g
#include "expect.h"
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

static struct tally by_parent = {.name = "clone_parent"};
static void *left;

ALLOCATING void *clone_parent(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

// Shares the heap but is another process: whose these are is open, so no claim is made on them.
ALLOCATING void *clone_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

static int child(void *argument) {
    for (int i = 0; i < 2000; i++) free(clone_child(300));
    left = clone_child(500);
    free(argument);
    // Neither handlers nor buffers are this process's to run: the memory is the parent's.
    syscall(SYS_exit, 31);
    return 0;
}

int main(void) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    for (int i = 0; i < 20; i++) {
        for (int j = 0; j < 50; j++) clone_parent(70);
        void *block = clone_child(900);
        // The parent sleeps meanwhile; both have one thread pointer.
        pid_t pid = clone(child, stack + sizeof stack, CLONE_VM | CLONE_VFORK | SIGCHLD, block);
        int status = 0;
        REQUIRE(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 31);
        free(left);
    }
    expect_tally(&by_parent);
    say("cloned\n");
    return 0;
}
