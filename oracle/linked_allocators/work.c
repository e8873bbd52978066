/* Calls an allocator at random in four threads, and prints what it asked for: the number of blocks
 * and bytes, and the number and bytes of those that it keeps. PREFIX is put before each name. */
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define NAME(of) JOIN(PREFIX, of)
void *NAME(malloc)(size_t), *NAME(calloc)(size_t, size_t), *NAME(realloc)(void *, size_t);
void NAME(free)(void *);
int NAME(posix_memalign)(void **, size_t, size_t);
#ifdef EXTENDED
void *NAME(mallocx)(size_t, int), *NAME(rallocx)(void *, size_t, int);
void NAME(dallocx)(void *, int), NAME(sdallocx)(void *, size_t, int);
#endif

enum { THREADS = 4, SLOTS = 500, ROUNDS = 50000 };
struct totals { long blocks, bytes, kept, kept_bytes; };
static struct totals totals[THREADS];
static void *volatile slots[THREADS][SLOTS];

__attribute__((noinline)) void *work(void *given) {
    long own = (long)given;
    unsigned long seed = own + 1;
    size_t sizes[SLOTS] = { 0 };
    struct totals sum = { 0, 0, 0, 0 };
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        int k = (seed >> 33) % SLOTS;
        size_t size = (seed >> 20) % 3000 + 1;
        void *old = slots[own][k], *made = 0;
        switch ((seed >> 50) % 6) {
        case 0:
            NAME(free)(old);
            made = NAME(malloc)(size);
            break;
        case 1:
            NAME(free)(old);
            made = NAME(calloc)(3, size);
            size *= 3;
            break;
        case 2:
            made = NAME(realloc)(old, size);
            break;
        case 3:
            NAME(free)(old);
            size = 0;
            break;
        case 4:
            NAME(free)(old);
            size = (size + 63) & ~63UL; /* sdallocx wants the size of the same class */
            if (NAME(posix_memalign)(&made, 64, size)) abort();
            break;
        default:
#ifdef EXTENDED
            if (old && sizes[k] && i % 3) made = NAME(rallocx)(old, size, 0);
            else {
                if (old && i % 2) NAME(sdallocx)(old, sizes[k], 0);
                else if (old) NAME(dallocx)(old, 0);
                made = NAME(mallocx)(size, 0);
            }
#else
            NAME(free)(old);
            made = NAME(malloc)(size);
#endif
        }
        if (made) memset(made, 1, size < 16 ? size : 16);
        slots[own][k] = made;
        sizes[k] = size;
        sum.blocks += made != 0;
        sum.bytes += made ? size : 0;
    }
    for (int k = 0; k < SLOTS; k++) {
        sum.kept += slots[own][k] != 0;
        sum.kept_bytes += slots[own][k] ? sizes[k] : 0;
    }
    totals[own] = sum;
    return 0;
}

int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    struct totals all = { 0, 0, 0, 0 };
    for (int i = 0; i < THREADS; i++) {
        all.blocks += totals[i].blocks;
        all.bytes += totals[i].bytes;
        all.kept += totals[i].kept;
        all.kept_bytes += totals[i].kept_bytes;
    }
    printf("%ld %ld %ld %ld\n", all.blocks, all.bytes, all.kept, all.kept_bytes);
    return 3;
}
