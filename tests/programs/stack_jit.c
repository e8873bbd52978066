// scenario: stacks: code made at run time, without unwind tables, calls into the program; its place is used again
// build: gcc -O2 -g
// needs: x86-64
#include "expect.h"
#include <sys/mman.h>

static struct tally by_bare = {.name = "jit_from_bare"}, by_framed = {.name = "jit_from_framed"},
                    by_direct = {.name = "jit_plain"};

ALLOCATING void *jit_from_bare(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_bare, size);
    return p;
}

ALLOCATING void *jit_from_framed(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_framed, size);
    return p;
}

ALLOCATING void *jit_plain(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_direct, size);
    return p;
}

typedef void *(*allocate)(size_t);

// Frame pointer as it comes (garbage, rather), three words of nonsense on the stack: nothing to go by.
static size_t bare(unsigned char *code, allocate target, int nonsense) {
    size_t n = 0;
    const unsigned char start[] = {0x55, 0x48, 0x31, 0xed}; // push rbp; xor rbp, rbp
    memcpy(code + n, start, sizeof start), n += sizeof start;
    for (int i = 0; i < nonsense * 2; i++) code[n++] = 0x57; // push rdi
    code[n++] = 0x48, code[n++] = 0xb8; // mov rax, target
    memcpy(code + n, &target, 8), n += 8;
    code[n++] = 0xff, code[n++] = 0xd0; // call rax
    for (int i = 0; i < nonsense * 2; i++) code[n++] = 0x5f; // pop rdi
    code[n++] = 0x5d, code[n++] = 0xc3; // pop rbp; ret
    return n;
}

static size_t framed(unsigned char *code, allocate target) {
    size_t n = 0;
    const unsigned char start[] = {0x55, 0x48, 0x89, 0xe5}; // push rbp; mov rbp, rsp
    memcpy(code + n, start, sizeof start), n += sizeof start;
    code[n++] = 0x48, code[n++] = 0xb8;
    memcpy(code + n, &target, 8), n += 8;
    code[n++] = 0xff, code[n++] = 0xd0;
    code[n++] = 0x5d, code[n++] = 0xc3;
    return n;
}

ALLOCATING void *jit_enter(unsigned char *code, size_t size) {
    allocate entry;
    memcpy(&entry, &code, sizeof entry);
    void *p = entry(size);
    keep(p);
    return p;
}

int main(void) {
    unsigned char *place = NULL;
    for (int round = 0; round < 60; round++) {
        unsigned char *code = mmap(place, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(code != MAP_FAILED);
        place = code; // Asked for again after it is gone.
        if (round % 2) framed(code, jit_from_framed);
        else bare(code, jit_from_bare, round % 3 + 1);
        REQUIRE(mprotect(code, 4096, PROT_READ | PROT_EXEC) == 0);
        for (int i = 0; i < 50; i++) {
            jit_enter(code, 33);
            free(jit_plain(44));
            tally_free(&by_direct, 44);
        }
        munmap(code, 4096);
    }
    expect_tally(&by_bare);
    expect_tally(&by_framed);
    expect_tally(&by_direct);
    say("made at run time\n");
    return 0;
}
