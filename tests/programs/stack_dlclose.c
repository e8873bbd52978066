// scenario: stacks: libraries are loaded, allocate, are unloaded, and others come to the same addresses
// build: gcc -O2 -g
// libs: lib_plugin.c -DPLUGIN=plugin_one -DSHIFT=16 -> libplugin_one.so
// libs: lib_plugin.c -DPLUGIN=plugin_two -DSHIFT=64 -> libplugin_two.so
// libs: lib_plugin.c -DPLUGIN=plugin_three -DSHIFT=4096 -> libplugin_three.so
// link: -ldl
// variant: runpath -Wl,--enable-new-dtags
// variant: rpath -Wl,--disable-new-dtags
#include "expect.h"
#include <dlfcn.h>

#define PLUGINS 3

static struct tally by[PLUGINS] = {{.name = "plugin_one"}, {.name = "plugin_two"}, {.name = "plugin_three"}},
                    by_all = {.name = "plugin_use"};
static const char *const files[] = {"libplugin_one.so", "libplugin_two.so", "libplugin_three.so"};

ALLOCATING void *plugin_use(void *(*entry)(size_t), size_t size) {
    void *p = entry(size);
    keep(p);
    tally_alloc(&by_all, size);
    return p;
}

int main(void) {
    void *kept[60] = {0};
    for (int round = 0; round < 60; round++) {
        int which = round % PLUGINS;
        // Found through the program's own RUNPATH or RPATH: that is the caller's, whoever stands in between.
        void *library = dlopen(files[which], RTLD_NOW);
        if (!library) {
            say(dlerror());
            return 99;
        }
        void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
        REQUIRE(entry);
        for (int i = 0; i < 20; i++) {
            size_t size = 100 + (size_t)which;
            void *p = plugin_use(*entry, size);
            tally_alloc(&by[which], size);
            if (i == 0) {
                kept[round] = p; // Freed when its code is long gone.
                continue;
            }
            if (i % 2) continue;
            free(p);
            tally_free(&by[which], size);
            tally_free(&by_all, size);
        }
        REQUIRE(dlclose(library) == 0);
    }
    for (int round = 0; round < 60; round += 2) {
        free(kept[round]);
        tally_free(&by[round % PLUGINS], 100 + (size_t)(round % PLUGINS));
        tally_free(&by_all, 100 + (size_t)(round % PLUGINS));
    }
    for (int i = 0; i < PLUGINS; i++) expect_tally(&by[i]);
    expect_tally(&by_all);
    say("plugins\n");
    return 0;
}
