// scenario: process: the program goes on as another one with an empty environment: nothing follows it there
// build: gcc -O2 -g
#include "expect.h"

ALLOCATING void *empty_before(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

int main(int argc, char **argv) {
    for (int i = 0; i < 500; i++) empty_before(100);
    if (argc > 1) {
        extern char **environ;
        say(*environ ? "an environment\n" : "no environment\n");
        return 32;
    }
    char next[] = "next";
    char *arguments[] = {argv[0], next, NULL}, *environment[] = {NULL};
    say("going\n");
    execve("/proc/self/exe", arguments, environment);
    return 99;
}
