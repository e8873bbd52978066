// Calls whose stacks are many: 2^20 ways lead through the same 20 levels to `leaf`, which whoever
// includes this defines.
#pragma once
#include <cstddef>
#include <cstdint>

static void *leaf(size_t size);

// Two places of a call each level; what the assembler is told keeps them apart.
template <int Depth> __attribute__((noinline)) static void *descend(uint64_t path, size_t size) {
  void *block;
  if constexpr (Depth == 0) {
    block = leaf(size);
  } else if (path & 1) {
    block = descend<Depth - 1>(path >> 1, size);
    asm volatile("# odd" ::"r"(block));
  } else {
    block = descend<Depth - 1>(path >> 1, size);
    asm volatile("# even" ::"r"(block));
  }
  asm volatile("" ::"r"(block) : "memory");
  return block;
}
