// A program whose allocations are known: each function below allocates in one way only, and counts
// what it asks for, so that a profiler's figures can be held against the truth, function by
// function. build: g++ -std=c++17 -O2 -g -o known known.cpp -pthread prints a line a function:
// name, objects and bytes allocated, objects and bytes still in use at the end. A realloc counts as
// a free and a new allocation, in place or not.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <thread>
#include <vector>

struct Count {
  const char *name;
  std::atomic<long> objects{0}, bytes{0}, live_objects{0}, live_bytes{0};
  explicit Count(const char *name);
  void *allocated(void *block, size_t size) {
    if (!block) abort();
    objects++, bytes += size, live_objects++, live_bytes += size;
    asm volatile("" : "+r"(block) : : "memory");  // no pair is optimized away
    return block;
  }
  void freed(size_t size) { live_objects--, live_bytes -= size; }
};

static Count *counts[64];
static int used;
Count::Count(const char *name) : name(name) { counts[used++] = this; }

#define KNOWN(name)            \
  static Count count_##name(#name); \
  extern "C" __attribute__((noinline, noclone)) void name

// --- one function a way to allocate ---

KNOWN(small_malloc)() {
  for (int i = 0; i < 1000; i++) {
    void *block = count_small_malloc.allocated(malloc(48), 48);
    count_small_malloc.freed(48), free(block);
  }
}
KNOWN(kept_malloc)() {
  for (int i = 0; i < 50; i++) *(char *)count_kept_malloc.allocated(malloc(4096), 4096) = 1;
}
KNOWN(zero_malloc)() {
  for (int i = 0; i < 100; i++) {
    void *block = count_zero_malloc.allocated(malloc(0), 0);
    count_zero_malloc.freed(0), free(block);
  }
}
KNOWN(large_malloc)() {  // above glibc's mmap threshold
  for (int i = 0; i < 5; i++) {
    void *block = count_large_malloc.allocated(malloc(1 << 20), 1 << 20);
    count_large_malloc.freed(1 << 20), free(block);
  }
}
KNOWN(row_calloc)() {
  for (int i = 0; i < 300; i++) {
    void *block = count_row_calloc.allocated(calloc(10, 24), 240);
    if (i % 3) count_row_calloc.freed(240), free(block);
  }
}
KNOWN(growing_realloc)() {  // each chain: 16, 32, … 1024 bytes
  for (int chain = 0; chain < 100; chain++) {
    void *block = nullptr;
    for (size_t size = 16; size <= 1024; size *= 2) {
      block = count_growing_realloc.allocated(realloc(block, size), size);
      if (size > 16) count_growing_realloc.freed(size / 2);
    }
    count_growing_realloc.freed(1024), free(block);
  }
}
KNOWN(shrinking_realloc)() {  // stays where it is
  for (int i = 0; i < 80; i++) {
    void *block = count_shrinking_realloc.allocated(malloc(1000), 1000);
    block = count_shrinking_realloc.allocated(realloc(block, 900), 900);
    count_shrinking_realloc.freed(1000), count_shrinking_realloc.freed(900), free(block);
  }
}
KNOWN(array_reallocarray)() {
  for (int i = 0; i < 70; i++) {
    void *block = count_array_reallocarray.allocated(reallocarray(nullptr, 7, 30), 210);
    count_array_reallocarray.freed(210), free(block);
  }
}
KNOWN(page_posix_memalign)() {
  for (int i = 0; i < 40; i++) {
    void *block = nullptr;
    if (posix_memalign(&block, 64, 1000)) abort();
    count_page_posix_memalign.allocated(block, 1000);
    if (i % 2) count_page_posix_memalign.freed(1000), free(block);
  }
}
KNOWN(line_aligned_alloc)() {
  for (int i = 0; i < 60; i++) {
    void *block = count_line_aligned_alloc.allocated(aligned_alloc(64, 640), 640);
    count_line_aligned_alloc.freed(640), free(block);
  }
}
KNOWN(old_memalign)() {
  for (int i = 0; i < 20; i++) {
    void *block = count_old_memalign.allocated(memalign(256, 512), 512);
    if (i % 2) count_old_memalign.freed(512), free(block);
  }
}
KNOWN(old_valloc)() {
  for (int i = 0; i < 10; i++) {
    void *block = count_old_valloc.allocated(valloc(300), 300);
    count_old_valloc.freed(300), free(block);
  }
}
KNOWN(old_pvalloc)() {
  for (int i = 0; i < 10; i++) {
    void *block = count_old_pvalloc.allocated(pvalloc(300), 300);
    count_old_pvalloc.freed(300), free(block);
  }
}
KNOWN(text_strdup)() {  // the C library allocates
  for (int i = 0; i < 30; i++) {
    void *block = count_text_strdup.allocated(strdup("nineteen characters"), 20);
    count_text_strdup.freed(20), free(block);
  }
}
KNOWN(object_new)() {
  struct Node { long field[7]; };
  for (int i = 0; i < 500; i++) {
    Node *node = (Node *)count_object_new.allocated(new Node, sizeof(Node));
    if (i >= 100) count_object_new.freed(sizeof(Node)), delete node;
  }
}
KNOWN(array_new)() {
  for (int i = 0; i < 50; i++) {
    int *array = (int *)count_array_new.allocated(new int[100], 400);
    count_array_new.freed(400), delete[] array;
  }
}
KNOWN(aligned_new)() {
  struct alignas(128) Line { char byte[256]; };
  for (int i = 0; i < 25; i++) {
    Line *line = (Line *)count_aligned_new.allocated(new Line, sizeof(Line));
    count_aligned_new.freed(sizeof(Line)), delete line;
  }
}
KNOWN(vector_growth)() {  // 1, 2, 4, … 64 elements of 8 bytes, by the standard library's code
  for (int i = 0; i < 20; i++) {
    std::vector<long> v;
    for (size_t before = 0, k = 0; k < 64; before = v.capacity(), k++) {
      v.push_back(k);
      if (v.capacity() == before) continue;
      count_vector_growth.allocated(v.data(), v.capacity() * 8);
      if (before) count_vector_growth.freed(before * 8);
    }
    count_vector_growth.freed(v.capacity() * 8);
  }
}

