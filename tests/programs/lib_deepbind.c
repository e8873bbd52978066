// Part of linkage_deepbind.c: allocates and frees with whatever malloc it finds.
#include "expect.h"

void *deepbind_give(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

void deepbind_take(void *p) {
    free(p);
    stay();
}

char *deepbind_text(void) {
    char *p = strdup("a text from a library that binds to itself first");
    keep(p);
    return p;
}
