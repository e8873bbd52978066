// A program that is attached to, in a way that its first argument names. It says "ready", works
// whenever it gets a line, says "done", and ends with 7 when there are no more lines.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *held[10];
static const char *how;

__attribute__((noinline)) void *work(size_t size) {
    void *p = malloc(size);
    if (p)
        memset(p, 1, size);
    return p;
}

__attribute__((noinline)) void keep(void) {
    for (int i = 0; i < 10; i++) {
        free(held[i]);
        held[i] = work(1000);
    }
}

// The library's function allocates and frees. It is found by $ORIGIN in the RUNPATH of this program
// alone, and its own library by its own.
static int plugin(void) {
    void *handle = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    void *(*make)(int) = (void *(*)(int))dlsym(handle, "plugin_make");
    void (*give)(void *) = (void (*)(void *))dlsym(handle, "plugin_give");
    void *all[100];
    for (int i = 0; i < 100; i++)
        all[i] = make(500);
    for (int i = 0; i < 100; i++)
        give(all[i]);
    for (int i = 0; i < 100; i++)
        give(work(300));
    for (int i = 0; i < 100; i++)
        free(make(200));
    return dlclose(handle);
}

static int child(void) {
    pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < 1000; i++)
            free(work(50));
        _exit(11);
    }
    int status = 0;
    return waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 11;
}

static void filter(int result) {
    struct sock_filter all[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, result),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {4, all};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        exit(90);
}

static void *lines(void *none) {
    char line[100];
    printf("ready\n");
    fflush(stdout);
    while (read(0, line, 1) == 1) {
        if (line[0] != '\n')
            continue;
        keep();
        int failed = !strcmp(how, "plugin") ? plugin() : !strcmp(how, "fork") ? child() : 0;
        if (!strcmp(how, "filter"))
            filter(SECCOMP_RET_KILL_PROCESS);
        printf(failed ? "failed\n" : "done\n");
        fflush(stdout);
        if (!strcmp(how, "kill"))
            raise(SIGKILL);
        if (!strcmp(how, "exec"))
            execlp("sleep", "sleep", "600", (char *)0);
    }
    exit(7);
    return none;
}

static void on_end(int signal) {
    (void)signal;
    _exit(8);
}

int main(int argc, char **argv) {
    how = argc > 1 ? argv[1] : "";
    alarm(600);
    signal(SIGTERM, on_end);
    keep();
    if (!strcmp(how, "surplus")) {
        // Libraries that take all of the room that the loader has left for thread-local memory.
        char name[20];
        for (int i = 0; i < 40; i++) {
            snprintf(name, sizeof name, "tls%d.so", i);
            if (!dlopen(name, RTLD_NOW))
                break;
        }
    }
    if (!strcmp(how, "killed-by-filter"))
        filter(SECCOMP_RET_KILL_PROCESS);
    if (!strcmp(how, "harmless-filter"))
        filter(SECCOMP_RET_ALLOW);
    if (!strcmp(how, "busy")) {
        // No thread ever leaves the allocator for long enough.
        printf("ready\n");
        fflush(stdout);
        for (;;)
            free(malloc(1 << 20));
    }
    if (!strcmp(how, "small")) {
        // All work is done on the smallest stack. musl's of 2 KiB has no room for a recording.
#ifdef __GLIBC__
        const size_t smallest = PTHREAD_STACK_MIN;
#else
        const size_t smallest = 16 << 10;
#endif
        pthread_t thread;
        pthread_attr_t attributes;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, smallest);
        if (pthread_create(&thread, &attributes, lines, 0))
            return 91;
        pthread_join(thread, 0);
    }
    lines(0);
}
