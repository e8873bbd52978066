// A program whose state is to be what it was after somebody has attached to it and left. Its first
// argument names the part of its state that it looks at. It says "ready", and waits for lines in the
// state that it has made; at each line it compares, and says "done", or what has changed. It ends
// with 7 when there are no more lines.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __GLIBC__
#include <sys/rseq.h>
#endif

enum { SIGNALS = 64, QUEUED = 5 };

static char answer[1000];
static char altstack[1 << 16];

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...) {
    va_list all;
    va_start(all, format);
    if (!answer[0])
        vsnprintf(answer, sizeof answer, format, all);
    va_end(all);
}

static void say(const char *text) {
    char all[1002];
    int length = snprintf(all, sizeof all, "%s\n", text);
    if (write(1, all, length) != length)
        _exit(90);
}

// Says once that the state is made.
static void be_ready(void) {
    static int is_said;
    int kept = errno;
    if (!is_said++)
        say("ready");
    errno = kept;
}

// Waits for a line by a call that leaves errno alone. A signal may have ended it.
static int waits(void) {
    char byte;
    long got;
    be_ready();
    do {
        __asm__ volatile("syscall" : "=a"(got) : "0"(SYS_read), "D"(0), "S"(&byte), "d"(1)
                         : "rcx", "r11", "memory");
    } while (got == -EINTR);
    return got == 1;
}

static void tell(void) {
    say(answer[0] ? answer : "done");
    answer[0] = 0;
}

// Registers: general ones, flags, x87, SSE, AVX.

enum { GENERAL = 14, LEGACY = 416, AVX_AT = 576, AVX = 256 };
uint64_t general[GENERAL];
unsigned char state_before[16 << 10] __attribute__((aligned(64)));
unsigned char state_after[16 << 10] __attribute__((aligned(64)));
uint32_t own_mxcsr = 0x7f80, plain_mxcsr = 0x1f80, has_avx;
uint16_t own_x87 = 0x0a7f;
uint64_t pattern = 0x0123456789abcdef;
char typed;

// Waits in read with known values in all registers, and stores what is there afterwards.
long read_with_values(void);
__asm__(".text\n.globl read_with_values\nread_with_values:\n"
        "push rbx\n push rbp\n push r12\n push r13\n push r14\n push r15\n"
        "fldcw own_x87[rip]\n ldmxcsr own_mxcsr[rip]\n fldpi\n fldl2e\n fld1\n"
        "movq xmm0, pattern[rip]\n movq xmm7, pattern[rip]\n pcmpeqd xmm15, xmm15\n"
        "cmp dword ptr has_avx[rip], 0\n je 1f\n"
        "vinsertf128 ymm5, ymm15, xmm0, 1\n vinsertf128 ymm12, ymm0, xmm15, 1\n"
        "1: mov eax, -1\n mov edx, -1\n xsave64 state_before[rip]\n"
        "mov ebx, 101\n mov ebp, 102\n mov r8d, 103\n mov r9d, 104\n mov r10d, 105\n"
        "mov r12d, 106\n mov r13d, 107\n mov r14d, 108\n mov r15d, 109\n"
        "lea rsi, typed[rip]\n mov edx, 1\n xor edi, edi\n xor eax, eax\n stc\n std\n"
        "syscall\n"
        "mov general[rip], rbx\n mov general[rip + 8], rbp\n mov general[rip + 16], r8\n"
        "mov general[rip + 24], r9\n mov general[rip + 32], r10\n mov general[rip + 40], r12\n"
        "mov general[rip + 48], r13\n mov general[rip + 56], r14\n mov general[rip + 64], r15\n"
        "mov general[rip + 72], rdi\n mov general[rip + 80], rsi\n mov general[rip + 88], rdx\n"
        "mov general[rip + 96], rax\n pushfq\n pop general[rip + 104]\n cld\n"
        "mov eax, -1\n mov edx, -1\n xsave64 state_after[rip]\n"
        "fninit\n ldmxcsr plain_mxcsr[rip]\n mov rax, general[rip + 96]\n"
        "pop r15\n pop r14\n pop r13\n pop r12\n pop rbp\n pop rbx\n ret\n");

