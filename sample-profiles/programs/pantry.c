/* Allocations of every kind that heap profilers tell apart: kept, freed, grown, leaked, recursive. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct jar {
    struct jar *next;
    char *label;
};

static struct jar *shelf;

static char *label(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    return strcpy(copy, text);
}

static struct jar *jar(const char *text)
{
    struct jar *new = malloc(sizeof *new);
    new->label = label(text);
    new->next = shelf;
    return new;
}

static void fill(int jars)
{
    char text[64];
    for (int i = 0; i < jars; i++) {
        snprintf(text, sizeof text, "jar number %d of the shelf", i);
        shelf = jar(text);
    }
}

/* Each call holds a block while the next one is made. */
static void dig(int depth)
{
    char *shovel = calloc(depth, 1000);
    if (depth > 1)
        dig(depth - 1);
    shovel[0] = 1;
    free(shovel);
}

static char *grow(size_t most)
{
    char *dough = NULL;
    for (size_t size = 1024; size <= most; size *= 2)
        dough = realloc(dough, size);
    return dough;
}

static void lose(int times)
{
    for (int i = 0; i < times; i++) {
        volatile struct jar *lost = jar("lost");
        lost->next = NULL;
        lost = NULL;
    }
}

static void empty(void)
{
    while (shelf) {
        struct jar *next = shelf->next;
        free(shelf->label);
        free(shelf);
        shelf = next;
    }
}

/* The jars to fill, and the seconds to stay afterwards. */
int main(int argc, char **argv)
{
    int jars = argc > 1 ? atoi(argv[1]) : 2000;
    char *dough;
    fill(jars);
    dig(20);
    dough = grow(256 * 1024);
    lose(7);
    free(dough);
    fill(jars / 4);
    empty();
    fill(3);
    shelf = NULL;
    sleep(argc > 2 ? atoi(argv[2]) : 0);
    return 0;
}
