// scenario: deadlock: fork waits for libc's streams, which a thread holds that allocates; main goes on, a handler exits (argument: which)
// build: gcc -O2 -g -pthread
#include "expect.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static struct tally by_main = {.name = "streams_main"};
static int ends[2];
static FILE *stream;
static volatile int reads, flushes;

ALLOCATING void *streams_main(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_main, size);
    return p;
}

// Holds the stream while it waits, and then allocates room for the line.
static void *read_line(void *argument) {
    char *line = NULL;
    size_t room = 0;
    reads = 1;
    REQUIRE(getline(&line, &room, stream) == 5000);
    free(line);
    return argument;
}

// Holds the list of streams while it waits for the stream.
static void *flush_all(void *argument) {
    flushes = 1;
    fflush(NULL);
    return argument;
}

static void *forks(void *argument) {
    pid_t pid = fork();
    REQUIRE(pid >= 0);
    if (pid == 0) _exit(0);
    int status = 0;
    REQUIRE(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return argument;
}

static void leave(int number) {
    (void)number;
    _exit(10);
}

static void wait_for(volatile int *what) {
    while (!*what) usleep(1000);
    usleep(50000);
}

int main(int argc, char **argv) {
    pthread_t reader, flusher, forker;
    REQUIRE(pipe(ends) == 0);
    stream = fdopen(ends[0], "r");
    REQUIRE(stream != NULL);
    REQUIRE(pthread_create(&reader, NULL, read_line, NULL) == 0);
    wait_for(&reads);
    REQUIRE(pthread_create(&flusher, NULL, flush_all, NULL) == 0);
    wait_for(&flushes);
    if (argc > 1 && strcmp(argv[1], "handler") == 0) {
        signal(SIGALRM, leave);
        streams_main(123);
        expect_tally(&by_main);
        alarm(1);
        fork();
        return 97;
    }
    REQUIRE(pthread_create(&forker, NULL, forks, NULL) == 0);
    usleep(50000);
    for (int i = 0; i < 1000; i++) {
        void *p = streams_main(100);
        if (i % 2) {
            free(p);
            tally_free(&by_main, 100);
        }
    }
    static char line[5000];
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\n';
    REQUIRE(write(ends[1], line, sizeof line) == sizeof line);
    pthread_join(reader, NULL);
    pthread_join(flusher, NULL);
    pthread_join(forker, NULL);
    expect_tally(&by_main);
    say("all went on\n");
    return 0;
}
