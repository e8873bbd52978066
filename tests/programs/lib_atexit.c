// A part of lifecycle_atexit_first.c: libc allocates for its list of exit functions, with that list's lock held.
#include "expect.h"

static volatile int ended;

static void at_end(void) { ended++; }

__attribute__((constructor)) static void begin(void) {
    // The first 32 need no memory.
    for (int i = 0; i < 40; i++) atexit(at_end);
}

int atexit_touch(void) { return ended; }
