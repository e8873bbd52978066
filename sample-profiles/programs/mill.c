// A mill that takes processor time in two places, for the CPU profiler of gperftools.
// build: gcc -O1 -g -fno-omit-frame-pointer -o /usr/local/bin/mill mill.c
#include <stdio.h>

enum { SACKS = 600, GRAINS = 1000000 };

__attribute__((noinline)) static unsigned grind(unsigned grain) {
    for (int turn = 0; turn < 3; turn++) grain = grain * 1103515245 + 12345;
    return grain;
}

__attribute__((noinline)) static unsigned sift(unsigned flour) {
    return flour % 97 + flour / 89 % 83;
}

__attribute__((noinline)) static unsigned sack(unsigned number) {
    unsigned weight = 0;
    for (unsigned grain = 0; grain < GRAINS; grain++) weight += sift(grind(grain ^ number));
    return weight;
}

int main(void) {
    unsigned all = 0;
    for (unsigned number = 0; number < SACKS; number++) all += sack(number);
    printf("%u\n", all);
    return 0;
}
