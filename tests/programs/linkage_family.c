// scenario: linkage: every function of the malloc family once, with its odd arguments and its failures
// build: gcc -O1 -g -fno-builtin
// variant: lazy -Wl,-z,lazy
// variant: now -Wl,-z,now
#include "expect.h"
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>

static struct tally by_all = {.name = "family_all"};

static void answer(const char *what, int yes) {
    say(what);
    say(yes ? ": yes\n" : ": NO\n");
}

static void *got(void *p, size_t size) {
    keep(p);
    if (p) tally_alloc(&by_all, size);
    return p;
}

static void gone(void *p, size_t size) {
    free(p);
    tally_free(&by_all, size);
}

static int aligned(void *p, uintptr_t alignment) { return p && (uintptr_t)p % alignment == 0; }

// Newer than many a libc: found by name, or not at all.
static void *named(const char *name) { return dlsym(RTLD_DEFAULT, name); }

ALLOCATING void family_all(void) {
    size_t huge = SIZE_MAX / 2 + 10, quarter = SIZE_MAX / 4;
    keep(huge);
    keep(quarter);
    char *p = got(malloc(100), 100);
    answer("malloc", p && malloc_usable_size(p) >= 100 && aligned(p, 16));
    memset(p, 1, malloc_usable_size(p));
    gone(p, 100);
    p = got(malloc(0), 0);
    answer("malloc(0)", p != NULL);
    gone(p, 0);
    errno = 0;
    answer("malloc, too much", malloc(huge) == NULL && errno == ENOMEM);
    answer("malloc_usable_size(NULL)", malloc_usable_size(NULL) == 0);

    p = got(calloc(7, 11), 77);
    int zero = 1;
    for (int i = 0; i < 77; i++) zero &= p[i] == 0;
    answer("calloc", zero);
    gone(p, 77);
    errno = 0;
    answer("calloc, overflow", calloc(quarter, 8) == NULL && errno == ENOMEM);
    p = got(calloc(0, 5), 0);
    answer("calloc(0, n)", p != NULL);
    gone(p, 0);
    p = got(calloc(1, 1 << 20), 1 << 20);
    answer("calloc, large", p && p[0] == 0 && p[(1 << 20) - 1] == 0);
    gone(p, 1 << 20);

    p = got(realloc(NULL, 50), 50);
    answer("realloc(NULL, n)", p != NULL);
    memset(p, 5, 50);
    tally_free(&by_all, 50);
    p = got(realloc(p, 5000), 5000);
    answer("realloc, more", p && p[0] == 5 && p[49] == 5);
    tally_free(&by_all, 5000);
    p = got(realloc(p, 20), 20);
    answer("realloc, less", p && p[19] == 5);
    errno = 0;
    answer("realloc, too much", realloc(p, huge) == NULL && errno == ENOMEM && p[19] == 5);
    tally_free(&by_all, 20);
    answer("realloc(p, 0)", realloc(p, 0) == NULL);

    p = got(reallocarray(NULL, 10, 10), 100);
    answer("reallocarray", p != NULL);
    errno = 0;
    answer("reallocarray, overflow", reallocarray(p, quarter, 8) == NULL && errno == ENOMEM);
    gone(p, 100);

    void *q = &q;
    answer("posix_memalign", posix_memalign(&q, 1024, 300) == 0 && aligned(q, 1024));
    gone(got(q, 300), 300);
    q = &q;
    errno = 77;
    answer("posix_memalign, not a power", posix_memalign(&q, 24, 300) == EINVAL && q == &q && errno == 77);
    answer("posix_memalign, too small", posix_memalign(&q, 4, 300) == EINVAL && q == &q);
    answer("posix_memalign, too much", posix_memalign(&q, 64, huge) == ENOMEM && q == &q);
    p = got(aligned_alloc(256, 512), 512);
    answer("aligned_alloc", aligned(p, 256));
    gone(p, 512);
    p = got(memalign(4096, 10), 10);
    answer("memalign", aligned(p, 4096));
    gone(p, 10);
    p = got(memalign(1, 10), 10);
    answer("memalign, alignment 1", aligned(p, 1));
    gone(p, 10);
    errno = 0;
    answer("memalign, too much", memalign(64, huge) == NULL && errno == ENOMEM);
    p = got(valloc(100), 100);
    answer("valloc", aligned(p, 4096));
    gone(p, 100);
    p = got(pvalloc(100), 100);
    answer("pvalloc", aligned(p, 4096) && malloc_usable_size(p) >= 4096);
    gone(p, 100);
    free(NULL);

    // Said without their result: bare they are not there, and the old ones are hidden from new programs.
    void (*freeing)(void *), (*sized)(void *, size_t), (*aligned_sized)(void *, size_t, size_t);
    void *found = named("cfree");
    memcpy(&freeing, &found, sizeof found);
    p = got(malloc(60), 60);
    (freeing ? freeing : free)(p);
    tally_free(&by_all, 60);
    found = named("free_sized");
    memcpy(&sized, &found, sizeof found);
    p = got(malloc(61), 61);
    if (sized) sized(p, 61);
    else free(p);
    tally_free(&by_all, 61);
    if (sized) sized(NULL, 0);
    found = named("free_aligned_sized");
    memcpy(&aligned_sized, &found, sizeof found);
    p = got(aligned_alloc(64, 128), 128);
    if (aligned_sized) aligned_sized(p, 64, 128);
    else free(p);
    tally_free(&by_all, 128);

    got(malloc(1234), 1234);
    // What glibc says about itself still answers.
    answer("mallopt", mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    malloc_trim(0);
    stay();
}

int main(void) {
    family_all();
    expect_tally(&by_all);
    return 0;
}
