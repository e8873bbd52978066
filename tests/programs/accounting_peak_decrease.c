// scenario: accounting: a peak early on, then only ever less, with much coming and going below it
// build: gcc -O2 -g
#include "expect.h"

#define BLOCKS 2000

static void *blocks[BLOCKS];
static struct tally by_later = {.name = "decrease_later"};

ALLOCATING void *decrease_early(void) {
    void *p = malloc(5000);
    keep(p);
    return p;
}

ALLOCATING void *decrease_later(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_later, size);
    return p;
}

int main(void) {
    for (int i = 0; i < BLOCKS; i++) blocks[i] = decrease_early();
    for (int i = BLOCKS; i-- > 100;) {
        free(blocks[i]);
        for (int j = 0; j < 10; j++) {
            tally_free(&by_later, 400);
            free(decrease_later(400));
        }
    }
    for (int i = 0; i < 50; i++) decrease_later(30);
    expect_numbers(0, "decrease_early", BLOCKS, BLOCKS * 5000L, 100, 100 * 5000L);
    expect_tally(&by_later);
    expect_peak("decrease_early", BLOCKS, BLOCKS * 5000L);
    expect_peak("decrease_later", 0, 0);
    expect_peak_at_least(BLOCKS * 5000L);
    say("less and less\n");
    return 0;
}