static void registers(void) {
    has_avx = __builtin_cpu_supports("avx") != 0;
    be_ready();
    while (read_with_values() == 1) {
        const uint64_t expected[GENERAL] = {
            101, 102, 103, 104, 105, 106, 107, 108, 109, 0, (uint64_t)&typed, 1, 1, 0};
        for (int i = 0; i < GENERAL - 1; i++)
            if (general[i] != expected[i])
                wrong("register %d: %lx", i, general[i]);
        // Carry and direction.
        if ((general[GENERAL - 1] & 0x401) != 0x401 || general[GENERAL - 1] & 0x100)
            wrong("flags: %lx", general[GENERAL - 1]);
        if (memcmp(state_before, state_after, LEGACY))
            wrong("x87 or SSE");
        if (has_avx && memcmp(state_before + AVX_AT, state_after + AVX_AT, AVX))
            wrong("AVX");
        tell();
    }
}

static void errors(void) {
    errno = 77;
    while (waits()) {
        if (errno != 77)
            wrong("errno: %d", errno);
        tell();
        errno = 77;
    }
}

// What the kernel keeps of the process and of this thread, as text.

static void handler(int signal) { (void)signal; }

static void add(char *text, const char *format, ...) {
    va_list all;
    va_start(all, format);
    vsnprintf(text + strlen(text), 15000 - strlen(text), format, all);
    va_end(all);
}

static void describe(char *text) {
    static const char *const lines[] = {"Umask", "Uid", "Gid", "Groups", "SigPnd", "ShdPnd", "SigBlk",
                                        "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp", "Threads"};
    char line[500], name[17] = "";
    unsigned long action[4];
    stack_t stack;
    void *robust = 0;
    size_t robust_size = 0;
    text[0] = 0;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
            if (!strncmp(line, lines[i], strlen(lines[i])))
                add(text, "%s", line);
    fclose(status);
    for (int signal = 1; signal <= SIGNALS; signal++)
        if (!syscall(SYS_rt_sigaction, signal, 0, action, 8))
            add(text, "signal %d: %lx %lx %lx %lx\n", signal, action[0], action[1], action[2], action[3]);
    sigaltstack(0, &stack);
    add(text, "stack for signals: %p %zu %x\n", stack.ss_sp, stack.ss_size, stack.ss_flags);
    syscall(SYS_get_robust_list, 0, &robust, &robust_size);
    add(text, "robust list: %p %zu\n", robust, robust_size);
    prctl(PR_GET_NAME, name);
    add(text, "name: %s, dumpable: %d, ends with its parent: ", name, prctl(PR_GET_DUMPABLE));
    int parent_signal = 0;
    prctl(PR_GET_PDEATHSIG, &parent_signal);
    add(text, "%d, timer slack: %d\n", parent_signal, prctl(PR_GET_TIMERSLACK));
    DIR *files = opendir("/proc/self/fd");
    for (struct dirent *file; (file = readdir(files));)
        add(text, "file: %s\n", file->d_name);
    closedir(files);
#ifdef RSEQ_SIG
    struct rseq *rseq = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
    if (__rseq_size)
        add(text, "rseq: %d %x\n", rseq->cpu_id == rseq->cpu_id_start, rseq->flags);
    if (__rseq_size && rseq->rseq_cs)
        add(text, "it is in a sequence\n");
#endif
}

