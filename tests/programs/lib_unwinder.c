// An allocator behind heapprof's hooks that asks libgcc's unwinder who called, and writes it to HEAPPROF_TEST_STACKS.
// The file is mapped memory, so that it is whole however the program ends: records of size, frames, addresses.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <unwind.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t), *__libc_valloc(size_t), *__libc_pvalloc(size_t);
extern void __libc_free(void *);

// Sparse: only what is written takes room.
#define WORDS (1ul << 27)
// The file's first words: how far it is written, how many records found no room.
#define HEAD 2
#define MOST 300

static unsigned long *words;
static pid_t owner;
static int opening;

static int ready(void) {
    if (words) return getpid() == owner;
    if (!environ || __atomic_exchange_n(&opening, 1, __ATOMIC_ACQ_REL)) return 0;
    const char *path = getenv("HEAPPROF_TEST_STACKS");
    if (!path) return 0;
    // One that is there belongs to the image before an exec, or to a parent.
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd < 0) return 0;
    void *map = MAP_FAILED;
    if (ftruncate(fd, WORDS * 8) == 0) map = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (map == MAP_FAILED) return 0;
    unsigned long *file = map;
    file[0] = HEAD;
    owner = getpid();
    __atomic_store_n(&words, file, __ATOMIC_RELEASE);
    return 1;
}

struct walk {
    unsigned long count, pc[2 * MOST];
};

// Both ends of the stack: the leaf's side in the first half, the root's in a ring behind it.
static _Unwind_Reason_Code frame(struct _Unwind_Context *context, void *argument) {
    struct walk *walk = argument;
    int interrupted = 0;
    unsigned long pc = _Unwind_GetIPInfo(context, &interrupted);
    if (!pc) return _URC_END_OF_STACK;
    unsigned long at = walk->count++;
    // The call, not what comes after it; where a signal came there was no call.
    walk->pc[at < MOST ? at : MOST + at % MOST] = pc - !interrupted;
    return _URC_NO_REASON;
}

static __attribute__((noinline)) void wrote(size_t size) {
    int before = errno;
    if (ready()) {
        struct walk walk;
        walk.count = 0;
        _Unwind_Backtrace(frame, &walk);
        unsigned long kept = walk.count < 2 * MOST ? walk.count : 2 * MOST;
        unsigned long at = __atomic_fetch_add(&words[0], kept + 3, __ATOMIC_RELAXED);
        if (at + kept + 3 > WORDS) {
            __atomic_fetch_add(&words[1], 1, __ATOMIC_RELAXED);
        } else {
            words[at] = size;
            words[at + 1] = walk.count;
            words[at + 2] = kept;
            for (unsigned long i = 0; i < kept; i++) {
                unsigned long from = walk.count - kept + i;
                words[at + 3 + i] = walk.pc[i < MOST ? i : MOST + from % MOST];
            }
        }
    }
    errno = before;
}

void *malloc(size_t size) {
    void *p = __libc_malloc(size);
    if (p) wrote(size);
    return p;
}

void *calloc(size_t n, size_t each) {
    void *p = __libc_calloc(n, each);
    if (p) wrote(n * each);
    return p;
}

void *realloc(void *old, size_t size) {
    void *p = __libc_realloc(old, size);
    if (p) wrote(size);
    return p;
}

void *memalign(size_t align, size_t size) {
    void *p = __libc_memalign(align, size);
    if (p) wrote(size);
    return p;
}

void *aligned_alloc(size_t align, size_t size) {
    void *p = __libc_memalign(align, size);
    if (p) wrote(size);
    return p;
}

int posix_memalign(void **result, size_t align, size_t size) {
    int before = errno;
    void *p = __libc_memalign(align, size);
    errno = before;
    if (!p) return ENOMEM;
    wrote(size);
    *result = p;
    return 0;
}

void *valloc(size_t size) {
    void *p = __libc_valloc(size);
    if (p) wrote(size);
    return p;
}

void *pvalloc(size_t size) {
    void *p = __libc_pvalloc(size);
    if (p) wrote(size);
    return p;
}

void free(void *p) { __libc_free(p); }
