// scenario: lifecycle: the program closes every descriptor there is, in the midst of its work, and opens its own
// build: gcc -O2 -g
#include "expect.h"

static struct tally by_block = {.name = "fds_block"};

ALLOCATING void *fds_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

int main(void) {
    for (int i = 0; i < 1000; i++) fds_block(100);
    say("closing\n");
    for (int fd = 0; fd < 1024; fd++) close(fd);
    for (int i = 0; i < 1000; i++) fds_block(200);
    // The lowest numbers must be free: daemons rely on it.
    int first = open("/dev/null", O_RDWR), second = open("/dev/null", O_RDWR), third = open("/dev/null", O_RDWR);
    if (first != 0 || second != 1 || third != 2) return 98;
    expect_tally(&by_block);
    return 19;
}
