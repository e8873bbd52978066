// scenario: oracle: stacks of mixed sizes, in rounds (arguments: period, rounds, folder)
// build: gcc -O2 -g -fno-builtin
#include "expect.h"
#include <dlfcn.h>

#define LARGE (32ul << 20)

// What is made N times in a round by each site, and how many of them are still in use at the dump. The same numbers
// are in tests/collector/sampling.rs.
static void *held[600000];
static size_t holds;

static inline __attribute__((always_inline)) void made(void *p, int is_held) {
    keep(p);
    if (is_held) held[holds++] = p;
    else free(p);
}

ALLOCATING void site_small(long n) {
    for (long i = 0; i < n; i++) made(malloc(16), i % 2 == 0);
}

ALLOCATING void site_middle(long n) {
    for (long i = 0; i < n; i++) made(malloc(16384), i % 2 == 0);
}

// Sizes about the period and far from it, held or not in turns that don't follow the sizes.
ALLOCATING void site_mixed(long n) {
    static const size_t sizes[] = {24, 200, 1000, 3000, 10000, 40000, 160000};
    for (long i = 0; i < n; i++) made(malloc(sizes[i % 7]), i % 3 == 0);
}

// Few large blocks and many small ones: what one sample of a stack stands for can't be told from their sum.
ALLOCATING void site_hard(long n) {
    for (long i = 0; i < n; i++) made(malloc(i % 5000 ? 16 : LARGE), i % 2 == 0);
}

ALLOCATING void site_realloc(long n) {
    for (long i = 0; i < n; i++) {
        void *p = malloc(3000);
        keep(p);
        made(realloc(p, 9000), i % 4 == 0);
    }
}

static void round_of(long scale) {
    site_small(100000 * scale);
    site_middle(20000);
    site_mixed(7000);
    site_hard(20000);
    site_realloc(4000);
}

int main(int argc, char **argv) {
    REQUIRE(argc > 3);
    unsigned long period = strtoul(argv[1], NULL, 10);
    // Small blocks need many samples before their mean is known.
    long scale = period < 8192 ? 6 : 1;
    int rounds = atoi(argv[2]);
    void *found = dlsym(RTLD_DEFAULT, "heapprof_dump");
    int (*dump)(const char *);
    memcpy(&dump, &found, sizeof dump);
    found = dlsym(RTLD_DEFAULT, "heapprof_start");
    int (*start)(const char *, unsigned long);
    memcpy(&start, &found, sizeof start);
    REQUIRE(dump && start);
    for (int i = 0; i < rounds; i++) {
        if (rounds > 1) REQUIRE(start(NULL, period) == 0);
        round_of(scale);
        // A single round is that of the process, and its own dump at the end shows it.
        if (rounds > 1) {
            char path[4096];
            size_t at = text_put(path, 0, argv[3]);
            at = text_put(path, at, "/round.");
            at = text_number(path, at, i);
            at = text_put(path, at, ".pb.gz");
            path[at] = 0;
            REQUIRE(dump(path) == 0);
            while (holds) free(held[--holds]);
        }
    }
    return 0;
}
