// scenario: process: a daemon: two forks, a session of its own, no descriptors; the first process is gone at once
// build: gcc -O2 -g
#include "expect.h"
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

static struct tally by_daemon = {.name = "daemon_block"};

ALLOCATING void *daemon_block(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_daemon, size);
    return p;
}

int main(void) {
    int ends[2];
    char byte;
    REQUIRE(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        if (fork() != 0) _exit(0);
        umask(077);
        REQUIRE(chdir("/") == 0);
        for (int fd = 0; fd < 256; fd++)
            if (fd != ends[1]) close(fd);
        open("/dev/null", O_RDWR);
        if (dup(0) != 1 || dup(0) != 2) _exit(98);
        for (int i = 0; i < 5000; i++) {
            void *p = daemon_block(128);
            if (i % 5) {
                tally_free(&by_daemon, 128);
                free(p);
            }
        }
        expect_tally_of_child(&by_daemon);
        if (write(ends[1], "d", 1) != 1) _exit(98);
        exit(0);
    }
    waitpid(pid, NULL, 0);
    close(ends[1]);
    // The daemon's own last act; its end can't be waited for.
    REQUIRE(read(ends[0], &byte, 1) == 1 && byte == 'd');
    // The pipe closes when the daemon, whatever is written at its end, is gone.
    REQUIRE(read(ends[0], &byte, 1) == 0);
    say("the daemon has been\n");
    return 0;
}
