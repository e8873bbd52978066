// scenario: linkage: a library opened with RTLD_DEEPBIND goes past the hooks; blocks cross the border both ways
// build: gcc -O2 -g
// libs: lib_deepbind.c -> libdeepbind.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>

static struct tally by_main = {.name = "deepbind_main"};

ALLOCATING void *deepbind_main(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_main, size);
    return p;
}

// No claim: its blocks may be freed where nobody sees it.
ALLOCATING void *deepbind_handed_over(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

int main(void) {
    void *library = dlopen("libdeepbind.so", RTLD_NOW | RTLD_DEEPBIND);
    if (!library) {
        say(dlerror());
        return 99;
    }
    void *(*give)(size_t) = (void *(*)(size_t))dlsym(library, "deepbind_give");
    void (*take)(void *) = (void (*)(void *))dlsym(library, "deepbind_take");
    char *(*text)(void) = (char *(*)(void))dlsym(library, "deepbind_text");
    REQUIRE(give && take && text);
    for (int i = 0; i < 2000; i++) {
        void *p = give(100);
        memset(p, 1, 100);
        if (i % 2) free(p);
        else take(p);
        take(deepbind_handed_over(100));
        p = deepbind_main(100);
        if (i % 4) {
            free(p);
            tally_free(&by_main, 100);
        }
        p = realloc(text(), 500);
        free(p);
    }
    expect_tally(&by_main);
    say("across the border\n");
    return 0;
}
