/* A mail room: one thread takes letters in, another one sorts them. ./mailroom
 *
 * gcc -O1 -g -pthread -o mailroom mailroom.c
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LETTERS = 1000, SIZE = 300 };
static char *letters[LETTERS];

__attribute__((noinline)) static char *copy(const char *text) {
    char *letter = malloc(SIZE);
    strcpy(letter, text);
    return letter;
}

static void *take_in(void *nothing) {
    pthread_setname_np(pthread_self(), "reader");
    for (int i = 0; i < LETTERS; i++)
        letters[i] = copy("dear shop");
    return nothing;
}

/* Frees what the reader allocated, except for each tenth letter, which it copies. */
static void *sort(void *nothing) {
    pthread_setname_np(pthread_self(), "sorter");
    for (int i = 0; i < LETTERS; i++) {
        char *letter = letters[i];
        if (i % 10 == 0)
            letters[i] = copy(letter);
        free(letter);
    }
    return nothing;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, take_in, NULL);
    pthread_join(thread, NULL);
    pthread_create(&thread, NULL, sort, NULL);
    pthread_join(thread, NULL);
    return 0;
}
