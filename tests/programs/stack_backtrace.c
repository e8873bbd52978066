// scenario: stacks: the program unwinds itself, by glibc's backtrace, which loads a library at its first call
// build: gcc -O2 -g -rdynamic
#include "expect.h"
#include <execinfo.h>

static struct tally by_block = {.name = "backtrace_block"};

ALLOCATING void *backtrace_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

ALLOCATING int backtrace_level(int depth) {
    int frames;
    if (depth) {
        frames = backtrace_level(depth - 1);
    } else {
        void *addresses[100];
        backtrace_block(100);
        frames = backtrace(addresses, 100);
        char **names = backtrace_symbols(addresses, frames);
        backtrace_block(200);
        REQUIRE(names && strstr(names[0], "backtrace_level"));
        free(names);
    }
    keep(frames);
    return frames;
}

int main(void) {
    int first = backtrace_level(0);
    for (int i = 0; i < 1000; i++) REQUIRE(backtrace_level(i % 50) == first + i % 50);
    expect_tally(&by_block);
    say("own backtraces\n");
    return 0;
}
