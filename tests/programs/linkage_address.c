// scenario: linkage: malloc and free by their addresses, through pointers, in tables and as arguments
// build: gcc -O2 -g -fno-builtin
// variant: lazy -Wl,-z,lazy
// variant: now -Wl,-z,now
// variant: no-pie -no-pie
// variant: no-plt -fno-plt
// variant: gold -fuse-ld=gold
// variant: sysv-hash -Wl,--hash-style=sysv
// variant: no-unwind-header -Wl,--no-eh-frame-hdr
// variant: stripped -s -rdynamic
#include "expect.h"

typedef void *(*allocate)(size_t);
typedef void (*release)(void *);

static const struct {
    allocate allocate;
    release release;
} table = {malloc, free};

ALLOCATING void *address_table(size_t size) {
    void *p = table.allocate(size);
    keep(p);
    return p;
}

ALLOCATING void *address_argument(allocate how, size_t size) {
    void *p = how(size);
    keep(p);
    return p;
}

int main(void) {
    allocate volatile how = malloc;
    release volatile away = free;
    // Ten allocations, each freed at once.
    for (int i = 0; i < 5; i++) {
        away(address_argument(how, 10));
        table.release(address_table(20));
    }
    // One address wherever it is taken.
    REQUIRE(how == table.allocate && away == table.release);
    expect_numbers(0, "address_table", 5, 100, 0, 0);
    expect_numbers(0, "address_argument", 5, 50, 0, 0);
    expect_temporary("address_table", 5);
    expect_temporary("address_argument", 5);
    say("by address\n");
    return 0;
}
