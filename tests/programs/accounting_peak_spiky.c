// scenario: accounting: many spikes, the highest neither first nor last; who holds what at that moment
// build: gcc -O2 -g
#include "expect.h"

#define BLOCK 4096
#define BLOCKS 4000

static void *spikes[BLOCKS], *floors[BLOCKS];

ALLOCATING void *spiky_spike(void) {
    void *p = malloc(BLOCK);
    keep(p);
    return p;
}

ALLOCATING void *spiky_floor(void) {
    void *p = malloc(BLOCK);
    keep(p);
    return p;
}

// Allocated and freed before the highest moment: no part of it.
ALLOCATING void *spiky_before(void) {
    void *p = malloc(BLOCK * 100);
    keep(p);
    return p;
}

// Allocated after it: as little.
ALLOCATING void *spiky_after(void) {
    void *p = malloc(BLOCK * 200);
    keep(p);
    return p;
}

static const int heights[] = {100, 900, 300, 2500, 10, 3999, 5, 3998, 3000, 1};

int main(void) {
    for (int turn = 0; turn < 10; turn++) {
        void *before = turn < 5 ? spiky_before() : NULL;
        floors[turn] = spiky_floor();
        free(before);
        for (int i = 0; i < heights[turn]; i++) spikes[i] = spiky_spike();
        for (int i = 0; i < heights[turn]; i++) free(spikes[i]);
    }
    // The highest is the eighth, by one block: 3,998 spikes and eight floors against 3,999 and six.
    for (int i = 0; i < 3; i++) free(spiky_after());
    expect_numbers(0, "spiky_spike", 14813, 14813L * BLOCK, 0, 0);
    expect_numbers(0, "spiky_floor", 10, 10L * BLOCK, 10, 10L * BLOCK);
    expect_peak("spiky_spike", 3998, 3998L * BLOCK);
    expect_peak("spiky_floor", 8, 8L * BLOCK);
    expect_peak("spiky_before", 0, 0);
    expect_peak("spiky_after", 0, 0);
    expect_peak_at_least(4006L * BLOCK);
    say("spikes\n");
    return 0;
}
