// The library of hold.c.
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) void *keep_in_library(size_t size) {
    void *p = malloc(size); // line 6
    memset(p, 2, size);
    return p;
}
