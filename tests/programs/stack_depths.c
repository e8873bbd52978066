// scenario: stacks: recursion that goes down and up again thousands of calls deep, and allocates here and there on its way
// build: gcc -O2 -g
#include "expect.h"

static struct tally by_root = {.name = "depths_root"};

// Where to go next, and how many calls there are to an allocation on the way: 0 is none.
static const int plan[][2] = {
    {1500, 10}, {900, 7}, {1700, 9}, {3000, 100}, {2600, 3}, {2650, 1}, {2500, 1}, {2620, 1}, {9000, 400}, {8700, 4}, {7000, 60},
    {300, 300}, {4000, 0}, {3990, 1}, {250, 0}, {6000, 0}, {5990, 1}, {5000, 5}, {600, 100}, {500, 1}, {1300, 20}, {40, 1000}, {520, 3}, {8900, 100}, {0, 300},
};
static int at = -1, target, every;
static unsigned long seed = 88172645463325252;

static unsigned draw(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed >> 20;
}

static int go_on(void) {
    if (++at == sizeof plan / sizeof *plan) return 0;
    target = plan[at][0];
    every = plan[at][1];
    return 1;
}

static void call(int depth);

// Three functions with frames of their own, of which each calls each.
#define STEP(NAME, BYTES)                                     \
    ALLOCATING void NAME(int depth) {                         \
        volatile char room[BYTES];                            \
        room[depth % BYTES] = 1;                              \
        for (;;) {                                            \
            if (every && draw() % every == 0) {               \
                void *p = malloc(BYTES);                      \
                keep(p);                                      \
                tally_alloc(&by_root, BYTES);                 \
            }                                                 \
            if (depth == target && !go_on()) target = -1;     \
            if (depth > target) break;                        \
            if (depth < target) call(depth + 1);              \
        }                                                     \
        stay();                                               \
    }

STEP(depths_a, 24)
STEP(depths_b, 56)
STEP(depths_c, 200)

ALLOCATING void call(int depth) {
    switch (draw() % 3) {
    case 0: depths_a(depth); break;
    case 1: depths_b(depth); break;
    default: depths_c(depth);
    }
    stay();
}

ALLOCATING void depths_root(void) {
    call(0);
    stay();
}

int main(void) {
    depths_root();
    expect_tally(&by_root);
    say("been there\n");
    return 0;
}
