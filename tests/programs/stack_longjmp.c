// scenario: stacks: longjmp out of frames that allocated; others take their place on the stack at once
// build: gcc -O2 -g
#include "expect.h"
#include <setjmp.h>

static struct tally by_deep = {.name = "jump_deep"}, by_other = {.name = "jump_other"},
                    by_level = {.name = "jump_level"}, by_same = {.name = "jump_same_place"};
static jmp_buf back;

ALLOCATING void *jump_deep(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_deep, size);
    return p;
}

ALLOCATING void *jump_other(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_other, size);
    return p;
}

ALLOCATING void jump_level(int depth) {
    volatile char room[40];
    room[0] = (char)depth;
    (void)room[0];
    if (depth == 0) {
        jump_deep(90);
        tally_alloc(&by_level, 90);
        longjmp(back, 1);
    }
    jump_level(depth - 1);
    stay();
}

// The same shape as jump_level, for frames of the same size in the same places.
ALLOCATING void jump_same_place(int depth) {
    volatile char room[40];
    room[0] = (char)depth;
    (void)room[0];
    if (depth == 0) {
        jump_other(91);
        tally_alloc(&by_same, 91);
        return;
    }
    jump_same_place(depth - 1);
    stay();
}

int main(void) {
    for (volatile int i = 0; i < 3000; i++) {
        if (setjmp(back) == 0) jump_level(i % 40);
        jump_same_place(i % 40);
    }
    expect_tally(&by_deep);
    expect_tally(&by_other);
    expect_tally(&by_level);
    expect_tally(&by_same);
    say("jumped\n");
    return 0;
}
