// Part of stack_plt.c: a library's function that allocates.
#include "expect.h"

ALLOCATING void *NAME(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}
