// A program that gives up rights and ends at once, without the library's knowledge. Code of a file
// that only root can open allocates, before the rights are given up or after.
// Arguments: how it gives up, who does it (own, child), when record looks (late, any), the file,
// and what record looks at (profile, log, live, lines).
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534 };
int capset(cap_user_header_t, const cap_user_data_t);

static pid_t record;

// Past the hooks of libc's functions.
static long bare(long n, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void end(int code) {
    for (;;) bare(SYS_exit_group, code, 0, 0);
}

static void drop(const char *how) {
    int failed = 0;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2];
    memset(none, 0, sizeof none);
    if (!strcmp(how, "uid")) failed = setgroups(0, 0) || setgid(NOBODY) || setuid(NOBODY);
    if (!strcmp(how, "resuid")) {
        failed = setresgid(NOBODY, NOBODY, NOBODY) || setresuid(NOBODY, NOBODY, NOBODY);
    }
    if (!strcmp(how, "euid")) failed = setegid(NOBODY) || seteuid(NOBODY);
    if (!strcmp(how, "syscall")) failed = syscall(SYS_setuid, NOBODY) != 0;
    if (!strcmp(how, "bare")) failed = bare(SYS_setuid, NOBODY, 0, 0) != 0;
    if (!strcmp(how, "userns")) failed = unshare(CLONE_NEWUSER);
    if (!strcmp(how, "caps")) failed = capset(&header, none);
    if (!strcmp(how, "barecaps")) failed = bare(SYS_capset, (long)&header, (long)none, 0) != 0;
    if (failed) end(9);
}

// A file in the folder in which record and the program talk.
static const char *talk(const char *name) {
    static char path[4096];
    snprintf(path, sizeof path, "%s/%s", getenv("HEAPPROF_LIST"), name);
    return path;
}

static long len(const char *name) {
    struct stat found;
    return stat(talk(name), &found) ? 0 : found.st_size;
}

// Stops record, so that it reads nothing before this process has ended.
static void stop(void) {
    char path[64], text[512], *state = 0;
    kill(record, SIGSTOP);
    snprintf(path, sizeof path, "/proc/%d/stat", record);
    do {
        int file = open(path, O_RDONLY);
        ssize_t n = read(file, text, sizeof text - 1);
        close(file);
        text[n > 0 ? n : 0] = 0;
        state = strrchr(text, ')');
    } while (state && state[2] != 'T');
}

static void run(char **argv) {
    const char *how = argv[1], *what = argv[5];
    int is_late = !strcmp(argv[3], "late");
    if (is_late) stop();
    void *library = dlopen(argv[4], RTLD_NOW);
    void (*keep)(void) = library ? (void (*)(void))dlsym(library, "keep_there") : 0;
    if (!keep) end(8);
    // Nobody has read it, as far as its time says.
    struct timespec times[2] = {{1000000000, 0}, {0, UTIME_OMIT}};
    if (utimensat(AT_FDCWD, argv[4], times, 0)) end(10);
    if (!is_late) drop(how);
    for (int i = 0; i < 2000; i++) keep();
    if (is_late && !strcmp(what, "live")) {
        // Somebody asks once more. The answer is the first that knows the file.
        long before = len("0.live");
        unsigned long word = 1 << 30;
        int asked = open(talk("asked"), O_WRONLY);
        if (pwrite(asked, &word, sizeof word, 0) != sizeof word) end(7);
        while (len("0.live") == before) keep();
    }
    while (is_late && !strcmp(what, "lines") && !len("0.lines")) keep();
    if (is_late) drop(how);
    end(0);
}

int main(int argc, char **argv) {
    if (argc < 6) return 7;
    record = getppid();
    if (!strcmp(argv[2], "own")) run(argv);
    int status, child = fork();
    if (child == 0) run(argv);
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 6;
}
