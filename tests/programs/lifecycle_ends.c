// scenario: lifecycle: every road out of a program (argument: which one)
// build: gcc -O2 -g -pthread
#define _XOPEN_SOURCE 700
#include "expect.h"
#include <pthread.h>
#include <signal.h>

static struct tally by_before = {.name = "ends_before"}, by_late = {.name = "ends_late"};

ALLOCATING void *ends_before(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_before, size);
    return p;
}

ALLOCATING void *ends_late(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_late, size);
    return p;
}

static volatile sig_atomic_t stopped;

static void stop(int number) { stopped = number; }

static void leave(int number) {
    (void)number;
    _exit(13);
}

void __stack_chk_fail(void);

static void at_quick(void) {
    ends_late(77);
    expect_tally(&by_late);
}

static void *exits(void *argument) {
    (void)argument;
    exit(21);
}

static volatile int waiting;

// All at the same moment, as near as can be.
static void ends_with_others(void) {
    __atomic_fetch_add(&waiting, 1, __ATOMIC_SEQ_CST);
    while (waiting < 4) {}
}

static void *exits_with_others(void *argument) {
    (void)argument;
    ends_with_others();
    exit(21);
}

static void *lives_longer(void *argument) {
    (void)argument;
    usleep(50000);
    for (int i = 0; i < 100; i++) ends_late(64);
    expect_tally(&by_late);
    say("the thread is last\n");
    return NULL;
}

int main(int argc, char **argv) {
    const char *road = argc > 1 ? argv[1] : "return";
#define IS(name) (strcmp(road, name) == 0)
    for (int i = 0; i < 1000; i++) {
        void *p = ends_before(100);
        if (i % 4 == 0) {
            tally_free(&by_before, 100);
            free(p);
        }
    }
    expect_tally(&by_before);
    say(road);
    say("\n");
    pthread_t thread;
    if (IS("return")) return 5;
    if (IS("exit")) exit(6);
    if (IS("_exit")) _exit(7);
    if (IS("_Exit")) _Exit(8);
    if (IS("exit_group")) syscall(SYS_exit_group, 9);
    if (IS("quick_exit")) {
        at_quick_exit(at_quick);
        quick_exit(10);
    }
    if (IS("abort")) abort();
    if (IS("raise-abort")) raise(SIGABRT);
    if (IS("double-free")) {
        void *volatile p = malloc(50);
        free(p);
        free(p);
    }
    if (IS("smashed-stack")) __stack_chk_fail();
    if (IS("damaged-heap")) {
        // Behind this block lies the rest of the heap, with its size: the next malloc looks at it.
        char *volatile p = malloc(100000);
        *(size_t *)(p + 100008) = (size_t)1 << 60;
        keep(p);
        for (int i = 0; i < 100; i++) {
            void *q = malloc(100000);
            keep(q);
        }
    }
    if (IS("abort-handled")) {
        signal(SIGABRT, leave);
        abort();
    }
    if (IS("segv")) *(volatile int *)argv[argc] = 1;
    if (IS("kill")) raise(SIGKILL);
    if (IS("term")) raise(SIGTERM);
    if (IS("int")) raise(SIGINT);
    if (IS("term-to-process")) {
        kill(getpid(), SIGTERM);
        for (;;) pause();
    }
    if (IS("term-handled") || IS("int-handled")) {
        int number = IS("term-handled") ? SIGTERM : SIGINT;
        struct sigaction action = {.sa_handler = stop};
        sigaction(number, &action, NULL);
        raise(number);
        REQUIRE(stopped == number);
        say("handled\n");
        return 11;
    }
    if (IS("term-ignored")) {
        signal(SIGTERM, SIG_IGN);
        kill(getpid(), SIGTERM);
        say("ignored\n");
        return 12;
    }
    if (IS("exit-in-thread")) {
        pthread_create(&thread, NULL, exits, NULL);
        for (;;) pause();
    }
    if (IS("exits-at-once") || IS("returns-and-exits")) {
        for (int i = 0; i < 3; i++) pthread_create(&thread, NULL, exits_with_others, NULL);
        ends_with_others();
        return 21;
    }
    if (IS("set-otherwise")) {
        // sigset is no sigaction: what it sets is seen, and can be taken back.
        struct sigaction before;
        sigset(SIGTERM, stop);
        sigaction(SIGTERM, NULL, &before);
        REQUIRE(before.sa_handler == stop);
        signal(SIGTERM, SIG_DFL);
        raise(SIGTERM);
    }
    if (IS("main-leaves-first")) {
        pthread_create(&thread, NULL, lives_longer, NULL);
        pthread_exit(NULL);
    }
    return 98;
}
