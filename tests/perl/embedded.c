/* A program that holds a perl: three interpreters, one after the other, and allocations of its own before, between and
 * after them. With PLUGIN it is a library, which a program loads and closes. */
#include <EXTERN.h>
#include <perl.h>
static PerlInterpreter *my_perl;
EXTERN_C void boot_DynaLoader(pTHX_ CV *cv);
static void xs_init(pTHX) { newXS("DynaLoader::boot_DynaLoader", boot_DynaLoader, __FILE__); }
static void *volatile kept;
__attribute__((noinline)) void in_c(void) { kept = malloc(77777); }
/* Other things lie where the interpreter was: first zeros, then numbers that are no addresses. */
static void after(void *was) {
    size_t n = sizeof(struct interpreter) / sizeof(double);
    double *numbers = calloc(n, sizeof(double));
    for (int tries = 0; numbers != was && tries < 2000; tries++) numbers = calloc(n, sizeof(double));
    for (int i = 0; i < 200; i++) kept = malloc(100);
    for (size_t i = 0; i < n; i++) numbers[i] = 1.0;
    for (int i = 0; i < 200; i++) kept = malloc(100);
}
int embed(int argc, char **argv, char **env) {
    PERL_SYS_INIT3(&argc, &argv, &env);
    in_c();
    for (int round = 0; round < 3; round++) {
        my_perl = perl_alloc();
        PERL_SET_CONTEXT(my_perl);
        perl_construct(my_perl);
        PL_exit_flags |= PERL_EXIT_DESTRUCT_END;
        PL_perl_destruct_level = 2;
        perl_parse(my_perl, xs_init, argc, argv, NULL);
        perl_run(my_perl);
        in_c();
        dSP; ENTER; SAVETMPS; PUSHMARK(SP); PUTBACK;
        call_pv("main::called", G_DISCARD | G_NOARGS);
        FREETMPS; LEAVE;
        in_c();
        perl_destruct(my_perl);
        in_c();
        void *was = my_perl;
        perl_free(my_perl);
        after(was);
        for (int i = 0; i < 2000; i++) { kept = malloc(3000 + i); memset(kept, 0x5a + i, 3000); if (i % 3) free(kept); }
        in_c();
    }
    PERL_SYS_TERM();
    puts("embedded done");
    return 0;
}
#ifndef PLUGIN
int main(int argc, char **argv, char **env) { return embed(argc, argv, env); }
#endif
