// The program of oracle/reach.py. It counts its own allocations, and prints what it did.
// usage: reach MODE [PLUGIN]       modes: plain threads fork dlopen kill wait
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 1000, SIZE = 1000, THREADS = 4, ROUNDS = 100 };

static void *volatile kept[16 * BLOCKS];
static int count;

__attribute__((noinline)) void *held_block(size_t size) {
    void *block = malloc(size);
    if (block) memset(block, 1, size);
    return block;
}

static void hold(void) {
    for (int i = 0; i < BLOCKS; i++) kept[__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED)] = held_block(SIZE);
}

static void *work(void *nothing) {
    hold();
    return nothing;
}

static int with_threads(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], 0, work, 0)) return 91;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    return 0;
}

static int with_child(void) {
    pid_t child = fork();
    if (!child) {
        hold();
        printf("child held %d\n", count);
        exit(5);
    }
    int status;
    waitpid(child, &status, 0);
    printf("child ended with %d\n", WEXITSTATUS(status));
    return 0;
}

static int with_plugin(const char *path) {
    for (int i = 0; i < ROUNDS; i++) {
        void *plugin = dlopen(path, RTLD_NOW);
        if (!plugin) {
            puts(dlerror());
            return 92;
        }
        void *(*allocate)(size_t) = (void *(*)(size_t))dlsym(plugin, "plugin_block");
        for (int j = 0; j < 10; j++) kept[count++] = allocate(SIZE);
        dlclose(plugin);
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "plain";
    int failed = 0;
    if (strcmp(mode, "wait")) hold();
    if (!strcmp(mode, "threads")) failed = with_threads();
    if (!strcmp(mode, "fork")) failed = with_child();
    if (!strcmp(mode, "dlopen")) failed = with_plugin(argv[2]);
    if (!strcmp(mode, "wait")) {
        puts("ready");
        fflush(stdout);
        // A line says that somebody looks on.
        if (getchar() == EOF) return 93;
        hold();
        puts("held");
        fflush(stdout);
        if (getchar() == EOF) return 94;
    }
    printf("%s: held %d\n", mode, count);
    fflush(stdout);
    if (!strcmp(mode, "kill")) raise(SIGKILL);
    return failed ? failed : 3;
}
