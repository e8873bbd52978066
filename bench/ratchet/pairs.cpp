// Pairs of malloc and free whose instructions are counted: below 20 calls, on 2^BITS stacks, by the
// first thread that allocates or by a second one, which frees what the first has left. Neither is
// the main thread, whose stack valgrind puts elsewhere than the kernel does.
// usage: pairs PAIRS [BITS=0] [SECOND=0]
#include "../descend.hpp"
#include <cstdint>
#include <cstdlib>
#include <thread>

static void *live[2000];

__attribute__((noinline)) static void *leaf(size_t size) {
  void *block = malloc(size);
  *static_cast<volatile char *>(block) = 1;
  return block;
}

__attribute__((noinline)) static void replace(uint64_t pairs, uint64_t mask) {
  uint64_t state = 88172645463325252u;
  for (uint64_t i = 0; i < pairs; i++) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    void *&block = live[state % 2000];
    free(block);
    block = descend<20>((state >> 20) & mask, 16 + (state >> 40) % 240);
  }
}

static void first(uint64_t pairs, uint64_t mask, bool second) {
  replace(second ? 10000 : pairs, mask);
  if (second) std::thread(replace, pairs, mask).join();
}

int main(int argc, char **argv) {
  auto number = [&](int i) { return argc > i ? strtoull(argv[i], nullptr, 10) : 0; };
  std::thread(first, number(1), (1ull << number(2)) - 1, number(3) != 0).join();
}
