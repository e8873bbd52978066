// scenario: stacks: 1,024 ways through ten levels to one malloc; each way's functions count for themselves
// build: gcc -g
// variant: O0 -O0
// variant: O1 -O1
// variant: O2 -O2
// variant: O3 -O3
// variant: frame-pointers -O2 -fno-omit-frame-pointer
// variant: no-pie -O2 -no-pie
#include "expect.h"

#define LEVELS 10

static struct tally left[LEVELS], right[LEVELS], by_leaf = {.name = "levels_leaf"};
static unsigned long way;
static size_t size;

ALLOCATING void *levels_leaf(void) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_leaf, size);
    return p;
}

#define LEVEL(n, below) \
    ALLOCATING void *levels_left_##n(void) { \
        void *p = below; \
        keep(p); \
        tally_alloc(&left[n], size); \
        return p; \
    } \
    ALLOCATING void *levels_right_##n(void) { \
        volatile char room[n * 16 + 8]; \
        room[0] = (char)n; \
        void *p = below; \
        keep(p); \
        tally_alloc(&right[n], size); \
        return room[0] == n ? p : NULL; \
    }
#define TURN(n) (way >> n & 1 ? levels_right_##n() : levels_left_##n())
LEVEL(0, levels_leaf())
LEVEL(1, TURN(0))
LEVEL(2, TURN(1))
LEVEL(3, TURN(2))
LEVEL(4, TURN(3))
LEVEL(5, TURN(4))
LEVEL(6, TURN(5))
LEVEL(7, TURN(6))
LEVEL(8, TURN(7))
LEVEL(9, TURN(8))

int main(void) {
    static const char *const names[2][LEVELS] = {
        {"levels_left_0", "levels_left_1", "levels_left_2", "levels_left_3", "levels_left_4",
         "levels_left_5", "levels_left_6", "levels_left_7", "levels_left_8", "levels_left_9"},
        {"levels_right_0", "levels_right_1", "levels_right_2", "levels_right_3", "levels_right_4",
         "levels_right_5", "levels_right_6", "levels_right_7", "levels_right_8", "levels_right_9"}};
    unsigned long state = 7;
    for (int i = 0; i < 30000; i++) {
        way = next_random(&state) % 1024;
        size = 1 + next_random(&state) % 300;
        void *p = TURN(9);
        if (i % 5 == 0) continue;
        free(p);
        tally_free(&by_leaf, size);
        for (int level = 0; level < LEVELS; level++)
            tally_free(way >> level & 1 ? &right[level] : &left[level], size);
    }
    expect_tally(&by_leaf);
    for (int level = 0; level < LEVELS; level++) {
        left[level].name = names[0][level];
        right[level].name = names[1][level];
        expect_tally(&left[level]);
        expect_tally(&right[level]);
    }
    say("levels\n");
    return 0;
}
