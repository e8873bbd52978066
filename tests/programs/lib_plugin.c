// A library to load and unload: PLUGIN names its function; SHIFT moves it, so that places mean other things.
// With AT_END it allocates once more when it is unloaded.
#include "expect.h"

#define TEXT(words) #words
#define EXPAND(words) TEXT(words)

// Code before the function: the same offset is another function in another plugin.
__asm__(".text\n.skip " EXPAND(SHIFT) ", 0x90\n");

ALLOCATING void *PLUGIN(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

void *(*const plugin_entry)(size_t) = PLUGIN;

#ifdef AT_END
__attribute__((destructor)) static void at_end(void) {
    void *p = plugin_entry(32);
    keep(p);
}
#endif
