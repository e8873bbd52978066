// scenario: linkage: operators new and delete of another allocator, preloaded behind the hooks
// build: g++ -O2 -g
// Run with jemalloc or tcmalloc in LD_PRELOAD; allocators.rs knows the numbers.
#include <cstddef>
#include <cstdio>
#include <new>

struct alignas(64) Aligned { char bytes[128]; };

#define ALLOCATING extern "C" __attribute__((noinline))
template <class T> static T *keep(T *p) { asm volatile("" ::"r"(p) : "memory"); return p; }

ALLOCATING char *operators_array(size_t n) { return keep(new char[n]); }
ALLOCATING int *operators_one() { return keep(new int); }
ALLOCATING Aligned *operators_aligned() { return keep(new Aligned); }
ALLOCATING char *operators_nothrow(size_t n) { return keep(new (std::nothrow) char[n]); }

int main() {
    for (int i = 0; i < 100; i++) {
        delete[] operators_array(100);
        delete operators_one();
        delete operators_aligned();
    }
    operators_array(5000);
    operators_nothrow(300);
    volatile size_t huge = (size_t)1 << 60;
    int caught = 0;
    try {
        operators_array(huge);
    } catch (const std::bad_alloc &) {
        caught = 1;
    }
    printf("caught %d, null %d\n", caught, operators_nothrow(huge) == nullptr);
}
