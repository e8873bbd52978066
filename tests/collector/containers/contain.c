// Runs a command in a small container: what `docker run` and `kubectl` do with namespaces.
// usage: contain WAYS ROOT COMMAND [WORD...]
// WAYS are letters: c changes the root folder by chroot alone, p has its own process ids, u its own
// users, n no /proc, r a root folder that is read-only, t a /tmp and s a /dev/shm in memory without
// programs, w a process id that is printed first, on stderr. CONTAIN_BIND is a file of the host that
// is shown as /bin/heapprof, and CONTAIN_USER the user that the command runs as.
#define _GNU_SOURCE
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *ways;

static int has(char way) { return strchr(ways, way) != 0; }

static void need(long result, const char *what) {
    if (result >= 0) return;
    perror(what);
    exit(90);
}

static void put(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    need(file ? 0 : -1, path);
    fputs(text, file);
    fclose(file);
}

static void unshare_all(void) {
    int flags = (has('p') ? CLONE_NEWPID : 0) | (has('u') ? CLONE_NEWUSER : 0);
    char users[64], groups[64];
    snprintf(users, sizeof users, "0 %d 1", getuid());
    snprintf(groups, sizeof groups, "0 %d 1", getgid());
    need(unshare(flags), "unshare");
    if (has('u')) {
        put("/proc/self/setgroups", "deny");
        put("/proc/self/uid_map", users);
        put("/proc/self/gid_map", groups);
    }
}

static void in_memory(const char *folder) {
    const unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
    need(mount("tmpfs", folder, "tmpfs", flags, "size=64m,mode=1777"), folder);
}

static void enter(const char *root) {
    if (has('c')) {
        need(chroot(root), "chroot");
        need(chdir("/"), "chdir");
        return;
    }
    // pivot_root changes the root folder of all processes that share the mounts.
    need(unshare(CLONE_NEWNS), "unshare mounts");
    need(mount(0, "/", 0, MS_REC | MS_PRIVATE, 0), "private mounts");
    need(mount(root, root, 0, MS_BIND | MS_REC, 0), "bind");
    need(chdir(root), "chdir");
    const char *bound = getenv("CONTAIN_BIND");
    if (bound) need(mount(bound, "bin/heapprof", 0, MS_BIND, 0), "bin/heapprof");
    if (!has('n')) need(mount("proc", "proc", "proc", 0, 0), "proc");
    if (has('t')) in_memory("tmp");
    if (has('s')) in_memory("dev/shm");
    need(syscall(SYS_pivot_root, ".", "."), "pivot_root");
    need(umount2(".", MNT_DETACH), "umount");
    need(chdir("/"), "chdir /");
    if (has('r')) need(mount(0, "/", 0, MS_REMOUNT | MS_BIND | MS_RDONLY, 0), "read-only");
}

int main(int argc, char **argv) {
    if (argc < 4) return 64;
    ways = argv[1];
    unshare_all();
    pid_t child = has('p') ? fork() : 0;
    need(child, "fork");
    if (child) {
        int status;
        if (has('w')) fprintf(stderr, "%d\n", child);
        need(waitpid(child, &status, 0), "wait");
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (has('p')) prctl(PR_SET_PDEATHSIG, SIGKILL);
    else if (has('w')) fprintf(stderr, "%d\n", getpid());
    enter(argv[2]);
    const char *user = getenv("CONTAIN_USER");
    if (user) {
        need(setgroups(0, 0), "setgroups");
        need(setgid(atoi(user)), "setgid");
        need(setuid(atoi(user)), "setuid");
    }
    execv(argv[3], argv + 3);
    perror(argv[3]);
    return 91;
}
