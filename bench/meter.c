// Runs a command so many times and writes of each run, one a line: seconds of wall time, of CPU,
// and kilobytes of its largest resident set. Small on purpose: a process's resident maximum begins
// with that of the one it was forked from, 15 MB for a script. usage: meter FILE TIMES
// [NAME=VALUE...] COMMAND [ARG...] the variables are the command's alone exit code: the command's
// of the first run that failed, 128+N after a signal
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  FILE *out = fopen(argv[1], "we");
  if (!out) return 2;
  for (int left = atoi(argv[2]); left > 0; left--) {
    double start = now();
    pid_t child = fork();
    if (child == 0) {
      char **word = argv + 3;
      while (*word && strchr(*word, '=')) putenv(*word++);
      execvp(*word, word);
      _exit(127);
    }
    int status;
    struct rusage used;
    if (child < 0 || wait4(child, &status, 0, &used) < 0) return 2;
    double wall = now() - start;
    double cpu = used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    fprintf(out, "%.6f %.6f %ld\n", wall, cpu, used.ru_maxrss);
    fflush(out);
    if (status) return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  return 0;
}
