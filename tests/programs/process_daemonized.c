// scenario: process: daemon(3), whose parent ends by libc's own exit; both have a profile
// build: gcc -O2 -g
#include "expect.h"
#include <sys/wait.h>

static struct tally by_parent = {.name = "before_daemon"};

ALLOCATING void *before_daemon(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

int main(void) {
    for (int i = 0; i < 300; i++) before_daemon(1000);
    expect_tally(&by_parent);
    say("goes\n");
    REQUIRE(daemon(1, 1) == 0);
    return 0;
}
