/* A server that opens sessions and closes half of them: the program of the guide about processes
 * that are recorded already. ./sessions [SECONDS]
 *
 * gcc -O1 -g -o sessions sessions.c
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct session {
    char state[2000];
    struct session *next;
};

static struct session *open_sessions;

__attribute__((noinline)) static void open_session(void) {
    struct session *session = malloc(sizeof *session);
    memset(session->state, 's', sizeof session->state);
    session->next = open_sessions;
    open_sessions = session;
}

__attribute__((noinline)) static void close_session(void) {
    struct session *session = open_sessions;
    open_sessions = session->next;
    free(session);
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 3600;
    for (int i = 0; i < seconds * 100; i++) {
        open_session();
        open_session();
        close_session();
        usleep(10000);
    }
    return 0;
}
