// A heap of so many bytes in blocks of a size, for bench/heapwalk.py: says how long a memcpy of as
// many bytes takes, and waits.
// usage: heapwalk BYTES SIZE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void **volatile kept;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    size_t bytes = argc > 1 ? strtoull(argv[1], 0, 10) : 1 << 30;
    size_t size = argc > 2 ? strtoull(argv[2], 0, 10) : 100;
    // Both are written to before, so that only copying is timed.
    char *from = malloc(bytes), *to = malloc(bytes);
    memset(from, 1, bytes);
    memset(to, 2, bytes);
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double began = now();
        memcpy(to, from, bytes);
        __asm__ volatile("" : : "r"(to) : "memory");
        double took = now() - began;
        if (took < best) best = took;
    }
    free(from);
    free(to);
    size_t count = bytes / (size + 16);
    kept = malloc(count * sizeof *kept);
    for (size_t i = 0; i < count; i++) {
        kept[i] = malloc(size);
        memset(kept[i], 3, size);
    }
    // Every hundredth block is lost.
    for (size_t i = 0; i < count; i += 100) kept[i] = 0;
    printf("%.6f\n", best);
    fflush(stdout);
    for (;;) pause();
}
