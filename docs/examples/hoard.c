/* A worker that keeps every job it has seen, until it is killed: the program of the guide about
 * programs that were killed. ./hoard [JOBS]
 *
 * With a number of jobs it kills itself behind the last one, as the kernel would.
 *
 * gcc -O1 -g -o hoard hoard.c
 */
#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct job {
    char *payload;
    struct job *next;
};

static struct job *seen;

__attribute__((noinline)) static char *read_payload(long i) {
    char *payload = malloc(8000);
    memset(payload, 'a' + i % 26, 8000);
    return payload;
}

__attribute__((noinline)) static void remember(long i) {
    struct job *job = malloc(sizeof *job);
    job->payload = read_payload(i);
    job->next = seen;
    seen = job;
}

int main(int argc, char **argv) {
    long jobs = argc > 1 ? atol(argv[1]) : 0;
    for (long i = 1;; i++) {
        char *scratch = malloc(100);
        scratch[0] = (char)i;
        remember(i);
        free(scratch);
        if (i == jobs)
            raise(SIGKILL);
    }
}
