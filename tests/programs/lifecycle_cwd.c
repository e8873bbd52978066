// scenario: lifecycle: the program changes into a folder and removes it under itself
// build: gcc -O2 -g
#include "expect.h"
#include <errno.h>

static struct tally by_block = {.name = "cwd_block"};

ALLOCATING void *cwd_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

int main(void) {
    char folder[] = "/tmp/heapprof-cwd-XXXXXX", where[256];
    REQUIRE(mkdtemp(folder) && chdir(folder) == 0);
    for (int i = 0; i < 100; i++) cwd_block(100);
    // Fails if somebody left a file here.
    REQUIRE(rmdir(folder) == 0);
    REQUIRE(getcwd(where, sizeof where) == NULL && errno == ENOENT);
    for (int i = 0; i < 100; i++) cwd_block(200);
    expect_tally(&by_block);
    say("nowhere\n");
    return 0;
}
