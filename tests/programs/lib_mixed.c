// Part of stack_mixed.c: the same function with and without frame pointers.
#include "expect.h"

typedef void *(*walk)(int, unsigned long, size_t);

#ifdef BARE
#define NAME mixed_lib_bare
#else
#define NAME mixed_lib_framed
#endif

ALLOCATING void *NAME(int depth, unsigned long way, size_t size, walk back) {
    void *p = back(depth, way, size);
    keep(p);
    return p;
}
