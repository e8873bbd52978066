// scenario: process: 1,000 short threads, sixteen at a time; each leaves a block behind
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>

static struct tally by_thread = {.name = "short_thread"};

ALLOCATING void *short_thread(void *argument) {
    for (int i = 0; i < 20; i++) {
        void *p = malloc(100);
        keep(p);
        tally_alloc(&by_thread, 100);
        if (i) {
            tally_free(&by_thread, 100);
            free(p);
        }
    }
    return argument;
}

int main(void) {
    pthread_t threads[16];
    for (int started = 0; started < 1000;) {
        int batch = 1000 - started < 16 ? 1000 - started : 16;
        for (int i = 0; i < batch; i++) REQUIRE(pthread_create(&threads[i], NULL, short_thread, NULL) == 0);
        for (int i = 0; i < batch; i++) pthread_join(threads[i], NULL);
        started += batch;
    }
    expect_tally(&by_thread);
    say("a thousand\n");
    return 0;
}
