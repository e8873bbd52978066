// A part of lifecycle_library.c: what its constructor allocates its destructor frees, after the program's own end.
#include "expect.h"

static struct tally by = {.name = "library_static"};
static void *block;

ALLOCATING void *library_static(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by, size);
    return p;
}

__attribute__((constructor)) static void begin(void) { block = library_static(123456); }

__attribute__((destructor)) static void end(void) {
    free(block);
    tally_free(&by, 123456);
    expect_tally(&by);
}

int static_touch(void) { return block != NULL; }
