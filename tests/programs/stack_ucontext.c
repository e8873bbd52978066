// scenario: stacks: coroutines on mapped stacks allocate, take turns, and their stacks are unmapped and mapped anew
// build: gcc -O2 -g
#include "expect.h"
#include <sys/mman.h>
#include <ucontext.h>

#define COROUTINES 8
#define STACK (64 << 10)

static struct tally by_block = {.name = "coroutine_block"}, by_body = {.name = "coroutine_body"},
                    by_main = {.name = "coroutine_main_block"};
static ucontext_t scheduler, contexts[COROUTINES];

ALLOCATING void *coroutine_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    tally_alloc(&by_body, size);
    return p;
}

ALLOCATING void *coroutine_main_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_main, size);
    return p;
}

ALLOCATING void coroutine_level(int number, int depth) {
    if (depth) {
        coroutine_level(number, depth - 1);
    } else {
        void *p = coroutine_block(50 + (size_t)number);
        // Another stack goes on here, and comes back.
        swapcontext(&contexts[number], &scheduler);
        free(p);
        tally_free(&by_block, 50 + (size_t)number);
        tally_free(&by_body, 50 + (size_t)number);
        coroutine_block(10);
    }
    stay();
}

ALLOCATING void coroutine_body(int number) {
    for (int i = 0; i < 10; i++) coroutine_level(number, number + i);
    stay();
}

int main(void) {
    for (volatile int round = 0; round < 50; round++) {
        void *stacks[COROUTINES];
        for (int i = 0; i < COROUTINES; i++) {
            stacks[i] = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            REQUIRE(stacks[i] != MAP_FAILED);
            getcontext(&contexts[i]);
            contexts[i].uc_stack.ss_sp = stacks[i];
            contexts[i].uc_stack.ss_size = STACK;
            contexts[i].uc_link = &scheduler;
            makecontext(&contexts[i], (void (*)(void))coroutine_body, 1, i);
        }
        for (int turn = 0; turn < 11; turn++) {
            for (int i = 0; i < COROUTINES; i++) {
                swapcontext(&scheduler, &contexts[i]);
                free(coroutine_main_block(40));
                tally_free(&by_main, 40);
            }
        }
        for (int i = 0; i < COROUTINES; i++) munmap(stacks[i], STACK);
        // A stack that was remembered is no stack any more: whoever looks at it dies.
        free(coroutine_main_block(40));
        tally_free(&by_main, 40);
    }
    expect_tally(&by_block);
    expect_tally(&by_body);
    expect_tally(&by_main);
    say("coroutines\n");
    return 0;
}
