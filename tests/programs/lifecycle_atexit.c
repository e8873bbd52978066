// scenario: lifecycle: allocations before main, in atexit, on_exit and in destructors, up to the very last
// build: gcc -O2 -g
#include "expect.h"

static struct tally by_constructor = {.name = "atexit_constructor"}, by_handler = {.name = "atexit_handler"},
                    by_destructor = {.name = "atexit_destructor"};
static void *early;

ALLOCATING void *atexit_constructor(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_constructor, size);
    return p;
}

ALLOCATING void *atexit_handler(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_handler, size);
    return p;
}

ALLOCATING void *atexit_destructor(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_destructor, size);
    return p;
}

static void before_all(int argc, char **argv, char **environment) {
    (void)argc, (void)argv, (void)environment;
    early = atexit_constructor(1000);
    atexit_constructor(2000);
}

__attribute__((section(".preinit_array"), used)) static void (*first)(int, char **, char **) = before_all;

__attribute__((constructor)) static void at_start(void) { atexit_constructor(3000); }

__attribute__((destructor)) static void at_end(void) {
    for (int i = 0; i < 10; i++) atexit_destructor(400);
    free(early);
    tally_free(&by_constructor, 1000);
    expect_tally(&by_constructor);
    expect_tally(&by_handler);
    expect_tally(&by_destructor);
    say("end\n");
}

static void handler(void) {
    free(atexit_handler(50));
    tally_free(&by_handler, 50);
    atexit_handler(60);
}

static void nested(void) { atexit(handler); }

static void with_status(int status, void *argument) {
    (void)argument;
    atexit_handler((size_t)status);
}

int main(void) {
    for (int i = 0; i < 40; i++) atexit(handler);
    atexit(nested);
    on_exit(with_status, NULL);
    return 17;
}
