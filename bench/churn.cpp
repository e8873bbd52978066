// Pairs of malloc and free below 20 calls, on many stacks and in several threads. build: g++ -O2 -g
// -o churn churn.cpp -pthread (without frame pointers, as distributions build) usage: churn
// [PAIRS=10000000] [THREADS=1] [LIVE=2000] [BITS=10] LIVE blocks are in use at a time, all threads
// together; there are 2^BITS stacks, for BITS 0 one.
#include "descend.hpp"
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static thread_local uint64_t state = 1;

static inline uint64_t draw() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

__attribute__((noinline)) static void *leaf(size_t size) {
    void *block = malloc(size);
    memset(block, 1, size < 64 ? size : 64);
    return block;
}

static void work(uint64_t pairs, uint64_t seed, size_t live, uint64_t mask) {
    state = seed;
    std::vector<void *> slots(live, nullptr);
    for (uint64_t i = 0; i < pairs; i++) {
        size_t slot = draw() % live;
        free(slots[slot]);
        uint64_t r = draw();
        slots[slot] = descend<20>(draw() & mask, 16 + r % (r & 0x100 ? 2048 : 240));
    }
    for (void *block : slots) free(block);
}

int main(int argc, char **argv) {
    auto number = [&](int i, uint64_t otherwise) { return argc > i ? strtoull(argv[i], nullptr, 10) : otherwise; };
    uint64_t pairs = number(1, 10000000), threads = number(2, 1), live = number(3, 2000);
    uint64_t mask = (1ull << number(4, 10)) - 1;
    std::vector<std::thread> pool;
    for (uint64_t t = 0; t < threads; t++)
        pool.emplace_back(work, pairs / threads, 88172645463325252ull + 7919 * t, live / threads, mask);
    for (auto &thread : pool) thread.join();
}
