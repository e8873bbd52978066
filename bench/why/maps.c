// Maps four files of 256 MiB, which it is given, and reads each page of them.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int count, char **names) {
    long sum = 0;
    for (int i = 1; i < count; i++) {
        struct stat file;
        int descriptor = open(names[i], O_RDONLY);
        if (descriptor < 0 || fstat(descriptor, &file) != 0) return 1;
        char *bytes = mmap(NULL, file.st_size, PROT_READ, MAP_SHARED, descriptor, 0);
        if (bytes == MAP_FAILED) return 1;
        for (long at = 0; at < file.st_size; at += 4096) sum += bytes[at];
    }
    printf("ready\n");
    fflush(stdout);
    getchar();
    return sum != 0;
}
