// scenario: stacks: functions that end in a jump to the next one leave no frame; the ones around them do
// build: gcc -O2 -g
#include "expect.h"

static struct tally by_outer = {.name = "tailcall_outer"}, by_leaf = {.name = "tailcall_leaf"},
                    by_direct = {.name = "tailcall_direct"};

ALLOCATING void *tailcall_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_leaf, size);
    tally_alloc(&by_outer, size);
    return p;
}

// Jumps, on purpose; and the last one jumps right into malloc.
ALLOCATING void *tailcall_third(size_t size) { return tailcall_leaf(size + 1); }
ALLOCATING void *tailcall_second(size_t size) { return tailcall_third(size + 1); }
ALLOCATING void *tailcall_to_malloc(size_t size) { return malloc(size); }

ALLOCATING void *tailcall_outer(size_t size) {
    void *p = tailcall_second(size);
    keep(p);
    return p;
}

ALLOCATING void *tailcall_direct(size_t size) {
    void *p = tailcall_to_malloc(size);
    keep(p);
    tally_alloc(&by_direct, size);
    return p;
}

int main(void) {
    for (int i = 0; i < 2000; i++) {
        tailcall_outer(10);
        free(tailcall_direct(20));
        tally_free(&by_direct, 20);
    }
    expect_tally(&by_outer);
    expect_tally(&by_leaf);
    expect_tally(&by_direct);
    say("tail calls\n");
    return 0;
}
