// A server that forgets sessions: the heap that docs/commands/heapwalk.md walks. Built with
// g++ -O1 -g; it waits when all is done.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

struct Order {
    explicit Order(long number) : number(number) {}
    virtual ~Order() = default;
    long number;
    Order *next = nullptr;
    char note[24] = {};
};

struct Session {
    virtual ~Session() = default;
    Order *orders = nullptr;
    char *user = nullptr;
};

// Orders that are kept for ever.
static Order *history;
static Session *volatile current;

static __attribute__((noinline)) Session *serve(long number) {
    auto *session = new Session;
    session->user = strdup("somebody@example.org");
    for (long i = 0; i < 5; i++) {
        auto *order = new Order(10 * number + i);
        order->next = session->orders;
        session->orders = order;
    }
    return session;
}

static __attribute__((noinline)) void end(Session *session) {
    while (Order *order = session->orders) {
        session->orders = order->next;
        delete order;
    }
    free(session->user);
    delete session;
}

static __attribute__((noinline)) void work() {
    for (long i = 0; i < 21; i++) {
        current = serve(i);
        // Every second session is forgotten.
        if (i % 2 == 0) end(current);
    }
    for (long i = 0; i < 30; i++) {
        auto *order = new Order(1000 + i);
        order->next = history;
        history = order;
    }
    // A report of which only the middle is known.
    static char *volatile rest;
    rest = static_cast<char *>(calloc(1, 3000)) + 1000;
    current = nullptr;
}

static __attribute__((noinline)) void wipe() {
    char stack[16384];
    memset(stack, 0, sizeof stack);
    __asm__ volatile("" : : "r"(stack) : "memory", "rbx", "r12", "r13", "r14", "r15");
}

int main() {
    work();
    wipe();
    write(1, "ready\n", 6);
    for (;;) pause();
}
