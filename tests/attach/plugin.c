// A library that is loaded after somebody attached.
#include <stdlib.h>
#include <string.h>
__attribute__((noinline)) void *plugin_make(int size) {
    void *p = malloc(size);
    if (p) memset(p, 2, size);
    return p;
}
void plugin_give(void *p) { free(p); }
