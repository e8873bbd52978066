/* Loads a library that holds a perl, runs it, closes it, allocates, and does so once more. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv, char **env) {
    for (int round = 0; round < 2; round++) {
        void *library = dlopen("./libembedded.so", RTLD_LAZY | RTLD_LOCAL);
        if (!library) { puts(dlerror()); return 1; }
        int (*embed)(int, char **, char **) = (int (*)(int, char **, char **))dlsym(library, "embed");
        if (embed(argc, argv, env) != 0) return 2;
        dlclose(library);
        for (int i = 0; i < 1000; i++) { void *volatile block = malloc(100 + i); free(block); }
    }
    return 0;
}
