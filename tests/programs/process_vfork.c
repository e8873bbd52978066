// scenario: process: vfork and exec, vfork and _exit, from the main thread or from another one (argument: thread)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <sys/wait.h>

static struct tally by_parent = {.name = "vfork_parent"}, by_child = {.name = "vfork_image"};

ALLOCATING void *vfork_parent(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

ALLOCATING void *vfork_image(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_child, size);
    return p;
}

static void *parent(void *argument) {
    char *const arguments[] = {argument, "image", NULL};
    for (volatile int i = 0; i < 20; i++) { // The child of vfork runs on this very frame.
        for (int j = 0; j < 50; j++) {
            void *p = vfork_parent(60);
            if (j % 2) {
                tally_free(&by_parent, 60);
                free(p);
            }
        }
        pid_t pid = vfork();
        if (pid == 0) {
            if (i % 4 == 0) execv("/proc/self/exe", arguments);
            if (i % 4 == 1) execv("/there/is/no/such/program", arguments);
            _exit(15);
        }
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
        REQUIRE(WEXITSTATUS(status) == (i % 4 == 0 ? 16 : 15));
    }
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "image") == 0) {
        for (int i = 0; i < 70; i++) vfork_image(90);
        expect_tally_of_child(&by_child);
        return 16;
    }
    if (argc > 1) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, parent, argv[0]) == 0);
        pthread_join(thread, NULL);
    } else {
        parent(argv[0]);
    }
    expect_tally(&by_parent);
    say("all children came back\n");
    return 0;
}
