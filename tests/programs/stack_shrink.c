// scenario: stacks: a thread's first allocation is on a coroutine's stack, which is unmapped; a shorter one comes to its place
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

static struct tally by_leaf = {.name = "shrink_leaf"};
static ucontext_t caller, coroutine;
static void *place;

ALLOCATING void *shrink_leaf(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_leaf, size);
    return p;
}

// Frames at equal distances: some lie where frames of the longer stack lay.
__attribute__((noinline, noclone)) static void down(int depth) {
    if (depth)
        down(depth - 1);
    else
        for (int i = 0; i < 4; i++) shrink_leaf(33);
    stay();
}

static void deep(void) { down(600); }

static void shallow(void) { down(20); }

static void run(void (*function)(void), size_t size) {
    void *stack = mmap(place, size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | (place ? MAP_FIXED : 0), -1, 0);
    REQUIRE(stack != MAP_FAILED);
    place = stack;
    getcontext(&coroutine);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = size;
    coroutine.uc_link = &caller;
    makecontext(&coroutine, function, 0);
    swapcontext(&caller, &coroutine);
    munmap(stack, size);
}

static void *thread(void *argument) {
    run(deep, 64 << 10);
    for (size_t size = 60 << 10; size >= 8 << 10; size -= 4 << 10) run(shallow, size);
    return argument;
}

int main(void) {
    pthread_t made;
    REQUIRE(pthread_create(&made, NULL, thread, NULL) == 0);
    pthread_join(made, NULL);
    expect_tally(&by_leaf);
    say("shrunk\n");
    return 0;
}
