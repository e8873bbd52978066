// Calls the operators new and delete at random, and prints what it asked for, as work.c does.
#include <cstdio>
#include <cstdlib>
#include <new>

enum { SLOTS = 500, ROUNDS = 100000 };
static char *volatile slots[SLOTS];
static size_t sizes[SLOTS];
static long blocks, bytes;

__attribute__((noinline)) int work() {
    unsigned long seed = 1;
    for (int i = 0; i < ROUNDS; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        int k = (seed >> 33) % SLOTS;
        size_t size = (seed >> 20) % 3000 + 1;
        delete[] slots[k];
        switch ((seed >> 50) % 3) {
        case 0: slots[k] = nullptr; continue;
        case 1: slots[k] = new (std::nothrow) char[size]; break;
        default: slots[k] = new char[size];
        }
        sizes[k] = size;
        blocks++;
        bytes += size;
    }
    try {
        volatile size_t too_large = size_t(1) << 62;
        slots[0] = new char[too_large];
        return 1;
    } catch (const std::bad_alloc &) {
        return 3;
    }
}

int main() {
    char *before = slots[0];
    int code = work();
    long kept = 0, kept_bytes = 0;
    for (int k = 0; k < SLOTS; k++)
        if (slots[k]) kept++, kept_bytes += sizes[k];
    std::printf("%ld %ld %ld %ld\n", blocks, bytes, kept, kept_bytes);
    return before ? 1 : code;
}
