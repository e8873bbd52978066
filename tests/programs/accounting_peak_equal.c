// scenario: accounting: two peaks of the same height by two functions: the profile shows one of them, never a mixture
// build: gcc -O2 -g
#include "expect.h"

#define BLOCKS 1000

static void *blocks[BLOCKS];

ALLOCATING void *equal_first(void) {
    void *p = malloc(10000);
    keep(p);
    return p;
}

ALLOCATING void *equal_second(void) {
    void *p = malloc(10000);
    keep(p);
    return p;
}

int main(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = equal_first();
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    for (int i = 0; i < BLOCKS; i++) blocks[i] = equal_second();
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    expect_numbers(0, "equal_first", BLOCKS, BLOCKS * 10000L, 0, 0);
    expect_numbers(0, "equal_second", BLOCKS, BLOCKS * 10000L, 0, 0);
    expect_words("peak_one_of", "equal_first equal_second", 2, BLOCKS, BLOCKS * 10000L, 0, 0);
    expect_peak_at_least(BLOCKS * 10000L);
    say("equal\n");
    return 0;
}
