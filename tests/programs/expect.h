// What the programs share: tallies of what a function allocated, and the file that says them.
// Nothing here allocates or uses stdio, so that the numbers stay those of the program itself.
#ifndef EXPECT_H
#define EXPECT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// A function that is found by its name in the profile: one frame, one C name, never merged with its caller.
#ifdef __cplusplus
#define ALLOCATING extern "C" __attribute__((noinline, noclone))
#else
#define ALLOCATING __attribute__((noinline, noclone))
#endif

// Makes the compiler forget what it knows of a pointer; after a call it also forbids the tail call.
#define keep(p) __asm__ volatile("" : "+r"(p) : : "memory")

// For functions that return nothing: what stands before is not the last thing they do.
#define stay() __asm__ volatile("" : : : "memory")

#define REQUIRE(condition) \
    do { \
        if (!(condition)) require_failed(#condition, __LINE__); \
    } while (0)

struct tally {
    const char *name;
    long alloc_objects, alloc_space, freed_objects, freed_space;
};

static inline void tally_alloc(struct tally *tally, size_t size) {
    __atomic_fetch_add(&tally->alloc_objects, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&tally->alloc_space, (long)size, __ATOMIC_RELAXED);
}

static inline void tally_free(struct tally *tally, size_t size) {
    __atomic_fetch_add(&tally->freed_objects, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&tally->freed_space, (long)size, __ATOMIC_RELAXED);
}

static inline size_t text_put(char *line, size_t at, const char *text) {
    while (*text) line[at++] = *text++;
    return at;
}

static inline size_t text_number(char *line, size_t at, long number) {
    char digits[24];
    size_t n = 0;
    unsigned long rest = number < 0 ? 0UL - (unsigned long)number : (unsigned long)number;
    do digits[n++] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (number < 0) line[at++] = '-';
    while (n) line[at++] = digits[--n];
    return at;
}

// The program's own word on stdout, unbuffered: what was said stays said, however the program ends.
static inline void say(const char *text) {
    size_t length = strlen(text);
    while (length) {
        ssize_t written = write(1, text, length);
        if (written <= 0) return;
        text += written;
        length -= (size_t)written;
    }
}

static inline void say_number(const char *text, long number) {
    char line[256];
    size_t at = text_put(line, 0, text);
    at = text_put(line, at, " ");
    at = text_number(line, at, number);
    line[at++] = '\n';
    line[at] = 0;
    say(line);
}

static inline void require_failed(const char *condition, int number) {
    char line[512];
    size_t at = text_put(line, 0, "not so in line ");
    at = text_number(line, at, number);
    at = text_put(line, at, ": ");
    at = text_put(line, at, condition);
    line[at++] = '\n';
    line[at] = 0;
    say(line);
    syscall(SYS_exit_group, 99);
}

// Adds a line to the file of the main process (child = 0), or to the one of this process: its name ends in .PID.
static inline void expect_line(int child, const char *line, size_t length) {
    const char *file = getenv("HEAPPROF_TEST_EXPECT");
    char path[4096];
    if (!file || strlen(file) > sizeof path - 32) return;
    size_t at = text_put(path, 0, file);
    if (child) {
        at = text_put(path, at, ".");
        at = text_number(path, at, (long)syscall(SYS_getpid));
    }
    path[at] = 0;
    long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    syscall(SYS_write, fd, line, length);
    syscall(SYS_close, fd);
}

static inline void expect_numbers(int child, const char *name, long alloc_objects, long alloc_space,
                                  long inuse_objects, long inuse_space) {
    char line[512];
    size_t at = text_put(line, 0, "function ");
    at = text_put(line, at, name);
    at = text_put(line, at, " alloc_objects ");
    at = text_number(line, at, alloc_objects);
    at = text_put(line, at, " alloc_space ");
    at = text_number(line, at, alloc_space);
    at = text_put(line, at, " inuse_objects ");
    at = text_number(line, at, inuse_objects);
    at = text_put(line, at, " inuse_space ");
    at = text_number(line, at, inuse_space);
    line[at++] = '\n';
    expect_line(child, line, at);
}

static inline void expect_tally(const struct tally *tally) {
    expect_numbers(0, tally->name, tally->alloc_objects, tally->alloc_space,
                   tally->alloc_objects - tally->freed_objects, tally->alloc_space - tally->freed_space);
}

static inline void expect_tally_of_child(const struct tally *tally) {
    expect_numbers(1, tally->name, tally->alloc_objects, tally->alloc_space,
                   tally->alloc_objects - tally->freed_objects, tally->alloc_space - tally->freed_space);
}

// A line of a keyword, a name (may be "") and up to four numbers.
static inline void expect_words(const char *keyword, const char *name, int count, long a, long b, long c, long d) {
    const long numbers[] = {a, b, c, d};
    char line[512];
    size_t at = text_put(line, 0, keyword);
    if (*name) {
        at = text_put(line, at, " ");
        at = text_put(line, at, name);
    }
    for (int i = 0; i < count; i++) {
        at = text_put(line, at, " ");
        at = text_number(line, at, numbers[i]);
    }
    line[at++] = '\n';
    expect_line(0, line, at);
}

static inline void expect_peak_at_least(long bytes) { expect_words("peak_space_at_least", "", 1, bytes, 0, 0, 0); }

static inline void expect_peak(const char *name, long objects, long bytes) {
    expect_words("peak", name, 2, objects, bytes, 0, 0);
}

static inline void expect_temporary(const char *name, long objects) {
    expect_words("temporary", name, 1, objects, 0, 0, 0);
}

// xorshift: the same numbers in every run, on every machine.
static inline unsigned long next_random(unsigned long *state) {
    unsigned long x = *state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return *state = x;
}

#endif
