// scenario: accounting: blocks freed at once are temporary, those that outlive a thousand others are not
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>

#define ROUNDS 5000

static void *lasting[ROUNDS];

ALLOCATING void *temporary_short(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

ALLOCATING void *temporary_lasting(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

// Freed at once, but by somebody else: the thread that allocated never sees it again.
ALLOCATING void *temporary_given_away(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

static void *give(void *argument) {
    (void)argument;
    return temporary_given_away(33);
}

int main(void) {
    for (int i = 0; i < ROUNDS; i++) free(temporary_short(1 + (size_t)i % 500));
    for (int i = 0; i < ROUNDS; i++) lasting[i] = temporary_lasting(64);
    for (int i = 0; i < ROUNDS; i++) free(lasting[i]);
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        void *given = NULL;
        REQUIRE(pthread_create(&thread, NULL, give, NULL) == 0);
        pthread_join(thread, &given);
        free(given);
    }
    expect_temporary("temporary_short", ROUNDS);
    // The blocks of the end are freed ROUNDS events later, those of the start too: first in, first out.
    expect_temporary("temporary_lasting", 0);
    expect_temporary("temporary_given_away", 0);
    expect_numbers(0, "temporary_lasting", ROUNDS, ROUNDS * 64L, 0, 0);
    expect_numbers(0, "temporary_given_away", 20, 20 * 33L, 0, 0);
    say("temporary\n");
    return 0;
}
