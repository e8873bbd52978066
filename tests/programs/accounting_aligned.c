// scenario: accounting: aligned allocations count what was asked for; realloc and free of them
// build: gcc -O2 -g
#include "expect.h"
#include <malloc.h>
#include <stdint.h>

static struct tally by_posix = {.name = "aligned_posix"}, by_c11 = {.name = "aligned_c11"},
                    by_memalign = {.name = "aligned_memalign"}, by_valloc = {.name = "aligned_valloc"},
                    by_pvalloc = {.name = "aligned_pvalloc"}, by_realloc = {.name = "aligned_realloc"};

ALLOCATING void *aligned_posix(size_t alignment, size_t size) {
    void *p = NULL;
    REQUIRE(posix_memalign(&p, alignment, size) == 0);
    keep(p);
    tally_alloc(&by_posix, size);
    return p;
}

ALLOCATING void *aligned_c11(size_t alignment, size_t size) {
    void *p = aligned_alloc(alignment, size);
    keep(p);
    tally_alloc(&by_c11, size);
    return p;
}

ALLOCATING void *aligned_memalign(size_t alignment, size_t size) {
    void *p = memalign(alignment, size);
    keep(p);
    tally_alloc(&by_memalign, size);
    return p;
}

ALLOCATING void *aligned_valloc(size_t size) {
    void *p = valloc(size);
    keep(p);
    tally_alloc(&by_valloc, size);
    return p;
}

ALLOCATING void *aligned_pvalloc(size_t size) {
    void *p = pvalloc(size);
    keep(p);
    tally_alloc(&by_pvalloc, size);
    return p;
}

ALLOCATING void *aligned_realloc(void *old, size_t size) {
    void *p = realloc(old, size);
    keep(p);
    tally_alloc(&by_realloc, size);
    return p;
}

static void done_with(void *p, struct tally *owner, size_t size, int turn) {
    if (turn % 3 == 0) return;
    tally_free(owner, size);
    if (turn % 3 == 1) {
        free(p);
        return;
    }
    p = aligned_realloc(p, size + 100);
    if (turn % 2) {
        tally_free(&by_realloc, size + 100);
        free(p);
    }
}

int main(void) {
    int turn = 0;
    for (size_t alignment = 8; alignment <= 65536; alignment *= 2) {
        for (size_t size = 1; size <= 3000; size += 499, turn++) {
            void *p = aligned_posix(alignment, size);
            REQUIRE((uintptr_t)p % alignment == 0);
            done_with(p, &by_posix, size, turn);
            p = aligned_c11(alignment, alignment * 2);
            REQUIRE((uintptr_t)p % alignment == 0);
            done_with(p, &by_c11, alignment * 2, turn + 1);
            p = aligned_memalign(alignment, size);
            REQUIRE((uintptr_t)p % alignment == 0);
            done_with(p, &by_memalign, size, turn + 2);
        }
        void *p = aligned_valloc(alignment);
        REQUIRE((uintptr_t)p % 4096 == 0);
        done_with(p, &by_valloc, alignment, turn);
        p = aligned_pvalloc(alignment);
        REQUIRE((uintptr_t)p % 4096 == 0 && malloc_usable_size(p) >= 4096);
        done_with(p, &by_pvalloc, alignment, turn + 1);
    }
    const struct tally *all[] = {&by_posix, &by_c11, &by_memalign, &by_valloc, &by_pvalloc, &by_realloc};
    for (int i = 0; i < 6; i++) expect_tally(all[i]);
    say("aligned\n");
    return 0;
}
