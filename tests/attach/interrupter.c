// Interrupts a thread (first argument) in the middle of the first instructions of a function (second
// argument) with SIGUSR1, and says at which offset. Ends with 3 if the machine has no breakpoints.
#define _GNU_SOURCE
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>

static int tid;

static void debug_register(int number, long value) {
    size_t at = offsetof(struct user, u_debugreg) + number * sizeof(long);
    if (ptrace(PTRACE_POKEUSER, tid, at, value)) {
        perror("debug register");
        exit(3);
    }
}

static void wait_for_stop(void) {
    int status;
    if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
        exit(4);
}

static unsigned long pc(void) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, tid, 0, &registers))
        exit(5);
    return registers.rip;
}

int main(int argc, char **argv) {
    static const unsigned char landing[] = {0xf3, 0x0f, 0x1e, 0xfa};
    if (argc < 3)
        return 1;
    tid = atoi(argv[1]);
    unsigned long at = strtoul(argv[2], 0, 16);
    if (ptrace(PTRACE_SEIZE, tid, 0, 0) || ptrace(PTRACE_INTERRUPT, tid, 0, 0))
        return 2;
    wait_for_stop();
    // The jump is behind the instruction that marks where indirect calls may lead.
    long code = ptrace(PTRACE_PEEKTEXT, tid, at, 0);
    if (!memcmp(&code, landing, sizeof landing))
        at += sizeof landing;
    debug_register(0, at);
    debug_register(7, 1);
    do {
        ptrace(PTRACE_CONT, tid, 0, 0);
        wait_for_stop();
    } while (pc() != at);
    debug_register(7, 0);
    ptrace(PTRACE_SINGLESTEP, tid, 0, 0);
    wait_for_stop();
    printf("%ld\n", (long)(pc() - at));
    return ptrace(PTRACE_DETACH, tid, 0, SIGUSR1) != 0;
}
