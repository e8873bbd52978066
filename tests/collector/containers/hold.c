// Keeps orders: a thousand of its own and a thousand of its library, and more for each line of its
// input. `once` ends it at once. `again` lets it run itself a second time, in a child.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern void *keep_in_library(size_t size);
static void *volatile kept[1000000];
static int count;

__attribute__((noinline)) void *keep_order(size_t size) {
    void *p = malloc(size); // line 14
    memset(p, 1, size);
    return p;
}

static void work(void) {
    for (int i = 0; i < 1000; i++) {
        kept[count++] = keep_order(1000);
        kept[count++] = keep_in_library(500);
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    work();
    if (!strcmp(how, "again") && !fork()) {
        execl(argv[0], argv[0], "once", (char *)0);
        _exit(92);
    }
    if (!strcmp(how, "again")) {
        char *words[] = {argv[0], "once", 0};
        if (!fork()) {
            execv(argv[0], words);
            _exit(93);
        }
        wait(0);
        wait(0);
    }
    puts("ready");
    fflush(stdout);
    if (*how) return 3;
    while (getchar() != EOF) {
        work();
        puts("done");
        fflush(stdout);
    }
    return 3;
}
