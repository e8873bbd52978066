// scenario: accounting: 16-byte and 32 MiB blocks from one stack, where sampling without unbiasing goes wrong most
// build: gcc -O2 -g
#include "expect.h"

#define SMALL 16
#define LARGE ((size_t)32 << 20)
#define SMALL_COUNT 4000000
#define LARGE_EVERY 250000
#define WINDOW 400000

static struct tally by_both = {.name = "hardcase"};
static void *window[WINDOW];

ALLOCATING void hardcase(void) {
    long large = 0;
    for (long i = 0; i < SMALL_COUNT; i++) {
        // One call in the code for both sizes: one stack.
        for (int turn = 0; turn < 1 + (i % LARGE_EVERY == 0); turn++) {
            size_t size = turn ? LARGE : SMALL;
            void *p = malloc(size);
            keep(p);
            tally_alloc(&by_both, size);
            void **slot = &window[i % WINDOW];
            if (turn) {
                // Never touched, so it takes address space and no memory; half of them stay.
                if (++large % 2) {
                    tally_free(&by_both, size);
                    free(p);
                }
                continue;
            }
            if (*slot) {
                tally_free(&by_both, size);
                free(*slot);
            }
            *slot = p;
        }
    }
    stay();
}

int main(void) {
    hardcase();
    expect_tally(&by_both);
    // At a period of 512 KiB 122 small blocks are sampled on average: 9 % of spread, five times that is allowed.
    long small = (long)SMALL_COUNT * SMALL;
    expect_words("sampled", by_both.name, 4, by_both.alloc_objects, by_both.alloc_objects * 46 / 100,
                 by_both.alloc_space, small * 46 / 100);
    say("both sizes\n");
    return 0;
}
