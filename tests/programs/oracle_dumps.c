// scenario: oracle: threads allocate while dumps are made and the process forks (arguments: threads, forks, a file to wait for)
// build: gcc -O2 -g -pthread -fno-builtin
#include "expect.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

#define ROUNDS 20000
#define EVERY 40

static struct tally by_brief = {.name = "dumps_brief"}, by_kept = {.name = "dumps_kept"},
                    by_moved = {.name = "dumps_moved"};

ALLOCATING void *dumps_brief(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_brief, size);
    return p;
}

ALLOCATING void *dumps_kept(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_kept, size);
    return p;
}

ALLOCATING void *dumps_moved(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_moved, size);
    return p;
}

ALLOCATING void *dumps_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

// Blocks that one thread leaves and another frees.
static void *exchange[256];

static void *thread(void *argument) {
    for (long i = 0; i < ROUNDS; i++) {
        void *p = dumps_brief(200);
        void *other = __atomic_exchange_n(&exchange[i % 256], p, __ATOMIC_ACQ_REL);
        if (other) {
            free(other);
            tally_free(&by_brief, 200);
        }
        if (i % EVERY == 0) {
            p = dumps_kept(3000);
            if (i % (2 * EVERY) == 0) {
                tally_free(&by_kept, 3000);
                dumps_moved(p, 5000);
            }
        }
    }
    return argument;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 4, forks = argc > 2 ? atoi(argv[2]) : 0;
    pthread_t ids[64];
    REQUIRE(threads <= 64);
    void *found = dlsym(RTLD_DEFAULT, "heapprof_dump");
    int (*dump)(const char *);
    memcpy(&dump, &found, sizeof dump);
    for (int i = 0; i < threads; i++) REQUIRE(pthread_create(&ids[i], NULL, thread, NULL) == 0);
    for (int i = 0; i < forks; i++) {
        pid_t child = fork();
        if (child == 0) {
            for (int n = 0; n < 1000; n++) {
                void *p = dumps_child(70);
                if (n % 2) free(p);
            }
            if (dump) dump(NULL);
            expect_numbers(1, "dumps_child", 1000, 70000, 500, 35000);
            _exit(0);
        }
        int status;
        REQUIRE(waitpid(child, &status, 0) == child && status == 0);
        if (dump) dump(NULL);
    }
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    if (argc > 3 && *argv[3]) {
        char name[100];
        snprintf(name, sizeof name, argv[3], (int)getpid());
        while (access(name, F_OK) != 0) usleep(1000);
    }
    expect_tally(&by_brief);
    expect_tally(&by_kept);
    expect_tally(&by_moved);
    say("done\n");
    return 0;
}
