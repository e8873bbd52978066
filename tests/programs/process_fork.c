// scenario: process: fork; the child has a profile and numbers of its own, the parent keeps its own
// build: gcc -O2 -g
#include "expect.h"
#include <sys/wait.h>

static struct tally by_parent = {.name = "fork_parent"}, by_child = {.name = "fork_child"};

ALLOCATING void *fork_parent(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

ALLOCATING void *fork_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_child, size);
    return p;
}

int main(void) {
    void *shared[100];
    for (int i = 0; i < 100; i++) shared[i] = fork_parent(1000);
    pid_t pid = fork();
    if (pid == 0) {
        // The parent's blocks are the child's to free: its copy of them, no business of the parent's.
        for (int i = 0; i < 100; i++) free(shared[i]);
        for (int i = 0; i < 500; i++) {
            void *p = fork_child(200);
            if (i % 2) {
                tally_free(&by_child, 200);
                free(p);
            }
        }
        expect_tally_of_child(&by_child);
        say("child\n");
        exit(3);
    }
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    for (int i = 0; i < 50; i++) {
        tally_free(&by_parent, 1000);
        free(shared[i]);
        fork_parent(10);
    }
    expect_tally(&by_parent);
    expect_tally(&by_child); // All zeros here: the child's allocations are not the parent's.
    say("parent\n");
    return 0;
}
