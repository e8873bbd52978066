// scenario: process: unshare(CLONE_NEWUSER), which the kernel refuses to a process of more than one thread
// build: gcc -O2 -g
#include "expect.h"
#include <errno.h>
#include <sched.h>

static struct tally by_block = {.name = "unshare_block"};

ALLOCATING void *unshare_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

int main(void) {
    for (int i = 0; i < 3000; i++) unshare_block(1000);
    expect_numbers(0, by_block.name, 4000, 4000000, 4000, 4000000);
    // May be forbidden on this machine; then it is so with and without a profiler.
    int answer = unshare(CLONE_NEWUSER);
    say_number("unshare", answer == 0 ? 0 : errno);
    for (int i = 0; i < 1000; i++) unshare_block(1000);
    return 0;
}
