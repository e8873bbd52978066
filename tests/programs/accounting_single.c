// scenario: accounting: one thread counts itself over every call of the family, half of it freed
// build: gcc -O2 -g
#include "expect.h"
#include <malloc.h>

#define ROUNDS 20000

static struct tally by_malloc = {.name = "single_malloc"}, by_calloc = {.name = "single_calloc"},
                    by_strdup = {.name = "single_strdup"}, by_all = {.name = "single_all"};

ALLOCATING void *single_malloc(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_malloc, size);
    return p;
}

ALLOCATING void *single_calloc(size_t count, size_t size) {
    void *p = calloc(count, size);
    keep(p);
    tally_alloc(&by_calloc, count * size);
    return p;
}

ALLOCATING char *single_strdup(const char *text) {
    char *p = strdup(text);
    keep(p);
    tally_alloc(&by_strdup, strlen(text) + 1);
    return p;
}

ALLOCATING void single_free(void *p) {
    free(p);
    stay();
}

ALLOCATING void single_all(void) {
    unsigned long state = 42;
    for (int i = 0; i < ROUNDS; i++) {
        size_t size = next_random(&state) % 3000;
        void *a = single_malloc(size);
        void *b = single_calloc(i % 7, size);
        char *c = single_strdup("forty-two letters, or thereabouts, in here");
        if (i % 2) {
            single_free(a);
            tally_free(&by_malloc, size);
        }
        if (i % 3 == 0) {
            single_free(b);
            tally_free(&by_calloc, (size_t)(i % 7) * size);
        }
        if (i % 5) {
            tally_free(&by_strdup, strlen(c) + 1);
            single_free(c);
        }
    }
    stay();
}

int main(void) {
    single_all();
    const struct tally *parts[] = {&by_malloc, &by_calloc, &by_strdup};
    for (int i = 0; i < 3; i++) {
        by_all.alloc_objects += parts[i]->alloc_objects;
        by_all.alloc_space += parts[i]->alloc_space;
        by_all.freed_objects += parts[i]->freed_objects;
        by_all.freed_space += parts[i]->freed_space;
        expect_tally(parts[i]);
    }
    expect_tally(&by_all);
    say_number("objects", by_all.alloc_objects);
    return 0;
}
