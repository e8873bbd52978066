// Hands the file at its standard input over to a record again and again. Arguments: the socket.
#define _GNU_SOURCE
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv) {
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (argc < 2) return 7;
    strncpy(to.sun_path, argv[1], sizeof to.sun_path - 1);
    for (long sent = 0;; sent++) {
        int socket_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        char text[] = "heapprof's kept books 1\n";
        struct iovec part = {text, sizeof text - 1};
        union {
            struct cmsghdr head;
            char room[CMSG_SPACE(sizeof(int))];
        } control;
        struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        memset(&control, 0, sizeof control);
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        *(int *)CMSG_DATA(&control.head) = 0;
        if (connect(socket_, (struct sockaddr *)&to, sizeof to)) return 1;
        sendmsg(socket_, &message, MSG_NOSIGNAL);
        close(socket_);
        if (sent == 5) write(1, "r", 1);
        usleep(500);
    }
}
