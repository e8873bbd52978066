// Has 64 threads, each of which has touched 256 KiB of its stack and waits.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t touched;

static void *wait_with_stack(void *unused) {
    volatile char frame[256 << 10];
    for (size_t i = 0; i < sizeof frame; i += 512) frame[i] = 1;
    pthread_barrier_wait(&touched);
    pthread_barrier_wait(&touched);
    return unused;
}

int main(void) {
    pthread_t threads[64];
    pthread_barrier_init(&touched, NULL, 65);
    for (int i = 0; i < 64; i++) pthread_create(&threads[i], NULL, wait_with_stack, NULL);
    pthread_barrier_wait(&touched);
    usleep(200000);
    printf("ready\n");
    fflush(stdout);
    getchar();
    pthread_barrier_wait(&touched);
    for (int i = 0; i < 64; i++) pthread_join(threads[i], NULL);
    return 0;
}
