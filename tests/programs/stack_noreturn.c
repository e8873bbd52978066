// scenario: stacks: a call that never returns is a function's last instruction: its return address is the next function's
// build: gcc -O2 -g -falign-functions=1 -fno-toplevel-reorder -fno-reorder-functions
#include "expect.h"
#include <setjmp.h>

static struct tally by_callee = {.name = "noreturn_callee"}, by_caller = {.name = "noreturn_caller"},
                    by_next = {.name = "noreturn_next"};
static jmp_buf back;

ALLOCATING __attribute__((noreturn)) void noreturn_callee(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_callee, size);
    tally_alloc(&by_caller, size);
    longjmp(back, 1);
}

ALLOCATING void noreturn_caller(size_t size) {
    noreturn_callee(size + 1);
}

// Right behind; it allocates nothing, and nothing may be charged to it.
ALLOCATING int noreturn_next(int number) {
    keep(number);
    return number + 1;
}

int main(void) {
    for (volatile int i = 0; i < 2000; i++) {
        if (setjmp(back) == 0) noreturn_caller(100);
        REQUIRE(noreturn_next(i) == i + 1);
    }
    expect_tally(&by_callee);
    expect_tally(&by_caller);
    expect_tally(&by_next);
    say("no return\n");
    return 0;
}
