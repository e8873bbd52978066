// scenario: lifecycle: a library's destructor frees what its constructor allocated; it runs when the program's own are done
// build: gcc -O2 -g
// libs: lib_static.c -> libstatic.so
// link: -lstatic
#include "expect.h"

int static_touch(void);

int main(void) { return static_touch() ? 5 : 99; }
