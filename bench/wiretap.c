// What a call of heapprof_alive costs beside a plain sendto. build: gcc -O2 -o wiretap wiretap.c -ldl
// usage: HEAPPROF_WIRETAP=127.0.0.1:4711 LD_PRELOAD=$(heapprof preload-path) ./wiretap 4711 [CALLS]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static double nanoseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

int main(int argc, char **argv) {
    void (*alive)(const char *) = (void (*)(const char *))dlsym(RTLD_DEFAULT, "heapprof_alive");
    if (!alive || argc < 2) return fputs("preload the library, and name the port\n", stderr), 2;
    int calls = argc > 2 ? atoi(argv[2]) : 200000;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[1]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    char text[170];
    memset(text, 'x', sizeof text);
    for (int round = 0; round < 3; round++) {
        double a = nanoseconds();
        for (int i = 0; i < calls; i++)
            sendto(fd, text, sizeof text, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, sizeof to);
        double b = nanoseconds();
        for (int i = 0; i < calls; i++) alive("bench.code");
        double c = nanoseconds();
        printf("sendto %.0f ns, heapprof_alive %.0f ns\n", (b - a) / calls, (c - b) / calls);
    }
}
