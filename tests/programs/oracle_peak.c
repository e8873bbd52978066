// scenario: oracle: a random sequence of the whole family over 50 sites (argument: seed); tests/collector/peak.rs replays it
// build: gcc -O2 -g -fno-builtin
#include "expect.h"
#include <malloc.h>

#define STEPS 4000
#define SLOTS 300

static void *blocks[SLOTS];
static unsigned long state;

static unsigned long random_below(unsigned long n) { return (next_random(&state) >> 20) % n; }

enum { MALLOC, CALLOC, REALLOC, MEMALIGN, POSIX_MEMALIGN, ALIGNED_ALLOC, REALLOCARRAY };

// Each site makes its block by any of the family.
#define SITE(n) \
    ALLOCATING void *f##n(int how, void *old, size_t size) { \
        void *p = NULL; \
        switch (how) { \
        case MALLOC: p = malloc(size); break; \
        case CALLOC: p = calloc(size, 3); break; \
        case REALLOC: p = realloc(old, size); break; \
        case MEMALIGN: p = memalign(64, size); break; \
        case POSIX_MEMALIGN: \
            if (posix_memalign(&p, 32, size)) p = NULL; \
            break; \
        case ALIGNED_ALLOC: p = aligned_alloc(16, size); break; \
        default: p = reallocarray(old, size, 2); \
        } \
        keep(p); \
        return p; \
    }
#define TEN(n) \
    SITE(n##0) SITE(n##1) SITE(n##2) SITE(n##3) SITE(n##4) SITE(n##5) SITE(n##6) SITE(n##7) SITE(n##8) SITE(n##9)
TEN() TEN(1) TEN(2) TEN(3) TEN(4)
#define NAMES(n) f##n##0, f##n##1, f##n##2, f##n##3, f##n##4, f##n##5, f##n##6, f##n##7, f##n##8, f##n##9
static void *(*const sites[])(int, void *, size_t) = {NAMES(), NAMES(1), NAMES(2), NAMES(3), NAMES(4)};

// A few sizes come often, none now and then, large ones seldom: peaks of every form, some of the same height.
static size_t random_size(void) {
    switch (random_below(8)) {
    case 0: return 0;
    case 1: return 64;
    case 2: return 1 + random_below(100000);
    default: return 1 + random_below(2000);
    }
}

int main(int argc, char **argv) {
    state = 0x9e3779b97f4a7c15ul * (1 + (argc > 1 ? strtoul(argv[1], NULL, 10) : 0));
    for (int step = 0; step < STEPS; step++) {
        void **place = &blocks[random_below(SLOTS)];
        unsigned long what = random_below(16);
        // The heap rises and falls in waves.
        int rises = (step / 500) % 2 == 0;
        if (*place && (rises ? what < 4 : what < 11)) {
            free(*place);
            *place = NULL;
            continue;
        }
        unsigned long site = random_below(50);
        size_t size = random_size();
        if (*place) {
            // What realloc gives for a size of 0 is nothing, and the block is gone.
            *place = sites[site](what % 2 ? REALLOC : REALLOCARRAY, *place, size);
        } else {
            *place = sites[site]((int)(what % 7), NULL, size);
        }
    }
    say("done\n");
    return 0;
}
