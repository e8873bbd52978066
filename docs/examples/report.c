/* A program that is linked with the library, and gets its profile in memory.
 *
 * gcc -o report report.c -I DIR -L DIR -lheapprof -Wl,-rpath,DIR
 */
#include <heapprof.h>
#include <stdio.h>
#include <stdlib.h>

static void *kept[4];

int main(void) {
    HeapProfilerStart("report.hprof");
    for (int i = 0; i < 4; i++)
        kept[i] = malloc(1000);
    free(kept[3]);
    HeapProfilerDump("three are left");

    size_t length;
    void *pprof = heapprof_profile(&length);
    char *text = GetHeapProfile();
    HeapProfilerStop();

    FILE *file = fopen("report.pb.gz", "w");
    if (!pprof || !text || !file || fwrite(pprof, 1, length, file) != length || fclose(file))
        return 1;
    fputs(text, stdout);
    free(text);
    free(pprof);
    return 0;
}
