// scenario: lifecycle: the process's first allocation is libc's own, for its list of exit functions
// build: gcc -O2 -g
// libs: lib_atexit.c -> libatexit.so
// link: -latexit
#include "expect.h"

int atexit_touch(void);

int main(void) {
    say("begun\n");
    return 6 + atexit_touch();
}
