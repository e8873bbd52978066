// scenario: linkage: what libc allocates for the program and the program frees: strdup, getline, asprintf, fopen …
// build: gcc -O2 -g
#include "expect.h"
#include <stdio.h>
#include <wchar.h>

static struct tally by_strdup = {.name = "libc_strdup"}, by_wcsdup = {.name = "libc_wcsdup"};

ALLOCATING char *libc_strdup(const char *text) {
    char *p = strdup(text);
    keep(p);
    tally_alloc(&by_strdup, strlen(text) + 1);
    return p;
}

ALLOCATING wchar_t *libc_wcsdup(const wchar_t *text) {
    wchar_t *p = wcsdup(text);
    keep(p);
    tally_alloc(&by_wcsdup, (wcslen(text) + 1) * sizeof *text);
    return p;
}

int main(void) {
    for (int i = 0; i < 200; i++) {
        char *p = libc_strdup("a text of twenty-six signs");
        if (i % 2) {
            tally_free(&by_strdup, strlen(p) + 1);
            free(p);
        }
        libc_wcsdup(L"wide");
        p = strndup("cut short", 3);
        REQUIRE(strcmp(p, "cut") == 0);
        free(p);
        REQUIRE(asprintf(&p, "%d %s %f", i, "printed", 0.5) > 0);
        free(p);
    }
    FILE *file = tmpfile();
    REQUIRE(file);
    for (int i = 0; i < 1000; i++) fprintf(file, "line %d %0*d\n", i, i % 300 + 1, 7);
    rewind(file);
    char *line = NULL;
    size_t room = 0;
    long lines = 0;
    while (getline(&line, &room, file) > 0) lines++;
    free(line);
    fclose(file);
    char *memory = NULL;
    size_t size = 0;
    file = open_memstream(&memory, &size);
    for (int i = 0; i < 5000; i++) fputs("more and more ", file);
    fclose(file);
    REQUIRE(size == 70000 && strlen(memory) == 70000);
    free(memory);
    char *path = realpath("/", NULL);
    REQUIRE(path);
    free(path);
    // stdout's own buffer comes from malloc as well.
    printf("lines %ld\n", lines);
    expect_tally(&by_strdup);
    expect_tally(&by_wcsdup);
    return 0;
}
