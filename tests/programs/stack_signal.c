// scenario: stacks: malloc in signal handlers on a stack of their own: raised by the program, and out of the blue
// build: gcc -O2 -g
#include "expect.h"
#include <signal.h>
#include <sys/time.h>

static struct tally by_handler = {.name = "signal_handler_block"}, by_raiser = {.name = "signal_raiser"},
                    by_timer = {.name = "signal_timer_block"}, by_busy = {.name = "signal_busy"};

ALLOCATING void *signal_handler_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_handler, size);
    tally_alloc(&by_raiser, size);
    return p;
}

ALLOCATING void *signal_timer_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_timer, size);
    tally_alloc(&by_busy, size);
    return p;
}

static void on_raise(int number) {
    (void)number;
    signal_handler_block(120);
    stay();
}

static volatile sig_atomic_t ticks;

static void on_timer(int number) {
    (void)number;
    signal_timer_block(130);
    ticks++;
}

ALLOCATING void signal_raiser(void) {
    raise(SIGUSR1);
    stay();
}

// Never in malloc when it is interrupted, so the handler may call it; no tick comes before or after it.
ALLOCATING long signal_busy(int until) {
    struct itimerval timer = {{0, 1000}, {0, 1000}}, off = {{0, 0}, {0, 0}};
    long turns = 0;
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
    while (ticks < until) turns++;
    setitimer(ITIMER_VIRTUAL, &off, NULL);
    keep(turns);
    return turns;
}

int main(void) {
    static char room[64 << 10];
    stack_t alternative = {.ss_sp = room, .ss_size = sizeof room};
    REQUIRE(sigaltstack(&alternative, NULL) == 0);
    struct sigaction action = {.sa_handler = on_raise, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 500; i++) signal_raiser();
    // Without a stack of its own too.
    action.sa_flags = 0;
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 500; i++) signal_raiser();

    action.sa_handler = on_timer;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGVTALRM, &action, NULL);
    signal_busy(50);
    expect_tally(&by_handler);
    expect_tally(&by_raiser);
    expect_tally(&by_timer);
    expect_tally(&by_busy);
    say("signals\n");
    return 0;
}
