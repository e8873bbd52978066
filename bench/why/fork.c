// A parent with a table of 100 MiB, and a child that has rows of 20 MiB of its own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char *parent_table(void) { return memset(malloc(100 << 20), 1, 100 << 20); }

static char **child_rows(void) {
    char **rows = malloc(20480 * sizeof *rows);
    for (int i = 0; i < 20480; i++) rows[i] = memset(malloc(1000), 2, 1000);
    return rows;
}

int main(void) {
    char *table = parent_table();
    pid_t child = fork();
    if (child == 0) {
        char **rows = child_rows();
        printf("child %d\nready\n", getpid());
        fflush(stdout);
        getchar();
        return table[0] + rows[0][0] != 3;
    }
    int status = 0;
    waitpid(child, &status, 0);
    return WEXITSTATUS(status) + table[1] - 1;
}
