// A heap that rises and falls: sixteen waves, each a little higher than the last, and one that
// towers above the others. What a wave leaves behind stays.
// build: gcc -O1 -g -o waves waves.c
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WAVES = 16, BLOCKS = 200, BLOCK = 10000 };

__attribute__((noinline)) static void *read_order(void) {
    return memset(malloc(BLOCK), 1, BLOCK);
}

__attribute__((noinline)) static void *keep_note(void) {
    return memset(malloc(3000), 1, 3000);
}

__attribute__((noinline)) static void *make_report(void) {
    return memset(malloc(6 << 20), 1, 6 << 20);
}

int main(void) {
    static void *volatile orders[BLOCKS];
    static void *volatile notes[WAVES * 20];
    for (int wave = 0; wave < WAVES; wave++) {
        for (int i = 0; i < BLOCKS; i++) {
            orders[i] = read_order();
            usleep(300);
        }
        for (int i = 0; i < 20; i++) notes[20 * wave + i] = keep_note();
        if (wave == 10) {
            void *volatile report = make_report();
            usleep(60000);
            free(report);
        }
        for (int i = 0; i < BLOCKS; i++) free(orders[i]);
        usleep(20000);
    }
    return 0;
}