static void kernels_state(void) {
    static char before[15000], after[15000];
    stack_t stack = {.ss_sp = altstack, .ss_size = sizeof altstack};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_ONSTACK};
    sigset_t some;
    sigaltstack(&stack, 0);
    sigemptyset(&some);
    for (int signal = 1; signal <= SIGNALS; signal++) {
        sigemptyset(&action.sa_mask);
        sigaddset(&action.sa_mask, signal % 30 + 1);
        action.sa_handler = signal % 3 ? handler : SIG_IGN;
        sigaction(signal, &action, 0);
        if (signal % 4 == 0)
            sigaddset(&some, signal);
    }
    sigprocmask(SIG_SETMASK, &some, 0);
    raise(SIGUSR2);
    prctl(PR_SET_NAME, "one of many");
    describe(before);
    while (waits()) {
        describe(after);
        char *old = before, *new = after;
        while (*old && *old == *new)
            old++, new++;
        if (*old || *new)
            wrong("%.200s, was %.200s", new, old);
        tell();
    }
}

// SIGTRAP that is handled, ignored, or blocked.

static volatile int traps;

static void on_trap(int signal) {
    (void)signal;
    traps++;
}

static void trap(const char *how) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTRAP);
    signal(SIGTRAP, !strcmp(how, "trap-ignored") ? SIG_IGN : on_trap);
    if (!strcmp(how, "trap-blocked"))
        sigprocmask(SIG_BLOCK, &set, 0);
    for (int expected = 0; waits();) {
        struct sigaction now;
        sigaction(SIGTRAP, 0, &now);
        if (!strcmp(how, "trap-handled")) {
            expected += 2;
            __asm__ volatile("int3");
            raise(SIGTRAP);
        } else if (!strcmp(how, "trap-ignored")) {
            raise(SIGTRAP);
            if (now.sa_handler != SIG_IGN)
                wrong("SIGTRAP is not ignored any more");
        } else {
            expected++;
            raise(SIGTRAP);
            if (traps >= expected)
                wrong("SIGTRAP is not blocked any more");
            sigprocmask(SIG_UNBLOCK, &set, 0);
            sigprocmask(SIG_BLOCK, &set, 0);
        }
        if (traps != expected)
            wrong("SIGTRAP came %d times instead of %d", traps, expected);
        tell();
    }
}

// Signals that wait: standard ones and queued ones, for the process and for the thread.

static void queue(int signal, int value, int to_thread) {
    siginfo_t info = {.si_code = SI_QUEUE, .si_signo = signal};
    info.si_pid = 1234;
    info.si_uid = 5678;
    info.si_value.sival_int = value;
    long done = to_thread ? syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), signal, &info)
                          : syscall(SYS_rt_sigqueueinfo, getpid(), signal, &info);
    if (done)
        wrong("queue: %d", errno);
}

static void expect(int signal, int code, int value) {
    struct timespec now = {0, 0};
    siginfo_t info;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, signal);
    int got = sigtimedwait(&set, &info, &now);
    if (info.si_code == SI_TKILL) // as glibc's function does
        info.si_code = SI_USER;
    if (got != signal || info.si_code != code || (code == SI_QUEUE && info.si_value.sival_int != value))
        wrong("signal %d with %d: %d, %d, %d", signal, value, got, info.si_code, info.si_value.sival_int);
    else if (code == SI_QUEUE && (info.si_pid != 1234 || info.si_uid != 5678))
        wrong("signal %d is of another sender", signal);
}

static void pending(void) {
    const int first = SIGRTMIN + 1, second = SIGRTMIN + 2;
    struct timespec now = {0, 0};
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, 0);
    for (;;) {
        kill(getpid(), SIGUSR1);
        syscall(SYS_tgkill, getpid(), gettid(), SIGUSR2);
        for (int i = 0; i < QUEUED; i++) {
            queue(first, 100 + i, 0);
            queue(second, 200 + i, 1);
        }
        if (!waits())
            return;
        expect(SIGUSR1, SI_USER, 0);
        expect(SIGUSR2, SI_USER, 0);
        for (int i = 0; i < QUEUED; i++) {
            expect(first, SI_QUEUE, 100 + i);
            expect(second, SI_QUEUE, 200 + i);
        }
        if (sigtimedwait(&all, 0, &now) > 0)
            wrong("one signal more");
        tell();
    }
}

// A handler that waits on a stack for signals.

