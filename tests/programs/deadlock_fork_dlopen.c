// scenario: deadlock: forks while two threads open and close libraries; each child allocates and ends (argument: rounds)
// build: gcc -O2 -g -pthread
// libs: lib_plugin.c -DPLUGIN=plugin_one -DSHIFT=16 -> libplugin_one.so
// libs: lib_plugin.c -DPLUGIN=plugin_two -DSHIFT=64 -> libplugin_two.so
// link: -ldl
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>

static struct tally by_parent = {.name = "parent_of_forks"}, by_child = {.name = "child_of_fork"};
static volatile int done;
static volatile long opened;

ALLOCATING void *parent_of_forks(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

ALLOCATING void *child_of_fork(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_child, size);
    return p;
}

static void *libraries(void *name) {
    while (!done) {
        void *library = dlopen(name, RTLD_NOW);
        REQUIRE(library);
        void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
        REQUIRE(entry);
        free((*entry)(100));
        REQUIRE(dlclose(library) == 0);
        __atomic_fetch_add(&opened, 1, __ATOMIC_RELAXED);
    }
    return name;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    pthread_t threads[2];
    REQUIRE(pthread_create(&threads[0], NULL, libraries, "libplugin_one.so") == 0);
    REQUIRE(pthread_create(&threads[1], NULL, libraries, "libplugin_two.so") == 0);
    for (int i = 0; i < rounds; i++) {
        // Each fork is beside a library that was opened since the last.
        for (long before = opened; opened == before;) sched_yield();
        void *of_parent = parent_of_forks(40);
        keep(of_parent);
        pid_t pid = fork();
        REQUIRE(pid >= 0);
        if (pid == 0) {
            // It holds enough to have a profile of its own.
            void *p = child_of_fork(100000);
            free(child_of_fork(50));
            tally_free(&by_child, 50);
            keep(p);
            if (i == 0) expect_tally_of_child(&by_child);
            // The handlers of exit wait for the loader, and with them a bare program hangs here, too.
            _exit(30);
        }
        int status = 0;
        REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 30);
    }
    done = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    expect_tally(&by_parent);
    say_number("rounds", rounds);
    return 0;
}
