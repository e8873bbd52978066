/* heapprof: where is the memory? The functions of libheapprof.so, for programs that link it or find it by dlsym.
 *
 * Link with -lheapprof, or preload the library and look the functions up: dlsym(RTLD_DEFAULT, "heapprof_dump").
 * `heapprof setup preload-path` prints where the library is, `heapprof setup preload-path --header` this file.
 */
#ifndef HEAPPROF_H
#define HEAPPROF_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Average bytes between samples when nothing else is asked for. */
#define HEAPPROF_DEFAULT_PERIOD (512ul * 1024)

/* Records from now on, and forgets what was recorded before. `period` 0 records every allocation, else one in so
 * many bytes on average. `output` is a file pattern as in the variable HEAPPROF_OUTPUT (%p process, %e the
 * name that the program was started by, %n number); NULL takes that variable's, or writes no files. A last profile is written when the program ends.
 * Returns 0; EBUSY when it can't begin: no memory, or a thread is interrupted inside the library (what was recorded before may
 * be gone all the same); EINVAL for a period above 1 TiB; EPERM in a sandbox that kills. */
int heapprof_start(const char *output, unsigned long period);

/* Ends the recording. What it recorded can still be dumped. */
void heapprof_stop(void);

/* 1 while allocations are recorded, else 0. */
int heapprof_is_running(void);

/* Writes a gzipped pprof profile to `path`; with NULL one in the recording's form to where the pattern says. Waits for
 * another thread's dump, ten seconds at most. Returns 0 or an errno. */
int heapprof_dump(const char *path);

/* The gzipped pprof profile in memory, its length in `*length`; free() it. NULL without memory. */
void *heapprof_profile(size_t *length);

/* The wiretap: says that the code of this name has run, in a datagram to where HEAPPROF_WIRETAP says. Without that variable
 * it does nothing. It never waits, allocates or fails, and leaves errno as it was. It may be called in any thread, and in a
 * signal handler. */
void heapprof_alive(const char *name);

/* Says the same, and where it was called from, such as "orders.c:12". NULL says nothing of it. */
void heapprof_alive_at(const char *name, const char *site);

/* Tells the `heapprof watch` that runs this program that something begins here, with what the program has in memory now.
 * Without one it does nothing. It never waits, allocates or fails, and leaves errno as it was. It may be called in any
 * thread, and in a signal handler. */
void heapprof_mark(const char *text);

/* Frames of an interpreter.
 *
 * A program that runs code of a language of its own, or switches between coroutines, may say what frames a thread's stack
 * has there. heapprof asks in two steps. `capture` runs inside an allocation and gives frames as numbers. `resolve` makes
 * names of such a frame when it is new, inside an allocation too, while its code is still there. Neither may allocate (what
 * it allocates is not recorded), wait for a lock, or change errno. Both are called in any thread, in several at once, as
 * long as the process lives.
 *
 * heapprof checks what it can: too many frames, or a write behind the last one, end the asking, and the profile says so.
 * Texts are cut at their size. It can't help against a provider that crashes, loops, or writes elsewhere. */

#define HEAPPROF_STACK_PROVIDER_VERSION 1

/* A frame as numbers. Equal numbers mean the same place in the program. `code` 0 stands for frames that were left out. */
struct heapprof_raw_frame {
    uint64_t code;    /* what is run: an address, or a number of yours */
    uint64_t place;   /* where in it */
    uint32_t version; /* another one if other code has come to the same address */
    uint32_t line;    /* the line, if you know it without looking further */
    uint64_t entry;   /* 1 if native code entered the interpreter here, otherwise 0 */
};

/* What `capture` is given, and what it gives besides frames. */
struct heapprof_capture {
    struct heapprof_raw_frame *frames; /* where frames go, the innermost first */
    size_t most;                       /* how many there can be; of a deeper stack, leave out the middle */
    uint64_t label;                    /* set it to a number below 2^48 that says what else is known; 0 is nothing */
    size_t shared;      /* set it to how many of the oldest frames are those of this thread's last stack that you gave;
                         * they need not be written again; leave it 0 if you do not know */
    void *memory;       /* this thread's memory for you, zero when there is no last stack */
    size_t memory_size; /* 16384 */
    size_t size;        /* how many bytes the program asked for */
    uintptr_t caller;   /* where the return address of malloc, calloc … lies on the stack that the thread is on */
    uintptr_t stack_begin; /* the thread's own stack, which it may have left for a coroutine's or a signal's; 0 if it is */
    uintptr_t stack_end;   /* not known */
    size_t pool;        /* set it to 1 if what is allocated is a pool, from which values of many functions are taken */
};

/* A part of what the interpreter's pools hold. */
struct heapprof_part {
    const char *name; /* such as "SV heads (free)" */
    uint64_t objects; /* how many blocks were allocated for it */
    uint64_t bytes;   /* how many bytes it has */
};

/* Where a report goes. Call its functions with its `to`. They copy what they are given. */
struct heapprof_report {
    void *to;
    /* Takes a part. The profile has it below the pools' own frame. Parts divide what is in use there, so they need not be
     * exact. */
    void (*part)(void *to, const struct heapprof_part *part);
    /* Takes a line for the profile's comments. */
    void (*remark)(void *to, const char *text);
    /* Takes what a part of the memory in use is for, such as "buffers of strings", and its bytes. `heapprof info` shows the
     * parts beside what the kernel counts. Asked for only if every allocation is recorded. */
    void (*account)(void *to, const char *name, uint64_t bytes);
};

