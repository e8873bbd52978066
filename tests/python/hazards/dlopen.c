// Opens libpython, runs code, finalizes and closes the library, again and again, because then the
// code and the variables of Python are not there any more. usage: dlopen LIBPYTHON
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

int main(int count, char **arguments) {
    if (count < 2)
        return 2;
    for (int turn = 0; turn < 3; turn++) {
        void *library = dlopen(arguments[1], RTLD_NOW | RTLD_GLOBAL);
        if (!library) {
            printf("%s\n", dlerror());
            return 1;
        }
        void (*initialize)(int) = symbol(library, "Py_InitializeEx");
        int (*run)(const char *) = symbol(library, "PyRun_SimpleString");
        int (*finalize)(void) = symbol(library, "Py_FinalizeEx");
        initialize(0);
        int failed = run("def f(n):\n"
                         "    return [n] if n == 0 else [bytes(n * 10), f(n - 1)]\n"
                         "kept = [f(60) for _ in range(20)]\n");
        int unfinished = finalize();
        int unclosed = dlclose(library);
        // It stays if an extension module needs it; from 3.8 on none does.
        int is_there = dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) != NULL;
        printf("turn %d %d %d %d %d\n", turn, failed, unfinished, unclosed, is_there);
        fflush(stdout);
        for (int i = 1; i < 3000; i++)
            free(malloc(i));
    }
    return 22;
}
