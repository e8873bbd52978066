// scenario: linkage: all variants of operator new and delete: plain, array, nothrow, aligned, sized, and the failing ones
// build: g++ -O2 -g -std=c++17 -fno-builtin
// variant: dynamic -Wl,-z,lazy
// variant: static-libstdc++ -static-libstdc++ -static-libgcc
#include "expect.h"
#include <cstdint>
#include <new>

static struct tally by_plain = {"new_plain", 0, 0, 0, 0}, by_aligned = {"new_aligned", 0, 0, 0, 0},
                    by_type = {"new_type", 0, 0, 0, 0};

ALLOCATING void *new_plain(int way, size_t size) {
    void *p = nullptr;
    switch (way) {
    case 0: p = operator new(size); break;
    case 1: p = operator new[](size); break;
    case 2: p = operator new(size, std::nothrow); break;
    case 3: p = operator new[](size, std::nothrow); break;
    }
    keep(p);
    tally_alloc(&by_plain, size);
    return p;
}

ALLOCATING void *new_aligned(int way, size_t size, std::align_val_t alignment) {
    void *p = nullptr;
    switch (way) {
    case 0: p = operator new(size, alignment); break;
    case 1: p = operator new[](size, alignment); break;
    case 2: p = operator new(size, alignment, std::nothrow); break;
    case 3: p = operator new[](size, alignment, std::nothrow); break;
    }
    keep(p);
    tally_alloc(&by_aligned, size);
    return p;
}

static void remove_plain(int way, void *p, size_t size) {
    switch (way) {
    case 0: operator delete(p); break;
    case 1: operator delete[](p); break;
    case 2: operator delete(p, size); break;
    case 3: operator delete[](p, size); break;
    case 4: operator delete(p, std::nothrow); break;
    case 5: operator delete[](p, std::nothrow); break;
    }
    tally_free(&by_plain, size);
}

static void remove_aligned(int way, void *p, size_t size, std::align_val_t alignment) {
    switch (way) {
    case 0: operator delete(p, alignment); break;
    case 1: operator delete[](p, alignment); break;
    case 2: operator delete(p, size, alignment); break;
    case 3: operator delete[](p, size, alignment); break;
    case 4: operator delete(p, alignment, std::nothrow); break;
    case 5: operator delete[](p, alignment, std::nothrow); break;
    }
    tally_free(&by_aligned, size);
}

struct alignas(128) Wide {
    char bytes[256];
    virtual ~Wide() {}
};

ALLOCATING Wide *new_type() {
    Wide *p = new Wide;
    keep(p);
    tally_alloc(&by_type, sizeof(Wide));
    return p;
}

ALLOCATING int new_failing() {
    size_t huge = PTRDIFF_MAX;
    keep(huge);
    int failed = 0;
    try {
        void *p = operator new(huge);
        keep(p);
    } catch (const std::bad_alloc &) {
        failed++;
    }
    void *p = operator new(huge, std::nothrow);
    keep(p);
    failed += p == nullptr;
    p = operator new[](huge, std::align_val_t(64), std::nothrow);
    keep(p);
    failed += p == nullptr;
    return failed;
}

int main() {
    for (int round = 0; round < 10; round++) {
        for (int way = 0; way < 4; way++) {
            for (int back = 0; back < 6; back++) {
                size_t size = 64 * (1 + (size_t)way);
                void *p = new_plain(way, size);
                if (round % 5) remove_plain(back, p, size);
                auto alignment = std::align_val_t(64);
                p = new_aligned(way, size, alignment);
                REQUIRE(reinterpret_cast<uintptr_t>(p) % 64 == 0);
                if (round % 3) remove_aligned(back, p, size, alignment);
            }
        }
        Wide *wide = new_type();
        REQUIRE(reinterpret_cast<uintptr_t>(wide) % 128 == 0);
        if (round % 2) {
            delete wide;
            tally_free(&by_type, sizeof(Wide));
        }
    }
    operator delete(nullptr);
    operator delete[](nullptr);
    say_number("failed", new_failing());
    expect_tally(&by_plain);
    expect_tally(&by_aligned);
    expect_tally(&by_type);
    return 0;
}
