// scenario: stacks: two libraries at a time are loaded, allocate and are unloaded, and come back in the other's place
// build: gcc -O2 -g
// libs: lib_plugin.c -DPLUGIN=plugin_one -DSHIFT=16 -> libplugin_one.so
// libs: lib_plugin.c -DPLUGIN=plugin_two -DSHIFT=64 -> libplugin_two.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>

static struct tally by[2] = {{.name = "plugin_one"}, {.name = "plugin_two"}};
static const char *const files[] = {"libplugin_one.so", "libplugin_two.so"};

static void use(void *library, int which, int times) {
    void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
    REQUIRE(entry);
    for (int i = 0; i < times; i++) {
        void *p = (*entry)(100 + (size_t)which);
        keep(p);
        tally_alloc(&by[which], 100 + (size_t)which);
    }
}

int main(void) {
    // Who is loaded first gets the lower place, or the higher one, but not the other's.
    for (int round = 0; round < 20; round++) {
        void *library[2];
        int first = round / 2 % 2;
        for (int i = 0; i < 2; i++) {
            int which = first ^ i;
            library[which] = dlopen(files[which], RTLD_NOW);
            REQUIRE(library[which]);
            use(library[which], which, 10 + 7 * round + which);
        }
        // Either of them may go first.
        REQUIRE(dlclose(library[round % 2]) == 0);
        REQUIRE(dlclose(library[1 - round % 2]) == 0);
    }
    expect_tally(&by[0]);
    expect_tally(&by[1]);
    say("swapped\n");
    return 0;
}
