// scenario: stacks: one library is loaded and unloaded again and again, and comes back to its place
// build: gcc -O2 -g
// libs: lib_plugin.c -DPLUGIN=plugin_again -DSHIFT=16 -> libplugin_again.so
// link: -ldl
// variant: runpath -Wl,--enable-new-dtags
#include "expect.h"
#include <dlfcn.h>

static struct tally by = {.name = "plugin_again"};

int main(void) {
    for (int round = 0; round < 500; round++) {
        void *library = dlopen("libplugin_again.so", RTLD_NOW);
        REQUIRE(library);
        void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
        REQUIRE(entry);
        void *p = (*entry)(100);
        keep(p);
        tally_alloc(&by, 100);
        if (round % 2) {
            free(p);
            tally_free(&by, 100);
        }
        REQUIRE(dlclose(library) == 0);
    }
    expect_tally(&by);
    say("again\n");
    return 0;
}
