// scenario: accounting: blocks that come from behind the hooks and are freed through them, and the other way round
// build: gcc -O2 -g
#include "expect.h"

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);

static struct tally by_seen = {.name = "unmatched_seen"}, by_regrow = {.name = "unmatched_regrow"};
static void *behind[1000];

ALLOCATING void *unmatched_seen(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_seen, size);
    return p;
}

// The old block was never seen, the new one is.
ALLOCATING void *unmatched_regrow(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_regrow, size);
    return p;
}

// Freed behind the hooks: stays in the profile until its address comes back. No claim is made on it.
ALLOCATING void *unmatched_vanishing(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

int main(void) {
    for (int i = 0; i < 1000; i++) behind[i] = __libc_malloc(50);
    for (int i = 0; i < 500; i++) free(behind[i]);
    for (int i = 500; i < 1000; i++) behind[i] = unmatched_regrow(behind[i], 80);
    for (int i = 500; i < 700; i++) {
        tally_free(&by_regrow, 80);
        free(behind[i]);
    }
    // The same addresses over and over: the stale entry must give way to the block that is there now.
    for (int i = 0; i < 1000; i++) {
        __libc_free(unmatched_vanishing(120));
        void *p = unmatched_seen(120);
        if (i % 2) {
            tally_free(&by_seen, 120);
            free(p);
        }
    }
    expect_tally(&by_seen);
    expect_tally(&by_regrow);
    say("unmatched\n");
    return 0;
}