static void on_its_stack(int signal) {
    (void)signal;
    char *here = __builtin_frame_address(0);
    while (waits()) {
        stack_t stack;
        sigset_t set;
        sigaltstack(0, &stack);
        sigprocmask(SIG_BLOCK, 0, &set);
        if (stack.ss_flags != SS_ONSTACK || stack.ss_sp != altstack)
            wrong("stack for signals: %p %x", stack.ss_sp, stack.ss_flags);
        if (here < altstack || here >= altstack + sizeof altstack || !sigismember(&set, SIGUSR1))
            wrong("it is on another stack, or its signal is not blocked");
        tell();
    }
}

static void on_stack(void) {
    stack_t stack = {.ss_sp = altstack, .ss_size = sizeof altstack};
    struct sigaction action = {.sa_handler = on_its_stack, .sa_flags = SA_ONSTACK};
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &action, 0);
    raise(SIGUSR1);
}

// A call that blocks other signals as long as it waits.

static void other_mask(void) {
    sigset_t own, meanwhile, now;
    sigemptyset(&own);
    sigaddset(&own, SIGUSR1);
    sigemptyset(&meanwhile);
    sigaddset(&meanwhile, SIGUSR2);
    sigprocmask(SIG_SETMASK, &own, 0);
    struct pollfd input = {0, POLLIN, 0};
    be_ready();
    for (;;) {
        int ready = ppoll(&input, 1, 0, &meanwhile);
        sigprocmask(SIG_BLOCK, 0, &now);
        if (ready != 1)
            wrong("ppoll: %d, errno %d", ready, errno);
        if (!sigismember(&now, SIGUSR1) || sigismember(&now, SIGUSR2))
            wrong("other signals are blocked");
        if (!waits())
            return;
        tell();
    }
}

// Signals that come all the time, each with a number.

static volatile int came;

static void numbered(int signal, siginfo_t *info, void *context) {
    (void)context, (void)signal;
    if (info->si_value.sival_int != came)
        wrong("signal %d instead of %d", info->si_value.sival_int, came);
    came++;
}

static int senders_end;

static int sender(int first) {
    struct timespec moment = {0, 200000};
    struct pollfd input = {senders_end, POLLIN, 0};
    int sent = first;
    while (poll(&input, 1, 0) == 0) {
        if (sigqueue(getppid(), SIGRTMIN + 3, (union sigval){.sival_int = sent}) == 0)
            sent++;
        nanosleep(&moment, 0);
    }
    return sent;
}

static void arriving(void) {
    struct sigaction action = {.sa_sigaction = numbered, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 3, &action, 0);
    for (;;) {
        int ends[2], sent = 0, back[2];
        if (pipe(ends) || pipe(back))
            _exit(91);
        senders_end = ends[0];
        pid_t child = fork();
        if (child == 0) {
            close(ends[1]);
            sent = sender(came);
            _exit(write(back[1], &sent, sizeof sent) != sizeof sent);
        }
        int more = waits();
        close(ends[1]);
        close(ends[0]);
        while (read(back[0], &sent, sizeof sent) < 0) {
        }
        close(back[0]);
        close(back[1]);
        while (waitpid(child, 0, 0) < 0) {
        }
        if (came != sent || sent == 0)
            wrong("%d of %d signals came", came, sent);
        if (!more)
            return;
        tell();
    }
}

int main(int argc, char **argv) {
    const char *how = argc > 1 ? argv[1] : "";
    alarm(600);
    if (!strcmp(how, "kernel"))
        alarm(0);
    free(malloc(100));
    if (!strcmp(how, "registers"))
        registers();
    else if (!strcmp(how, "errno"))
        errors();
    else if (!strcmp(how, "kernel"))
        kernels_state();
    else if (!strncmp(how, "trap", 4))
        trap(how);
    else if (!strcmp(how, "pending"))
        pending();
    else if (!strcmp(how, "stack"))
        on_stack();
    else if (!strcmp(how, "mask"))
        other_mask();
    else if (!strcmp(how, "arriving"))
        arriving();
    else
        return 92;
    return 7;
}
