/* heapprof: where is the memory? The functions of libheapprof.so, for programs that link it or find it by dlsym.
 *
 * Link with -lheapprof, or preload the library and look the functions up: dlsym(RTLD_DEFAULT, "heapprof_dump").
 * `heapprof preload-path` prints where the library is, `heapprof preload-path --header` this file.
 */
#ifndef HEAPPROF_H
#define HEAPPROF_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Average bytes between samples when nothing else is asked for. */
#define HEAPPROF_DEFAULT_PERIOD (512ul * 1024)

/* Records from now on, and forgets what was recorded before. `period` 0 records every allocation, else one in so
 * many bytes on average. `output` is a file pattern as in the variable HEAPPROF_OUTPUT (%p process, %e the
 * name that the program was started by, %n number); NULL takes that variable's, or writes no files. A last profile is written when the program ends.
 * Returns 0; EBUSY when it can't begin: no memory, or a thread is held up inside the library (what was recorded before may
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
