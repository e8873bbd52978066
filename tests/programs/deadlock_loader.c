// scenario: deadlock: constructors of loaded libraries wait, under the loader's lock, for threads that allocate
// build: gcc -O2 -g -pthread
// libs: lib_constructor.c -> libconstructor.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>

static struct tally by_block = {.name = "constructor_block"};

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    for (int i = 0; i < rounds; i++) {
        void *library = dlopen("libconstructor.so", RTLD_NOW);
        REQUIRE(library);
        void *(*block)(size_t) = (void *(*)(size_t))dlsym(library, "constructor_block");
        REQUIRE(block);
        block(70);
        tally_alloc(&by_block, 70);
        REQUIRE(dlclose(library) == 0);
    }
    expect_tally(&by_block);
    say_number("rounds", rounds);
    return 0;
}
