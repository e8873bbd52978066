// Counts the instructions that a process takes for a piece of work, by running it instruction by
// instruction. The process adds one to a long at a fixed address whenever a piece is done.
// usage: steps PID ADDRESS PIECES
// It prints instructions a piece. Whoever attaches to the process must have done so before.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  pid_t pid = atoi(argv[1]);
  unsigned long at = strtoul(argv[2], 0, 0);
  long pieces = atol(argv[3]), steps = 0, first = -1;
  int status;
  if (ptrace(PTRACE_SEIZE, pid, 0, 0) || ptrace(PTRACE_INTERRUPT, pid, 0, 0)) return 3;
  for (;;) {
    if (waitpid(pid, &status, __WALL) != pid || !WIFSTOPPED(status)) return 4;
    errno = 0;
    long done = ptrace(PTRACE_PEEKDATA, pid, at, 0);
    if (errno) return 5;
    // The first piece may have begun before.
    if (first == -1) first = done + 1;
    if (done == first && steps == 0) steps = 1;
    if (done >= first + pieces) break;
    if (done >= first) steps++;
    if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0)) return 6;
  }
  ptrace(PTRACE_DETACH, pid, 0, 0);
  printf("%.1f\n", (double)steps / pieces);
}
