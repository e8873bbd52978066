/* More interpreters than heapprof keeps track of. */
#include <EXTERN.h>
#include <perl.h>
static void *volatile kept;
int main(int argc, char **argv, char **env) {
    PERL_SYS_INIT3(&argc, &argv, &env);
    for (int i = 0; i < 80; i++) {
        PerlInterpreter *my_perl = perl_alloc();
        PERL_SET_CONTEXT(my_perl);
        perl_construct(my_perl);
        kept = malloc(1000);
    }
    puts("done");
    return 3;
}
