/* Marks for `heapprof watch`: a datagram to the socket that HEAPPROF_WATCH names. It needs no library, so that a program
 * is watched as it is. The form is that of heapprof_mark in heapprof's library. Nothing here waits. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

/* The longest datagram. A longer text is cut. */
#define MOST_OF_MARK 1200

static void tell_watch(const char *text) {
    static unsigned lost; /* how many marks could not be sent since one was */
    const char *path = getenv("HEAPPROF_WATCH");
    struct sockaddr_un to;
    struct timespec now;
    char line[MOST_OF_MARK];
    size_t length, room;
    ssize_t got;
    int before = errno, file, sender;
    memset(&to, 0, sizeof to);
    to.sun_family = AF_UNIX;
    if (!path || strlen(path) >= sizeof to.sun_path) return;
    strcpy(to.sun_path, path);
    clock_gettime(CLOCK_REALTIME, &now);
    length = (size_t)snprintf(line, sizeof line, "heapprof mark 1 %ld %lld lost %u\n", (long)getpid(),
                              (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000, lost);
    /* The kernel's line ends as a line does. Without it there is an empty one. */
    file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    got = file >= 0 ? read(file, line + length, 160) : 0;
    if (file >= 0) close(file);
    if (got > 0 && line[length + got - 1] == '\n')
        length += (size_t)got;
    else
        line[length++] = '\n';
    room = sizeof line - length;
    memcpy(line + length, text, strlen(text) < room ? strlen(text) : room);
    length += strlen(text) < room ? strlen(text) : room;
    sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    lost++;
    if (sender >= 0) {
        if (sendto(sender, line, length, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to) >= 0) lost = 0;
        close(sender);
    }
    errno = before;
}
