// scenario: lifecycle: allocations in constructors and destructors of thread_local objects, of threads and of main
// build: g++ -O2 -g -pthread
#include "expect.h"
#include <pthread.h>

static struct tally by_constructor = {"tls_constructor", 0, 0, 0, 0}, by_destructor = {"tls_destructor", 0, 0, 0, 0};

ALLOCATING void *tls_constructor(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_constructor, size);
    return p;
}

ALLOCATING void *tls_destructor(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_destructor, size);
    return p;
}

struct Holder {
    void *block;
    Holder() : block(tls_constructor(111)) {}
    ~Holder() {
        tls_destructor(222); // Left behind.
        free(tls_destructor(333));
        tally_free(&by_destructor, 333);
        free(block);
        tally_free(&by_constructor, 111);
    }
    void touch() { keep(block); }
};

static thread_local Holder holder;

static void *thread(void *) {
    holder.touch();
    return nullptr;
}

// Runs after the destructors of main's thread_local objects.
static void last() {
    expect_tally(&by_constructor);
    expect_tally(&by_destructor);
    say("last\n");
}

int main() {
    atexit(last);
    holder.touch();
    for (int i = 0; i < 100; i++) {
        pthread_t id;
        REQUIRE(pthread_create(&id, nullptr, thread, nullptr) == 0);
        pthread_join(id, nullptr);
    }
    return 0;
}
