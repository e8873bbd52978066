// scenario: stacks: a chain of inlined functions ends in malloc: each of them is named, and counted once
// build: gcc -g
// variant: O2 -O2
// variant: O3-no-pie -O3 -no-pie
#include "expect.h"

#define INLINED static inline __attribute__((always_inline))

static struct tally by_host = {.name = "inline_host"}, by_outer = {.name = "inline_outer"},
                    by_middle = {.name = "inline_middle"}, by_inner = {.name = "inline_inner"},
                    by_other = {.name = "inline_other"};

INLINED void *inline_inner(size_t size) {
    tally_alloc(&by_inner, size);
    void *p = malloc(size);
    keep(p);
    return p;
}

INLINED void *inline_middle(size_t size) {
    tally_alloc(&by_middle, size);
    return inline_inner(size + 1);
}

INLINED void *inline_outer(size_t size) {
    tally_alloc(&by_outer, size + 1);
    return inline_middle(size);
}

INLINED void *inline_other(size_t size) {
    tally_alloc(&by_other, size);
    return inline_inner(size);
}

ALLOCATING void inline_host(int i) {
    size_t size = 10 + (size_t)i % 10;
    void *p = inline_outer(size);
    keep(p);
    tally_alloc(&by_host, size + 1);
    p = inline_other(size);
    keep(p);
    tally_alloc(&by_host, size);
    p = inline_inner(5);
    keep(p);
    tally_alloc(&by_host, 5);
    stay();
}

int main(void) {
    for (int i = 0; i < 1000; i++) inline_host(i);
    // What inline_middle asks for is one more than it was asked for.
    by_middle.alloc_space += by_middle.alloc_objects;
    const struct tally *all[] = {&by_host, &by_outer, &by_middle, &by_inner, &by_other};
    for (int i = 0; i < 5; i++) expect_tally(all[i]);
    say("inlined\n");
    return 0;
}
