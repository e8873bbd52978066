// scenario: oracle: random trees of calls through frames of all kinds, 20,000 allocations on the way (argument: seed)
// build: gcc -g
// variant: O0 -O0
// variant: O2 -O2 -fomit-frame-pointer
// variant: O2-framed -O2 -fno-omit-frame-pointer
// variant: O3 -O3
// variant: no-pie -O2 -no-pie -fcf-protection=none
#include "expect.h"
#include <alloca.h>
#include <malloc.h>
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

#define ALLOCATIONS 20000
#define DEEPEST 60
#define FRAMED __attribute__((optimize("no-omit-frame-pointer")))
#define BARE __attribute__((optimize("omit-frame-pointer")))

typedef long node(int depth, long a, long b);
static node *const nodes[];
#define NODES 16

static unsigned long state;
static long made, budget;
static void *ring[64];
static jmp_buf *escape;

static unsigned random_below(unsigned n) { return (unsigned)(next_random(&state) >> 33) % n; }

// Sizes hardly ever come twice, so that the sums of two stacks differ.
#define SIZE() (16 + (size_t)random_below(1 << 16))

static inline __attribute__((always_inline)) void put(void *p) {
    void **place = &ring[made++ % 64];
    free(*place);
    *place = p;
}

static inline __attribute__((always_inline)) void allocate(void) {
    switch (random_below(6)) {
    case 0: put(calloc(1, SIZE())); break;
    case 1: {
        void **place = &ring[random_below(64)];
        void *p = realloc(*place, SIZE());
        *place = p;
        made++;
        break;
    }
    case 2: put(memalign(64, SIZE())); break;
    default: put(malloc(SIZE()));
    }
}

// What a frame does: allocates, calls others, in an order of its own.
static inline __attribute__((always_inline)) long work(int depth, long a, long b) {
    for (unsigned turns = random_below(4); turns != ~0u; turns--) {
        if (made >= budget) break;
        if (depth == 0 || random_below(3) == 0) allocate();
        else a += nodes[random_below(NODES)](depth - 1, b, a);
    }
    stay();
    return a - b;
}

#define NODE(name, attributes) static __attribute__((noinline, noclone)) attributes long name(int depth, long a, long b)

NODE(plain, ) { return work(depth, a, b); }
NODE(framed, FRAMED) { return work(depth, a, b); }
NODE(bare, BARE) { return work(depth, a, b); }

NODE(big, ) {
    char room[1234];
    memset(room, (int)a, sizeof room);
    long sum = work(depth, a, b);
    keep(sum);
    return sum + room[b & 1023];
}

NODE(growing, ) {
    char *room = alloca(random_below(700) + 1);
    *room = (char)a;
    keep(room);
    return work(depth, a, b) + *room;
}

NODE(growing_twice, BARE) {
    char first[random_below(99) + 1];
    first[0] = 1;
    long sum = work(depth, a, b);
    char *room = alloca(random_below(3000) + 1);
    *room = first[0];
    keep(room);
    return sum + work(depth > 1 ? 1 : 0, a, b) + *room;
}

NODE(aligned, ) {
    _Alignas(64) char room[192];
    char *p = room;
    keep(p);
    room[a & 127] = 1;
    return work(depth, a, b) + p[b & 127];
}

NODE(aligned_growing, ) {
    _Alignas(128) char room[128];
    char *p = room, *more = alloca(random_below(500) + 1);
    keep(p);
    keep(more);
    *more = 2;
    return work(depth, a, b) + *more;
}

// Enough live values for every register that survives calls, rbp too.
NODE(crowded, BARE) {
    long c = a * 3, d = b * 5, e = a ^ b, f = a + depth, g = b - depth, h = a | 1;
    keep(c); keep(d); keep(e); keep(f); keep(g); keep(h);
    long sum = work(depth, c, d);
    keep(c); keep(d); keep(e); keep(f); keep(g); keep(h);
    return sum + c + d + e + f + g + h;
}

NODE(crowded_framed, FRAMED) {
    long c = a * 3, d = b * 5, e = a ^ b, f = a + depth, g = b - depth;
    keep(c); keep(d); keep(e); keep(f); keep(g);
    long sum = work(depth, c, d);
    keep(c); keep(d); keep(e); keep(f); keep(g);
    return sum + c + d + e + f + g;
}

// rbp holds what looks like a place on the stack, or none at all.
NODE(misleading, BARE) {
    long *lie = random_below(2) ? (long *)__builtin_frame_address(0) + random_below(9) : (long *)a;
    keep(lie);
    long c = a, d = b, e = depth, f = a + 1, g = b + 1;
    keep(c); keep(d); keep(e); keep(f); keep(g);
    long sum = work(depth, a, b);
    keep(lie); keep(c); keep(d); keep(e); keep(f); keep(g);
    return sum + (long)lie + c + d + e + f + g;
}

// The last thing is a call: a jump where the compiler makes one.
NODE(tail, ) { return depth ? nodes[(a ^ b) & 7](depth - 1, b, a) : b; }

// Many arguments: pushed, so that the stack pointer moves between calls.
__attribute__((noinline, noclone)) static long pushed(long a, long b, long c, long d, long e, long f, long g, long h,
                                                      int depth) {
    return work(depth, a + c + e + g, b + d + f + h);
}
NODE(pushing, BARE) { return depth ? pushed(a, b, a, b, a, b, a, b, depth - 1) + a : 0; }

NODE(jumped, ) {
    jmp_buf here, *before = escape;
    volatile long sum = a;
    if (setjmp(here) == 0) {
        escape = &here;
        sum += work(depth, a, b);
    }
    escape = before;
    return sum;
}

NODE(jumping, ) {
    if (escape && random_below(8) == 0) longjmp(*escape, 1);
    return work(depth, a, b);
}

static void handler(int number) {
    for (unsigned turns = random_below(3); turns != ~0u; turns--) allocate();
    keep(number);
}

NODE(signalled, ) {
    raise(random_below(2) ? SIGUSR1 : SIGUSR2);
    return work(depth, a, b);
}

static node *const nodes[NODES] = {
    plain,   framed,         bare,       big,  growing, growing_twice, aligned, aligned_growing,
    crowded, crowded_framed, misleading, tail, pushing, jumped,        jumping, signalled,
};

// The same on stacks of our own, in turns with the thread's.
static ucontext_t home, away;

static void coroutine(void) {
    for (;;) {
        work(20, 1, 2);
        swapcontext(&away, &home);
    }
}

int main(int argc, char **argv) {
    static char signal_room[1 << 20], room[1 << 20];
    state = 88172645463325252ul + (argc > 1 ? strtoul(argv[1], NULL, 10) : 0);
    stack_t alternative = {.ss_sp = signal_room, .ss_size = sizeof signal_room};
    REQUIRE(sigaltstack(&alternative, NULL) == 0);
    struct sigaction action = {.sa_handler = handler};
    sigaction(SIGUSR1, &action, NULL);
    action.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR2, &action, NULL);
    getcontext(&away);
    away.uc_stack.ss_sp = room;
    away.uc_stack.ss_size = sizeof room;
    makecontext(&away, coroutine, 0);
    // A tree may grow for long, so each has a budget.
    while (made < ALLOCATIONS) {
        budget = made + 200;
        nodes[random_below(NODES)]((int)random_below(DEEPEST), 3, 4);
        if (random_below(4) == 0) {
            // No jump may lead from one stack to the other.
            jmp_buf *before = escape;
            escape = NULL;
            budget = made + 200;
            swapcontext(&home, &away);
            escape = before;
        }
    }
    say("grown\n");
    return 0;
}
