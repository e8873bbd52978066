// scenario: lifecycle: objects of static storage allocate in their constructors and destructors
// build: g++ -O2 -g
#include "expect.h"
#include <string>
#include <vector>

static struct tally by_start = {"static_start", 0, 0, 0, 0}, by_end = {"static_end", 0, 0, 0, 0};

ALLOCATING char *static_start(size_t size) {
    char *p = static_cast<char *>(operator new(size));
    keep(p);
    tally_alloc(&by_start, size);
    return p;
}

ALLOCATING char *static_end(size_t size) {
    char *p = static_cast<char *>(operator new(size));
    keep(p);
    tally_alloc(&by_end, size);
    return p;
}

struct Witness {
    ~Witness() {
        expect_tally(&by_start);
        expect_tally(&by_end);
        say("witness\n");
    }
};

struct Object {
    char *block;
    Object() : block(static_start(500)) {}
    ~Object() {
        static_end(600);
        operator delete(block);
        tally_free(&by_start, 500);
    }
};

// Destroyed in the opposite order: the witness is the last.
static Witness witness;
static Object objects[20];
static std::vector<std::string> strings(100, "a string that is too long to live inside its own object");

int main() {
    strings.resize(200, "and another one, so that the vector moves to a place of its own");
    return strings.size() == 200 ? 18 : 99;
}
