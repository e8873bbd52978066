// scenario: linkage: a statically linked program: no library can be put before it
// build: gcc -O2 -g -static
#include "expect.h"

int main(void) {
    for (int i = 0; i < 1000; i++) {
        void *p = malloc(100);
        keep(p);
    }
    say("static\n");
    return 35;
}
