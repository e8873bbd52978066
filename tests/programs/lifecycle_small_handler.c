// scenario: lifecycle: a handler on a signal stack of 8 KiB ends the program, as Rust's does when a stack overflows (argument: by what)
// build: gcc -O2 -g
#include "expect.h"
#include <signal.h>

static struct tally by_block = {.name = "handler_block"};
static char stack[8192] __attribute__((aligned(4096)));
static char guard[4096] __attribute__((aligned(4096)));
static int aborts;

ALLOCATING void *handler_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_block, size);
    return p;
}

static void ends(int signal) {
    (void)signal;
    if (aborts) abort();
    _exit(11);
}

int main(int argc, char **argv) {
    aborts = argc > 1 && strcmp(argv[1], "abort") == 0;
    stack_t here = {.ss_sp = stack, .ss_size = sizeof stack};
    struct sigaction action = {.sa_handler = ends, .sa_flags = SA_ONSTACK};
    guard[0] = 1;
    REQUIRE(sigaltstack(&here, NULL) == 0 && sigaction(SIGSEGV, &action, NULL) == 0);
    for (int i = 0; i < 700; i++) handler_block(90);
    expect_tally(&by_block);
    say("faults\n");
    *(volatile int *)8 = 1;
    return 0;
}
