// scenario: stacks: functions written in assembler without unwind tables, one of them with rbp as a plain number
// build: gcc -O2 -g
// needs: x86-64
#include "expect.h"

static struct tally by_target = {.name = "asm_target"}, by_after = {.name = "asm_after"};

ALLOCATING void *asm_target(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_target, size);
    return p;
}

ALLOCATING void *asm_after(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_after, size);
    return p;
}

// No .cfi_ lines: nobody can say where their return addresses are. rbp points to nothing, then into the stack itself.
__asm__(".text\n"
        ".globl asm_no_table\n"
        ".type asm_no_table, @function\n"
        "asm_no_table:\n"
        "  push %rbp\n"
        "  sub $48, %rsp\n"
        "  mov $0x123456789, %rbp\n"
        "  call asm_target\n"
        "  mov %rsp, %rbp\n"
        "  mov %rbp, (%rsp)\n"
        "  mov $21, %edi\n"
        "  call asm_target\n"
        "  add $48, %rsp\n"
        "  pop %rbp\n"
        "  ret\n"
        ".size asm_no_table, . - asm_no_table\n"
        ".section .note.GNU-stack,\"\",@progbits\n"
        ".text\n");

extern void *asm_no_table(size_t);

int main(void) {
    for (int i = 0; i < 3000; i++) {
        asm_no_table(20);
        free(asm_after(30));
        tally_free(&by_after, 30);
    }
    expect_tally(&by_target);
    expect_tally(&by_after);
    say("by hand\n");
    return 0;
}
