// scenario: lifecycle: errno is left as it was by everything that works, and set by what fails
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>

#define LEVELS 9

static long blocks, wrong;

// Many stacks, so that the collector meets new ones, and its tables grow, now and then.
ALLOCATING void errno_levels(int level, unsigned long path) {
    for (int i = 0; i < 2; i++) {
        if (level) {
            if (i == 0) errno_levels(level - 1, path * 2);
            else errno_levels(level - 1, path * 2 + 1);
            stay();
            continue;
        }
        errno = (int)(1 + path % 130);
        int before = errno;
        void *p = malloc(1 + path * 37 % 5000);
        keep(p);
        if (errno != before) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        errno = before;
        p = realloc(p, 100 + path % 9000);
        keep(p);
        if (errno != before) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        errno = before;
        void *q = NULL;
        if (posix_memalign(&q, 256, 200) != 0 || errno != before) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        errno = before;
        free(q);
        if (i) free(p);
        if (errno != before) __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&blocks, 2, __ATOMIC_RELAXED);
    }
    stay();
}

static void *thread(void *argument) {
    for (int i = 0; i < 20; i++) errno_levels(LEVELS, (unsigned long)i << 20);
    return argument;
}

int main(void) {
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, thread, NULL);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    say_number("blocks", blocks);
    say_number("wrong", wrong);
    size_t huge = PTRDIFF_MAX;
    keep(huge);
    errno = 0;
    REQUIRE(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = EAGAIN;
    void *q = &q;
    REQUIRE(posix_memalign(&q, 3, 10) == EINVAL && q == &q);
    REQUIRE(posix_memalign(&q, 64, huge) == ENOMEM && q == &q);
    return wrong ? 98 : 0;
}
