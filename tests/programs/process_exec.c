// scenario: process: a program that runs itself anew, three images in one process (argument: images to come)
// build: gcc -O2 -g
#include "expect.h"

static struct tally by_image = {.name = "exec_image"}, by_last = {.name = "exec_last"};

ALLOCATING void *exec_image(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_image, size);
    return p;
}

ALLOCATING void *exec_last(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_last, size);
    return p;
}

int main(int argc, char **argv) {
    int left = argc > 1 ? atoi(argv[1]) : 2;
    say_number("images to come", left);
    for (int i = 0; i < 100; i++) exec_image(10 + (size_t)left);
    if (left) {
        expect_tally_of_child(&by_image);
        char next[] = {(char)('0' + left - 1), 0};
        char *arguments[] = {argv[0], next, NULL};
        execv("/proc/self/exe", arguments);
        return 99;
    }
    for (int i = 0; i < 300; i++) exec_last(20);
    expect_tally(&by_image);
    expect_tally(&by_last);
    return 4;
}
