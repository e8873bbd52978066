// Programs whose heap is the same in each run, so that an exact recording says what many sampled
// ones should have said. build: g++ -O2 -g -o spread spread.cpp -pthread usage: spread
// small|mixed|large|growth|freed|threads|wide [PERCENT of the blocks] With tcmalloc, DUMP=FILE
// writes its heap sample at the end.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <cmath>
#include <mutex>
#include <string>
#include <thread>

// Sixteen functions that allocate. The number in each keeps the compiler from making one of them.
template <int N> __attribute__((noinline)) void *site(void *block, size_t size) {
  block = realloc(block, size);
  asm volatile("# %1" : "+r"(block) : "i"(N));
  return block;
}
// Four that call four of them each.
template <int G> __attribute__((noinline)) void *group(int of_group, void *block, size_t size) {
  switch (of_group) {
    case 0: block = site<4 * G>(block, size); break;
    case 1: block = site<4 * G + 1>(block, size); break;
    case 2: block = site<4 * G + 2>(block, size); break;
    default: block = site<4 * G + 3>(block, size);
  }
  asm volatile("# %1" : "+r"(block) : "i"(100 + G));
  return block;
}
// tcmalloc samples by the size that a block really has, and writes down what was asked for: here
// they are the same.
static size_t (*real_size)(size_t, int);
static void *allocate(int site, void *block, size_t size) {
  if (real_size) size = real_size(size, 0);
  switch (site / 4) {
    case 0: return group<0>(site % 4, block, size);
    case 1: return group<1>(site % 4, block, size);
    case 2: return group<2>(site % 4, block, size);
    default: return group<3>(site % 4, block, size);
  }
}

struct Random {
  unsigned long state;
  unsigned long next() {  // xorshift64*
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 2685821657736338717ul >> 11;
  }
  double part() { return (double)next() / (double)(1ul << 53); }
  // Some have a share of a third, some of a hundredth.
  int site() { return (int)(16 * pow(part(), 1.8)); }
  // As many bytes in small blocks as in large ones: twice the size, half as often.
  size_t size(double least, double most) { return (size_t)(least / (1 - part() * (1 - least / most))); }
  // As many small blocks as large ones: nearly all bytes are in large ones.
  size_t wide(double least, double most) { return (size_t)(least * pow(most / least, part())); }
};

static void *kept[4][1 << 20];

static void small(long blocks) {
  Random random{88172645463325252ul};
  for (long i = 0; i < blocks; i++) kept[0][i] = allocate(random.site(), nullptr, random.size(16, 129));
}
static void mixed(long blocks) {
  Random random{1234567891011ul};
  for (long i = 0; i < blocks; i++) kept[0][i] = allocate(random.site(), nullptr, random.size(16, 65536));
}
static void wide(long blocks) {
  Random random{1234567891011ul};
  for (long i = 0; i < blocks; i++) kept[0][i] = allocate(random.site(), nullptr, random.wide(16, 65536));
}
static void large(long blocks) {
  Random random{987654321ul};
  for (long i = 0; i < blocks; i++) kept[0][i] = allocate(random.site(), nullptr, random.wide(65536, 2 << 20));
}
// Buffers that double until they are as long as they get.
static void growth(long buffers) {
  Random random{192837465ul};
  for (long i = 0; i < buffers; i++) {
    int site = random.site();
    size_t end = random.size(64, 65536);
    for (size_t size = 64; size < 2 * end; size *= 2) kept[0][i] = allocate(site, kept[0][i], size);
  }
}
static void freed(long blocks) {
  Random random{555666777888ul};
  for (long i = 0; i < blocks; i++) kept[0][i] = allocate(random.site(), nullptr, random.size(16, 4096));
  for (long i = 0; i < blocks; i++)
    if (random.next() % 3) free(kept[0][i]), kept[0][i] = nullptr;
}
// Each thread frees half of what its neighbour made.
static void threads(long blocks) {
  auto make = [blocks](int of) {
    Random random{1000003ul * (unsigned long)(of + 1)};
    for (long i = 0; i < blocks / 4; i++) kept[of][i] = allocate(random.site(), nullptr, random.size(16, 8192));
  };
  auto take = [blocks](int of) {
    for (long i = 0; i < blocks / 4; i += 2) free(kept[of][i]), kept[of][i] = nullptr;
  };
  for (int step = 0; step < 2; step++) {
    std::thread all[4];
    for (int of = 0; of < 4; of++) all[of] = step ? std::thread(take, (of + 1) % 4) : std::thread(make, of);
    for (auto &thread : all) thread.join();
  }
}

// What gperftools' MallocExtension has as its first functions is not for C: the writer is a string.
static void dump(const char *path) {
  auto instance = (void *(*)())dlsym(RTLD_DEFAULT, "_ZN15MallocExtension8instanceEv");
  if (!instance) exit(3);
  auto sample = (void (*)(void *, std::string *))dlsym(RTLD_DEFAULT, "_ZN15MallocExtension13GetHeapSampleEPNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE");
  if (!sample) exit(4);
  std::string text;
  sample(instance(), &text);
  FILE *file = fopen(path, "w");
  if (!file || fwrite(text.data(), 1, text.size(), file) != text.size() || fclose(file)) exit(5);
}

int main(int argc, char **argv) {
  const struct { const char *name; void (*run)(long); long blocks; } programs[] = {
      {"small", small, 300000}, {"mixed", mixed, 200000}, {"large", large, 400},
      {"growth", growth, 40000}, {"freed", freed, 400000}, {"threads", threads, 400000}, {"wide", wide, 5000}};
  real_size = (size_t(*)(size_t, int))dlsym(RTLD_DEFAULT, "nallocx");
  for (auto &program : programs)
    if (argc > 1 && !strcmp(program.name, argv[1])) {
      // gperftools reads TCMALLOC_SAMPLE_PARAMETER after its first block, and then samples nothing
      // of a thread's first 16 MiB.
      if (void *volatile first = getenv("DUMP") ? malloc(17 << 20) : nullptr) free(first);
      program.run(program.blocks * (argc > 2 ? atol(argv[2]) : 100) / 100);
      if (const char *path = getenv("DUMP")) dump(path);
      return 0;
    }
  return 2;
}
