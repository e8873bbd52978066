// scenario: stacks: exceptions thrown through frames that allocate, caught and thrown on
// build: g++ -g
// variant: O0 -O0
// variant: O2 -O2
// variant: O3 -O3 -fomit-frame-pointer
#include "expect.h"
#include <stdexcept>
#include <string>

static struct tally by_before = {"throw_before", 0, 0, 0, 0}, by_cleanup = {"throw_cleanup", 0, 0, 0, 0},
                    by_after = {"throw_after", 0, 0, 0, 0}, by_handler = {"throw_handler", 0, 0, 0, 0};

ALLOCATING char *throw_before(size_t size) {
    char *p = static_cast<char *>(malloc(size));
    keep(p);
    tally_alloc(&by_before, size);
    return p;
}

ALLOCATING char *throw_cleanup(size_t size) {
    char *p = static_cast<char *>(malloc(size));
    keep(p);
    tally_alloc(&by_cleanup, size);
    return p;
}

// Allocates while the stack is being unwound.
struct Guard {
    char *block;
    explicit Guard(size_t size) : block(throw_before(size)) {}
    ~Guard() {
        free(block);
        tally_free(&by_before, 40);
        throw_cleanup(60);
    }
};

ALLOCATING void throw_down(int depth) {
    Guard guard(40);
    if (depth == 0) throw std::runtime_error("from the depths, with a text that must be allocated");
    throw_down(depth - 1);
    stay();
}

ALLOCATING char *throw_handler(size_t size) {
    char *p = static_cast<char *>(malloc(size));
    keep(p);
    tally_alloc(&by_handler, size);
    return p;
}

ALLOCATING void throw_again(int depth) {
    try {
        throw_down(depth);
    } catch (const std::exception &) {
        throw_handler(70);
        throw;
    }
    stay();
}

ALLOCATING char *throw_after(size_t size) {
    char *p = static_cast<char *>(malloc(size));
    keep(p);
    tally_alloc(&by_after, size);
    return p;
}

int main() {
    long caught = 0;
    for (int i = 0; i < 500; i++) {
        try {
            throw_again(i % 30);
        } catch (const std::runtime_error &error) {
            caught += error.what()[0] == 'f';
        }
        throw_after(80);
    }
    expect_tally(&by_before);
    expect_tally(&by_cleanup);
    expect_tally(&by_handler);
    expect_tally(&by_after);
    say_number("caught", caught);
    return 0;
}
