// scenario: process: children by posix_spawn, system and popen; the first one is this program and counts itself
// build: gcc -O2 -g
#include "expect.h"
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

extern char **environ;

static struct tally by_parent = {.name = "spawn_parent"}, by_child = {.name = "spawn_child"};

ALLOCATING void *spawn_parent(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_parent, size);
    return p;
}

ALLOCATING void *spawn_child(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_child, size);
    return p;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        for (int i = 0; i < 250; i++) spawn_child(40);
        expect_tally_of_child(&by_child);
        say("spawned\n");
        return 13;
    }
    for (int i = 0; i < 100; i++) spawn_parent(30);
    pid_t pid;
    int status = 0;
    char child[] = "child";
    char *arguments[] = {argv[0], child, NULL};
    REQUIRE(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 13);
    for (int i = 0; i < 100; i++) spawn_parent(30);
    status = system("exit 14");
    REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 14);
    FILE *pipe = popen("echo piped", "r");
    char line[64];
    REQUIRE(pipe && fgets(line, sizeof line, pipe));
    say(line);
    REQUIRE(pclose(pipe) == 0);
    expect_tally(&by_parent);
    return 0;
}