/* Values of one kind that one stack made, if you trace values: what an interpreter makes from its pools. */
struct heapprof_value {
    uint32_t stack;    /* its number, or HEAPPROF_NO_STACK */
    uint32_t reserved; /* 0 */
    const char *frame; /* what stands for the stack if it has no number; the text must stay */
    uint64_t label;    /* what else is known, as in struct heapprof_capture */
    uint64_t made;     /* how many were made */
    uint64_t objects;  /* how many of them are alive */
    uint64_t bytes;    /* and the bytes of these */
};
#define HEAPPROF_NO_STACK UINT32_MAX

/* Where texts go, each with a zero at its end. */
struct heapprof_named_frame {
    char *name;
    size_t name_size;
    char *file;
    size_t file_size;
    uint32_t start_line; /* where the function begins; 0 if you do not know */
    uint32_t line;       /* the line that runs; it begins as the raw frame's */
    void *memory;        /* the thread's own for you, as in struct heapprof_capture */
    size_t memory_size;
};

struct heapprof_stack_provider {
    uint32_t version;     /* HEAPPROF_STACK_PROVIDER_VERSION */
    uint32_t size;        /* sizeof(struct heapprof_stack_provider) */
    const char *language; /* such as "lua"; it takes the place of an earlier provider of the same name */
    void *context;        /* what the functions get */
    /* Returns how many frames the thread's stack has, 0 if it runs no code of the interpreter. */
    size_t (*capture)(void *context, struct heapprof_capture *capture);
    /* Returns 0, or something else if there is no name. */
    int (*resolve)(void *context, const struct heapprof_raw_frame *frame, struct heapprof_named_frame *named);
    /* Gives the key and the text of the i-th label of a number. Returns 0, or something else if there are not so many. May
     * be NULL. It is called when a profile is written. */
    int (*label)(void *context, uint64_t label, size_t i, char *key, size_t key_size, char *text, size_t text_size);
    /* Says why frames are missing. Returns 0, or something else if none are. May be NULL. */
    int (*status)(void *context, char *text, size_t text_size);
    /* The native code that runs the interpreter's, for --frames=both: each run of frames stands in its place. NULL and 0 if
     * you do not know. */
    const void *run_loop;
    size_t run_loop_size;
    /* Says what the pools hold now, and whatever else a profile should say of the interpreter. May be NULL. It is called
     * when a profile is written, in any thread, while others go on. */
    void (*report)(void *context, const struct heapprof_report *report);
    /* For a provider that traces values: what their sample types begin with, such as "sv" for sv_inuse_space. NULL if you
     * trace none. */
    const char *value_name;
    /* Gives the i-th row of values. Returns 0, or something else if there are no more. May be NULL. It is called when a
     * profile is written, in any thread, with 0 first and then with one more each time. */
    int (*values)(void *context, size_t i, struct heapprof_value *value);
    /* Says whether `capture` would give what the thread's last one gave, label, pool and all, by the memory that you have
     * for the thread. Returns 0 if not, or if you do not know. It runs where `capture` does, and instead of it. May be NULL,
     * and is to be if what you give depends on the size or the caller. */
    int (*unchanged)(void *context, void *memory, size_t memory_size);
};

/* Has the provider asked from now on. It is copied. Returns 0; EINVAL if it is NULL, of another version or lacks a
 * function; ENOSPC if there are eight already. The same provider may be registered again, with another run loop. */
int heapprof_register_stack_provider(const struct heapprof_stack_provider *provider);

/* For the Perl module Devel::HeapProf, which was compiled with the headers of the perl that runs: offsets, sizes and
 * numbers of its structures, by their names in heapprof's table of perls (layouts.tsv). Returns 0; ENOENT if there is no
 * perl, EINVAL if fields are missing or can't be right. */
struct heapprof_perl_field {
    const char *name;
    uint32_t value;
};
int heapprof_perl_layout(const struct heapprof_perl_field *fields, size_t count);

/* For programs that load code in forked children, and are recorded with `heapprof record --fork-audit`. Notes that this
 * child has tried to load something. `outcome` is "loaded", "failed" or "not found"; `site` names who asked for it, as
 * "FILE:LINE < FILE:LINE"; `stats` and `opens` count the system calls of the search. Texts may be NULL. Returns 1 if it was
 * noted, else 0: in the first process, or without an audit. */
struct heapprof_load {
    const char *name;
    const char *kind;
    const char *outcome;
    const char *site;
    int64_t micros;
    int64_t stats;
    int64_t opens;
};
int heapprof_load(const struct heapprof_load *load);

/* With the same option, waits until heapprof has looked at this child's pages. With `ends` 0, the audit shows this moment.
 * An interpreter that is about to clean up says `ends` 1: then the audit shows this moment if nobody has looked before.
 * Returns 1 if it did, else 0. */
int heapprof_look(int ends);

/* For the same module, which traces the values of a perl: those of the functions heapprof_perl_values…, which are not for
 * other programs. The module's values.h declares them. */

/* For the same module: where it notes which sub that is written in C an interpreter (NULL without MULTIPLICITY) calls, so
 * that the sub has a frame: its CV, PL_op, PL_curstackinfo and cxstack_ix at the call. NULL if they are not wanted. The
 * place stays as long as the interpreter lives. */
uint64_t *heapprof_perl_calls(const void *interpreter);

/* gperftools' heap profiler, by its names and with its text form: every allocation, into PREFIX.NNNN.heap, at the
 * intervals of its variables (HEAP_PROFILE_ALLOCATION_INTERVAL and so on). */
void HeapProfilerStart(const char *prefix);
int IsHeapProfilerRunning(void);
void HeapProfilerStop(void);
void HeapProfilerDump(const char *reason);

/* The profile as text; free() it. */
char *GetHeapProfile(void);

#ifdef __cplusplus
}
#endif

#endif
