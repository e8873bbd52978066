// scenario: stacks: frames whose size is known only while they run: alloca and arrays of variable length
// build: gcc -g
// variant: O0 -O0
// variant: O2 -O2
#include "expect.h"
#include <alloca.h>

static struct tally by_leaf = {.name = "alloca_leaf"}, by_alloca = {.name = "alloca_frame"},
                    by_vla = {.name = "alloca_vla"};

ALLOCATING void *alloca_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_leaf, size);
    return p;
}

ALLOCATING void alloca_vla(int depth, int width);

ALLOCATING void alloca_frame(int depth, int width) {
    char *room = alloca((size_t)width);
    memset(room, depth, (size_t)width);
    keep(room);
    alloca_leaf(20);
    if (depth) alloca_vla(depth - 1, width * 7 % 4001 + 1);
    keep(room);
}

ALLOCATING void alloca_vla(int depth, int width) {
    char room[width];
    memset(room, depth, (size_t)width);
    char *start = room;
    keep(start);
    alloca_leaf(30);
    if (depth) alloca_frame(depth - 1, width * 5 % 4001 + 1);
    keep(start);
}

int main(void) {
    for (int i = 0; i < 500; i++) {
        int depth = i % 30;
        alloca_frame(depth, i * 13 % 3000 + 1);
        // Every block is below an alloca_frame; all but the first one below an alloca_vla as well.
        int by_frames = depth / 2 + 1, by_arrays = (depth + 1) / 2;
        for (int j = 0; j < by_frames; j++) tally_alloc(&by_alloca, 20);
        for (int j = 0; j < by_arrays; j++) tally_alloc(&by_alloca, 30);
        for (int j = 1; j < by_frames; j++) tally_alloc(&by_vla, 20);
        for (int j = 0; j < by_arrays; j++) tally_alloc(&by_vla, 30);
    }
    expect_tally(&by_leaf);
    expect_tally(&by_alloca);
    expect_tally(&by_vla);
    say("frames of all sizes\n");
    return 0;
}
