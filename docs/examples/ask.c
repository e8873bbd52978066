/* A program that says itself when to record and when to dump. (volatile: or the compiler leaves the blocks out.)
 *
 * gcc -o ask ask.c -ldl, then LD_PRELOAD=$(heapprof setup preload-path) ./ask
 * Without the library it runs as well, and records nothing.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static int (*start)(const char *output, unsigned long period);
static int (*dump)(const char *path);

int main(void) {
    *(void **)&start = dlsym(RTLD_DEFAULT, "heapprof_start");
    *(void **)&dump = dlsym(RTLD_DEFAULT, "heapprof_dump");
    if (!start || !dump) {
        puts("not recorded: libheapprof.so is not loaded");
        return 0;
    }
    void *volatile before = malloc(1000);
    start("ask.pb.gz", 0); /* every allocation from now on */
    void *volatile during = malloc(2000);
    int error = dump("half.pb.gz");
    free(during);
    free(before);
    printf("half.pb.gz: %s\n", error ? "not written" : "written");
    return error;
}
