// What an allocation costs at a depth: on the way down, and at the bottom. build: gcc -O1 -g
// -fno-optimize-sibling-calls -o depth depth.c usage: for d in 1000 5000 20000 50000; do heapprof
// record --exact --no-symbolize -o out.pb.gz ./depth $d; done
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile int after;
static void *volatile kept;

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

__attribute__((noinline)) static void down(int depth) {
    kept = malloc(8);
    if (depth) down(depth - 1);
    after++;
}

__attribute__((noinline)) static void bottom(int depth, int times) {
    if (depth) bottom(depth - 1, times);
    else while (times--) kept = malloc(8);
    after++;
}

int main(int argc, char **argv) {
    int depth = atoi(argv[1]), n = 100000, rounds = (n + depth - 1) / depth;
    double a = microseconds();
    for (int i = 0; i < rounds; i++) down(depth - 1);
    double b = microseconds();
    bottom(depth, n);
    double c = microseconds();
    printf("depth %6d: %.3f us down, %.3f us at the bottom\n", depth, (b - a) / rounds / depth, (c - b) / n);
}
