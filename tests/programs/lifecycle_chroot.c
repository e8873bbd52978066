// scenario: lifecycle: the program locks itself into an empty folder, where neither /proc nor any library is
// build: gcc -O2 -g
// needs: root
#include "expect.h"

ALLOCATING void *chroot_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    return p;
}

int main(void) {
    char folder[] = "/tmp/heapprof-chroot-XXXXXX";
    REQUIRE(mkdtemp(folder));
    for (int i = 0; i < 100; i++) chroot_block(100);
    expect_numbers(0, "chroot_block", 200, 30000, 200, 30000); // Inside, its file can't be reached.
    int outside = open("/tmp", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int inside = chroot(folder) == 0 && chdir("/") == 0;
    for (int i = 0; i < 100; i++) chroot_block(200);
    unlinkat(outside, folder + 5, AT_REMOVEDIR);
    say(inside ? "inside\n" : "not allowed\n");
    return 0;
}
