// scenario: stacks: the same function at the same depth, called as usual and from a hand-made stack that ends in a zero
// build: gcc -O2 -g
#include "expect.h"
#include <setjmp.h>

static struct tally by_leaf = {.name = "zero_leaf"}, by_usual = {.name = "zero_usual"};
static jmp_buf back;
static volatile int is_made;

ALLOCATING void zero_leaf(void) {
    void *p = malloc(24);
    keep(p);
    free(p);
    tally_alloc(&by_leaf, 24);
    tally_free(&by_leaf, 24);
    if (is_made) longjmp(back, 1);
    stay();
}

void zero_usual(void);
void zero_made(void);

// Both enter with the same stack pointer; one leaves its own address there, the other none.
__asm__(".text\n"
        ".type zero_usual, @function\n"
        "zero_usual:\n"
        ".cfi_startproc\n"
        "    sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    call zero_leaf\n"
        "    add $8, %rsp\n"
        ".cfi_adjust_cfa_offset -8\n"
        "    ret\n"
        ".cfi_endproc\n"
        ".size zero_usual, . - zero_usual\n"
        ".type zero_made, @function\n"
        "zero_made:\n"
        ".cfi_startproc\n"
        "    sub $8, %rsp\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    push $0\n"
        ".cfi_adjust_cfa_offset 8\n"
        "    jmp zero_leaf\n"
        ".cfi_endproc\n"
        ".size zero_made, . - zero_made\n");

__attribute__((noinline)) static void once(int made) {
    is_made = made;
    if (!made) {
        zero_usual();
        tally_alloc(&by_usual, 24);
        tally_free(&by_usual, 24);
    } else if (!setjmp(back)) {
        zero_made();
    }
    stay();
}

int main(int argc, char **argv) {
    (void)argv;
    int made_first = argc > 1;
    for (int i = 0; i < 1000; i++) {
        once(made_first);
        once(!made_first);
        if (i % 3 == 0) once(0); // Not always in turn.
    }
    expect_tally(&by_leaf);
    expect_tally(&by_usual);
    say("zero\n");
    return 0;
}
