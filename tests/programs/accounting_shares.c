// scenario: accounting: each thread allocates its own share, whoever frees it; threads are renamed, end and fork (argument: mmap)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define WORKERS 3
#define SHORT 40
#define ALL (WORKERS + SHORT + 4)

// A thread with what it allocated in `share_take`, and what is left of that.
struct share {
    char name[16];
    long id, alloc_objects, alloc_space, inuse_objects, inuse_space;
};

static struct share shares[ALL];
static struct tally all = {.name = "share_take"}, by_child = {.name = "share_take"};
static pthread_barrier_t allocated, freed;
static void *passed[WORKERS];
static int maps;

ALLOCATING void *share_take(struct share *share, size_t size) {
    void *p = malloc(size);
    keep(p);
    share->alloc_objects++, share->alloc_space += (long)size;
    share->inuse_objects++, share->inuse_space += (long)size;
    tally_alloc(&all, size);
    return p;
}

static void give(struct share *share, void *p, size_t size) {
    share->inuse_objects--, share->inuse_space -= (long)size;
    tally_free(&all, size);
    free(p);
}

static void begin(struct share *share) { share->id = syscall(SYS_gettid); }

static void rename_to(struct share *share, const char *name, long number) {
    size_t at = text_put(share->name, 0, name);
    if (number >= 0) at = text_number(share->name, at, number);
    share->name[at] = 0;
    REQUIRE(prctl(PR_SET_NAME, share->name) == 0);
}

// Allocates before it has its name, as many threads do, and lets another thread free half of it.
static void *worker(void *argument) {
    long i = (long)argument;
    struct share *share = &shares[i];
    begin(share);
    share_take(share, 10);
    rename_to(share, "worker ", i);
    for (long n = 0; n < 100 * (i + 1); n++) share_take(share, 1000);
    passed[i] = share_take(share, 5000 + (size_t)i);
    if (maps) {
        size_t size = (size_t)(i + 1) << 20;
        void *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(map != MAP_FAILED);
    }
    pthread_barrier_wait(&allocated);
    pthread_barrier_wait(&freed);
    // It is called so at the end, without another stack.
    rename_to(share, "done ", i);
    return NULL;
}

// Frees what others have allocated, and allocates little itself.
static void *freer(void *argument) {
    struct share *share = argument;
    begin(share);
    rename_to(share, "freer", -1);
    pthread_barrier_wait(&allocated);
    for (long i = 0; i < WORKERS; i++) give(&shares[i], passed[i], 5000 + (size_t)i);
    share_take(share, 7);
    pthread_barrier_wait(&freed);
    return NULL;
}

static void *short_one(void *argument) {
    struct share *share = argument;
    begin(share);
    rename_to(share, "short", -1);
    void *p = share_take(share, 64);
    share_take(share, 1);
    give(share, p, 64);
    return NULL;
}

// Goes on until the end.
static void *late(void *argument) {
    struct share *share = argument;
    begin(share);
    rename_to(share, "early", -1);
    share_take(share, 300);
    rename_to(share, "late", -1);
    pthread_barrier_wait(&allocated);
    for (;;) pause();
}

static void say_share(const struct share *share) {
    char line[256];
    size_t at = text_put(line, 0, share->name);
    const long numbers[] = {share->id, share->alloc_objects, share->alloc_space, share->inuse_objects, share->inuse_space};
    for (int i = 0; i < 5; i++) {
        line[at++] = '\t';
        at = text_number(line, at, numbers[i]);
    }
    line[at++] = '\n';
    line[at] = 0;
    long fd = getenv("SHARES") ? open(getenv("SHARES"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (fd < 0) return;
    syscall(SYS_write, fd, line, at);
    syscall(SYS_close, fd);
}

int main(int argc, char **argv) {
    maps = argc > 1;
    (void)argv;
    pthread_t threads[ALL], forever;
    struct share *next = &shares[WORKERS], *own;
    REQUIRE(pthread_barrier_init(&allocated, NULL, WORKERS + 2) == 0);
    REQUIRE(pthread_barrier_init(&freed, NULL, WORKERS + 1) == 0);
    for (long i = 0; i < WORKERS; i++) REQUIRE(pthread_create(&threads[i], NULL, worker, (void *)i) == 0);
    REQUIRE(pthread_create(&threads[WORKERS], NULL, freer, next++) == 0);
    for (int i = 0; i <= WORKERS; i++) {
        if (i == 0) REQUIRE(pthread_create(&forever, NULL, late, next++) == 0);
        pthread_join(threads[i], NULL);
    }
    // The kernel may give the id of one to the next.
    for (int i = 0; i < SHORT; i++) {
        REQUIRE(pthread_create(&threads[0], NULL, short_one, next++) == 0);
        pthread_join(threads[0], NULL);
    }
    own = next++;
    begin(own);
    rename_to(own, "first", -1);
    share_take(own, 2000);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        // What was inherited is still its thread's; what is new is the child's.
        by_child = (struct tally){.name = "share_take", .alloc_objects = all.alloc_objects - all.freed_objects,
                                  .alloc_space = all.alloc_space - all.freed_space};
        struct share *of_child = next++;
        begin(of_child);
        rename_to(of_child, "child", -1);
        share_take(of_child, 4000);
        tally_alloc(&by_child, 4000);
        expect_tally_of_child(&by_child);
        return 0;
    }
    REQUIRE(waitpid(child, NULL, 0) == child);
    expect_tally(&all);
    for (struct share *share = shares; share < next; share++) say_share(share);
    say_number("threads", next - shares);
    return 0;
}
