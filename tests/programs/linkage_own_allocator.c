// scenario: linkage: the program has an allocator of its own inside: its functions are hooked, nothing breaks
// build: gcc -O2 -g
#include "expect.h"
#include <errno.h>
#include <stdint.h>

// Grows and never shrinks: enough for a test.
static char room[16 << 20] __attribute__((aligned(16)));
static size_t used;
static long calls;

void *malloc(size_t size) {
    size_t need = (size + 31) & ~(size_t)15;
    size_t at = __atomic_fetch_add(&used, need, __ATOMIC_RELAXED);
    if (need < size || at + need > sizeof room) {
        errno = ENOMEM;
        return NULL;
    }
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    *(size_t *)(room + at) = size;
    return room + at + 16;
}

void free(void *p) {
    // Only what came from here may come back.
    if (p && ((char *)p < room || (char *)p >= room + sizeof room)) _exit(96);
}

void *calloc(size_t count, size_t size) {
    size_t all;
    if (__builtin_mul_overflow(count, size, &all)) {
        errno = ENOMEM;
        return NULL;
    }
    return malloc(all); // Never used before, so zero.
}

void *realloc(void *old, size_t size) {
    void *p = malloc(size);
    if (p && old) {
        size_t before = *(size_t *)((char *)old - 16);
        memcpy(p, old, before < size ? before : size);
    }
    return p;
}

int main(void) {
    for (int i = 0; i < 1000; i++) {
        char *p = malloc(100);
        keep(p);
        p = realloc(p, 200);
        keep(p);
        free(p);
        p = strdup("through libc");
        keep(p);
        free(p);
    }
    say(calls >= 3000 ? "own allocator\n" : "not called\n");
    return 34;
}
