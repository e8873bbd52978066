// scenario: lifecycle: signals to the process are the program's: no other thread may take, lose or unblock them
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <signal.h>
#include <time.h>

ALLOCATING void *signals_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

static volatile sig_atomic_t alarms;
static pid_t main_thread;
static volatile sig_atomic_t elsewhere;

static void on_alarm(int number) {
    (void)number;
    alarms++;
    if (syscall(SYS_gettid) != main_thread) elsewhere = 1;
}

int main(void) {
    main_thread = (pid_t)syscall(SYS_gettid);
    for (int i = 0; i < 2000; i++) signals_block(1000);
    // Blocked in the only thread the program knows: they must stay pending until they are asked for.
    sigset_t set;
    sigemptyset(&set);
    int numbers[] = {SIGUSR1, SIGUSR2, SIGPROF, SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGRTMIN + 3};
    for (int i = 0; i < 8; i++) sigaddset(&set, numbers[i]);
    sigprocmask(SIG_BLOCK, &set, NULL);
    for (int i = 0; i < 8; i++) {
        kill(getpid(), numbers[i]);
        for (int j = 0; j < 100; j++) free(signals_block(1000));
        struct timespec patience = {5, 0};
        REQUIRE(sigtimedwait(&set, NULL, &patience) == numbers[i]);
    }
    signal(SIGALRM, on_alarm);
    for (int i = 0; i < 50; i++) {
        kill(getpid(), SIGALRM);
        free(signals_block(100));
    }
    REQUIRE(alarms == 50 && !elsewhere);
    // An interrupted sleep is told so, and one that isn't goes on.
    struct timespec nap = {0, 20000000}, rest = {0, 0};
    REQUIRE(nanosleep(&nap, &rest) == 0);
    say("all signals came home\n");
    return 0;
}
