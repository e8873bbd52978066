// scenario: lifecycle: the program maps pages until the kernel gives no more mappings, and ends
// build: gcc -O2 -g
#include "expect.h"
#include <sys/mman.h>

static struct tally by = {.name = "mappings_before"};

ALLOCATING void *mappings_before(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by, size);
    return p;
}

int main(void) {
    mappings_before(1000);
    int pages = 0;
    // Neighbours of one kind would be one mapping.
    while (mmap(NULL, 4096, pages % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED) pages++;
    expect_tally(&by);
    say(pages > 1000 ? "many\n" : "few\n");
    return 3;
}
