/* Interpreters that two threads have as their own. One is made by a thread and run by another, while the first goes on in
 * C. Then one is freed, and a new one that another thread runs lies in its place. */
#include <EXTERN.h>
#include <perl.h>
#include <pthread.h>
#include <sched.h>
EXTERN_C void boot_DynaLoader(pTHX_ CV *cv);
static void xs_init(pTHX) { newXS("DynaLoader::boot_DynaLoader", boot_DynaLoader, __FILE__); }
static volatile int stage;
static PerlInterpreter *handed;
static void *was;
static char *script;
static void *volatile kept;
__attribute__((noinline)) void in_c(void) {
    for (int i = 0; i < 20; i++) { kept = malloc(64 + i); free(kept); }
}
static PerlInterpreter *prepare(PerlInterpreter *my_perl) {
    PERL_SET_CONTEXT(my_perl);
    perl_construct(my_perl);
    char *args[] = {"handed", script, NULL};
    perl_parse(my_perl, xs_init, 2, args, NULL);
    perl_run(my_perl);
    return my_perl;
}
static void *run(void *of) {
    PerlInterpreter *my_perl = of;
    PERL_SET_CONTEXT(my_perl);
    for (int i = 0; i < 200; i++) eval_pv("work($i++ % 60)", TRUE);
    stage++;
    return NULL;
}
static void *leave(void *unused) {
    PerlInterpreter *my_perl = prepare(perl_alloc());
    was = my_perl;
    perl_destruct(my_perl);
    perl_free(my_perl);
    stage = 2;
    while (stage < 3) sched_yield();
    while (stage < 4) in_c();
    return NULL;
}
static void *come(void *unused) {
    static PerlInterpreter *others[20];
    while (stage < 2) sched_yield();
    PerlInterpreter *my_perl = perl_alloc();
    for (int n = 0; my_perl != was && n < 20; n++) { others[n] = my_perl; my_perl = perl_alloc(); }
    prepare(my_perl);
    stage = 3;
    return run(my_perl);
}
int main(int argc, char **argv, char **env) {
    PERL_SYS_INIT3(&argc, &argv, &env);
    script = argv[1];
    mallopt(-8, 1); /* M_ARENA_MAX, so that one thread gets what another one freed. */
    pthread_t one, two;
    handed = prepare(perl_alloc());
    pthread_create(&one, NULL, run, handed);
    while (stage < 1) in_c();
    pthread_join(one, NULL);
    pthread_create(&one, NULL, leave, NULL);
    pthread_create(&two, NULL, come, NULL);
    pthread_join(one, NULL);
    pthread_join(two, NULL);
    puts("done");
    return 3;
}
