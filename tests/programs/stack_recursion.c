// scenario: stacks: recursion of 10,000 frames that allocates on its way, and one of 200 that must be whole
// build: gcc -O2 -g
#include "expect.h"

static struct tally by_root = {.name = "recursion_root"}, by_step = {.name = "recursion_step"},
                    by_whole_root = {.name = "recursion_whole_root"}, by_whole_leaf = {.name = "recursion_whole_leaf"},
                    by_whole_step = {.name = "recursion_whole_step"};

ALLOCATING void recursion_step(int depth) {
    if (depth % 50 == 0) {
        void *p = malloc(100);
        keep(p);
        tally_alloc(&by_root, 100);
        tally_alloc(&by_step, 100);
        if (depth % 100) {
            free(p);
            tally_free(&by_root, 100);
            tally_free(&by_step, 100);
        }
    }
    if (depth) recursion_step(depth - 1);
    stay();
}

// The side of the root is kept, however deep it goes.
ALLOCATING void recursion_root(int depth) {
    recursion_step(depth);
    stay();
}

ALLOCATING void *recursion_whole_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_whole_root, size);
    tally_alloc(&by_whole_step, size);
    tally_alloc(&by_whole_leaf, size);
    return p;
}

ALLOCATING void recursion_whole_step(int depth) {
    if (depth) recursion_whole_step(depth - 1);
    else recursion_whole_leaf(64);
    stay();
}

ALLOCATING void recursion_whole_root(int depth) {
    recursion_whole_step(depth);
    stay();
}

int main(void) {
    for (int i = 0; i < 5; i++) recursion_root(10000);
    for (int i = 0; i < 200; i++) recursion_whole_root(i);
    const struct tally *all[] = {&by_root, &by_step, &by_whole_root, &by_whole_step, &by_whole_leaf};
    for (int i = 0; i < 5; i++) expect_tally(all[i]);
    say("deep\n");
    return 0;
}
