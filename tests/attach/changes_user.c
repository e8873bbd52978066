/* One thread changes the user of all threads again and again, which libc does by a signal to each
 * of them. Another one loads a library meanwhile, and so has the loader's lock. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static volatile int ends;

static void *change(void *unused) {
    (void)unused;
    while (!ends) {
        if (setuid(getuid()))
            _exit(91);
        usleep(300);
    }
    return 0;
}

static void *load(void *unused) {
    (void)unused;
    while (!ends) {
        void *handle = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);
        if (!handle)
            _exit(92);
        dlclose(handle);
    }
    return 0;
}

int main(void) {
    pthread_t threads[2];
    if (pthread_create(&threads[0], 0, change, 0) || pthread_create(&threads[1], 0, load, 0))
        return 93;
    puts("ready");
    fflush(stdout);
    while (getchar() != EOF)
        free(malloc(100));
    ends = 1;
    pthread_join(threads[0], 0);
    pthread_join(threads[1], 0);
    return 7;
}
