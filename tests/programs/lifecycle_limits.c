// scenario: lifecycle: tight limits: open files, size of files, address space (argument: nofile, fsize or as)
// build: gcc -O2 -g
#include "expect.h"
#include <errno.h>
#include <sys/resource.h>

ALLOCATING void *limits_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "nofile";
    for (int i = 0; i < 1000; i++) limits_block(100);
    if (strcmp(which, "nofile") == 0) {
        struct rlimit limit = {3, 3};
        REQUIRE(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        for (int i = 0; i < 1000; i++) limits_block(200);
        REQUIRE(open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
    } else if (strcmp(which, "fsize") == 0) {
        // Writing beyond it also raises SIGXFSZ, which ends a process that doesn't expect it.
        struct rlimit limit = {16, 16};
        REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        for (int i = 0; i < 1000; i++) limits_block(200);
    } else {
        // Far more than the program takes, far less than tables that are reserved ahead.
        struct rlimit limit = {512UL << 20, 512UL << 20};
        REQUIRE(setrlimit(RLIMIT_AS, &limit) == 0);
        errno = 0;
        size_t huge = (size_t)600 << 20;
        void *p = limits_block(huge);
        REQUIRE(p == NULL && errno == ENOMEM);
        long got = 0;
        for (int i = 0; i < 100000; i++) got += limits_block(500) != NULL;
        REQUIRE(got == 100000);
        // To the end of what there is: NULL is NULL, nothing else breaks.
        while (limits_block(1 << 20)) got++;
        while (limits_block(1 << 12)) got++;
        errno = 0;
        REQUIRE(limits_block(1 << 20) == NULL && errno == ENOMEM);
    }
    say(which);
    say("\n");
    return 20;
}
