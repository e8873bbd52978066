// Pairs of malloc and free on a coroutine's stack, for scaling.py: what a stack costs that is not
// the thread's own.
//
// usage: coroutine PAIRS THREADS DEPTH [own] DEPTH frames of 144 bytes; own: the same on the
// thread's own stack
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <thread>
#include <ucontext.h>
#include <vector>

static long pairs;
static int depth;

__attribute__((noinline)) static int down(int left) {
    volatile char frame[100];
    frame[0] = 1;
    if (left > 0) return down(left - 1) + frame[0];
    for (long i = 0; i < pairs; i++) {
        void *volatile block = malloc(64);
        free(block);
    }
    return frame[0];
}

static void body() { down(depth); }

static void on_coroutine() {
    constexpr size_t size = 1 << 20;
    void *stack = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) abort();
    ucontext_t here, there;
    getcontext(&there);
    there.uc_stack.ss_sp = stack;
    there.uc_stack.ss_size = size;
    there.uc_link = &here;
    makecontext(&there, body, 0);
    swapcontext(&here, &there);
    munmap(stack, size);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    int threads = atoi(argv[2]);
    pairs = atol(argv[1]) / threads;
    depth = atoi(argv[3]);
    bool own = argc > 4 && !strcmp(argv[4], "own");
    std::vector<std::thread> running;
    for (int i = 0; i < threads; i++) running.emplace_back(own ? body : on_coroutine);
    for (auto &thread : running) thread.join();
    return 0;
}
