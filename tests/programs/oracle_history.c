// scenario: history: a sawtooth, a ramp or a spike, with the curve that the program itself saw
// build: gcc -O1 -g
// The second argument is the file for that curve. Its lines are microseconds since 1970, and bytes.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 20000, BLOCKS = 2000 };

static long held, times[MOST], sizes[MOST];
static int moments;
static void *volatile blocks[BLOCKS];

static long micros(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// A history has microseconds, and so have these. Notes that are some microseconds apart can't be
// taken for each other.
static void note(void) {
    static long last;
    long now;
    while ((now = micros()) < last + 4) {}
    last = now;
    if (moments < MOST) {
        times[moments] = now;
        sizes[moments++] = held;
    }
    while (micros() < now + 2) {}
}

static void take(int at, long size) {
    note();
    blocks[at] = malloc(size);
    held += size;
    note();
}

static void give(int at, long size) {
    note();
    free(blocks[at]);
    held -= size;
    note();
}

int main(int count, char **words) {
    if (count != 3) return 2;
    if (!strcmp(words[1], "sawtooth")) {
        for (int tooth = 0; tooth < 20; tooth++) {
            for (int i = 0; i < 200; i++) {
                take(i, 10000);
                usleep(200);
            }
            for (int i = 0; i < 200; i++) give(i, 10000);
        }
    } else if (!strcmp(words[1], "ramp")) {
        for (int i = 0; i < BLOCKS; i++) {
            take(i, 5000);
            usleep(300);
        }
    } else {
        for (int i = 0; i < 1000; i++) {
            take(i, 1000);
            if (i == 600) {
                take(BLOCKS - 1, 30000000);
                usleep(20000);
                give(BLOCKS - 1, 30000000);
            }
            usleep(500);
        }
    }
    FILE *out = fopen(words[2], "w");
    for (int i = 0; i < moments; i++) fprintf(out, "%ld %ld\n", times[i], sizes[i]);
    return fclose(out);
}
