// scenario: stacks: calls through the PLT of a library, bound at the first call or at the start
// build: gcc -O2 -g
// libs: lib_plt.c -DNAME=plt_lazy -Wl,-z,lazy -> libplt_lazy.so
// libs: lib_plt.c -DNAME=plt_now -Wl,-z,now -> libplt_now.so
// libs: lib_plt.c -DNAME=plt_direct -fno-plt -> libplt_direct.so
// link: -lplt_lazy -lplt_now -lplt_direct
// variant: lazy -Wl,-z,lazy
// variant: now -Wl,-z,now
#include "expect.h"

extern void *plt_lazy(size_t size);
extern void *plt_now(size_t size);
extern void *plt_direct(size_t size);

static struct tally by_lazy = {.name = "plt_lazy"}, by_now = {.name = "plt_now"}, by_direct = {.name = "plt_direct"},
                    by_caller = {.name = "plt_caller"};

ALLOCATING void plt_caller(int i) {
    free(plt_lazy(15));
    plt_now(16);
    if (i % 2) free(plt_direct(17));
    else plt_direct(17);
    stay();
}

int main(void) {
    for (int i = 0; i < 1000; i++) {
        plt_caller(i);
        tally_alloc(&by_lazy, 15), tally_alloc(&by_caller, 15);
        tally_free(&by_lazy, 15), tally_free(&by_caller, 15);
        tally_alloc(&by_now, 16), tally_alloc(&by_caller, 16);
        tally_alloc(&by_direct, 17), tally_alloc(&by_caller, 17);
        if (i % 2) tally_free(&by_direct, 17), tally_free(&by_caller, 17);
    }
    const struct tally *all[] = {&by_lazy, &by_now, &by_direct, &by_caller};
    for (int i = 0; i < 4; i++) expect_tally(all[i]);
    say("through the PLT\n");
    return 0;
}
