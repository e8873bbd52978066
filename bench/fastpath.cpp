// The cost of a malloc/free pair by itself and its growth with threads: nothing but pairs, at a
// depth of a few frames. build: g++ -O2 -g -o fastpath fastpath.cpp -pthread usage: fastpath
// [PAIRS=20000000] [THREADS=1] [KIND=tight] [LIVE=1000] tight a block is freed at once kept each
// thread keeps LIVE blocks and replaces them in turn crossed threads replace the blocks of one
// shared array, so most are freed by another thread
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

static std::atomic<void *> shared[4096];
static size_t live = 1000;

static inline void *touched(size_t size) {
  void *block = malloc(size);
  *(volatile char *)block = 1;
  return block;
}

static void tight(uint64_t pairs, uint64_t) {
  for (uint64_t i = 0; i < pairs; i++) free(touched(16 + i % 16 * 16));
}
static void kept(uint64_t pairs, uint64_t) {
  std::vector<void *> slots(live);
  for (uint64_t i = 0; i < pairs; i++) {
    void *&slot = slots[i % slots.size()];
    free(slot), slot = touched(16 + i % 16 * 16);
  }
  for (void *block : slots) free(block);
}
static void crossed(uint64_t pairs, uint64_t seed) {
  for (uint64_t i = 0; i < pairs; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    free(shared[seed >> 52].exchange(touched(16 + i % 16 * 16)));
  }
}

int main(int argc, char **argv) {
  uint64_t pairs = argc > 1 ? strtoull(argv[1], nullptr, 10) : 20000000;
  int threads = argc > 2 ? atoi(argv[2]) : 1;
  const char *kind = argc > 3 ? argv[3] : "tight";
  if (argc > 4) live = strtoull(argv[4], nullptr, 10);
  auto work = !strcmp(kind, "tight")     ? tight
              : !strcmp(kind, "kept")    ? kept
              : !strcmp(kind, "crossed") ? crossed
                                         : nullptr;
  if (!work || !live) return 2;
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; t++) pool.emplace_back(work, pairs / threads, t + 1);
  for (auto &thread : pool) thread.join();
  for (auto &block : shared) free(block);
}