// --- threads, and blocks that are freed by another one ---

KNOWN(thread_malloc)() {
  for (int i = 0; i < 250; i++) {
    void *block = count_thread_malloc.allocated(malloc(32), 32);
    count_thread_malloc.freed(32), free(block);
  }
}
static void *handed[400];
KNOWN(handed_over)() {
  for (void *&block : handed) block = count_handed_over.allocated(malloc(128), 128);
}

// --- a stack of 100 frames: the leaf allocates, the root is what a profiler with a short stack
// loses ---

KNOWN(deep_leaf)() {
  for (int i = 0; i < 10; i++) {
    void *block = count_deep_leaf.allocated(malloc(64), 64);
    count_deep_leaf.freed(64), free(block);
  }
}
static __attribute__((noinline, noclone)) int descend(int depth) {
  if (depth == 0) {
    deep_leaf();
    return 1;
  }
  int below = descend(depth - 1);
  asm volatile("" : "+r"(below));  // no tail call
  return below + 1;
}
KNOWN(deep_root)() {  // its figures are those of deep_leaf, and no more
  long objects = count_deep_leaf.objects, bytes = count_deep_leaf.bytes;
  int frames = descend(100);
  asm volatile("" : "+r"(frames));
  count_deep_root.objects += count_deep_leaf.objects - objects;
  count_deep_root.bytes += count_deep_leaf.bytes - bytes;
}

int main() {
  small_malloc(), kept_malloc(), zero_malloc(), large_malloc(), row_calloc();
  growing_realloc(), shrinking_realloc(), array_reallocarray();
  page_posix_memalign(), line_aligned_alloc(), old_memalign(), old_valloc(), old_pvalloc();
  text_strdup(), object_new(), array_new(), aligned_new(), vector_growth(), deep_root();
  std::vector<std::thread> pool;
  for (int t = 0; t < 4; t++) pool.emplace_back([] { thread_malloc(); asm volatile(""); });
  for (auto &thread : pool) thread.join();
  std::thread([] { handed_over(); asm volatile(""); }).join();
  std::thread([] { for (void *block : handed) count_handed_over.freed(128), free(block); }).join();
  for (int i = 0; i < used; i++)
    printf("%s %ld %ld %ld %ld\n", counts[i]->name, counts[i]->objects.load(), counts[i]->bytes.load(),
           counts[i]->live_objects.load(), counts[i]->live_bytes.load());
}
