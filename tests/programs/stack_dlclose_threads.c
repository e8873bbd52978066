// scenario: stacks: threads load, use and unload a library each, and these come to one another's place at once (argument: rounds)
// build: gcc -O2 -g -pthread
// libs: lib_plugin.c -DPLUGIN=plugin_a -DSHIFT=16 -> libplugin_a.so
// libs: lib_plugin.c -DPLUGIN=plugin_b -DSHIFT=16 -> libplugin_b.so
// libs: lib_plugin.c -DPLUGIN=plugin_c -DSHIFT=16 -> libplugin_c.so
// libs: lib_plugin.c -DPLUGIN=plugin_d -DSHIFT=64 -DAT_END -> libplugin_d.so
// libs: lib_plugin.c -DPLUGIN=plugin_e -DSHIFT=64 -DAT_END -Wl,--build-id=none -> libplugin_e.so
// libs: lib_plugin.c -DPLUGIN=plugin_f -DSHIFT=64 -Wl,--build-id=none -> libplugin_f.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>

#define PLUGINS 6
// So many of them, the first ones, are also used by threads that have none of their own.
#define SHARED 3
#define GUESTS 2
#define TIMES 20

static struct tally by[PLUGINS] = {{.name = "plugin_a"}, {.name = "plugin_b"}, {.name = "plugin_c"},
                                   {.name = "plugin_d"}, {.name = "plugin_e"}, {.name = "plugin_f"}};
static const char *const files[] = {"libplugin_a.so", "libplugin_b.so", "libplugin_c.so",
                                    "libplugin_d.so", "libplugin_e.so", "libplugin_f.so"};
static const int allocates_at_end[PLUGINS] = {0, 0, 0, 1, 1, 0};
static int rounds;

static void *use(void *argument) {
    int thread = (int)(long)argument;
    for (int round = 0; round < rounds; round++) {
        int which = thread < PLUGINS ? thread : (thread + round) % SHARED;
        void *library = dlopen(files[which], RTLD_NOW);
        REQUIRE(library);
        void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
        REQUIRE(entry);
        for (int i = 0; i < TIMES; i++) {
            // All of it is kept. The same size everywhere: only the stack tells whose it is.
            void *p = (*entry)(32);
            keep(p);
            tally_alloc(&by[which], 32);
        }
        if (allocates_at_end[which]) tally_alloc(&by[which], 32);
        REQUIRE(dlclose(library) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atoi(argv[1]) : 300;
    pthread_t threads[PLUGINS + GUESTS];
    for (long i = 0; i < PLUGINS + GUESTS; i++) REQUIRE(pthread_create(&threads[i], NULL, use, (void *)i) == 0);
    for (int i = 0; i < PLUGINS + GUESTS; i++) REQUIRE(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < PLUGINS; i++) expect_tally(&by[i]);
    say_number("rounds", rounds);
    return 0;
}
