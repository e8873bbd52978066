/* A program that holds two perls in one thread, calls each without an eval, on its own stack and on another one, and
 * allocates itself in between. */
#define _GNU_SOURCE
#include <EXTERN.h>
#include <perl.h>
#include <ucontext.h>
EXTERN_C void boot_DynaLoader(pTHX_ CV *cv);
static void xs_init(pTHX) { newXS("DynaLoader::boot_DynaLoader", boot_DynaLoader, __FILE__); }
static void *volatile kept;
static ucontext_t before, other;
static PerlInterpreter *called;
__attribute__((noinline)) void in_c(void) {
    for (int i = 0; i < 100; i++) kept = malloc(3000);
}
static PerlInterpreter *make(char *text) {
    PerlInterpreter *my_perl = perl_alloc();
    PERL_SET_CONTEXT(my_perl);
    perl_construct(my_perl);
    char *args[] = {"hosts", "-e", text, NULL};
    perl_parse(my_perl, xs_init, 3, args, NULL);
    perl_run(my_perl);
    return my_perl;
}
static void call(void) {
    PerlInterpreter *my_perl = called;
    PERL_SET_CONTEXT(my_perl);
    dSP; ENTER; SAVETMPS; PUSHMARK(SP);
    call_pv("keep", G_DISCARD | G_NOARGS);
    FREETMPS; LEAVE;
}
static void call_in(PerlInterpreter *perl) { called = perl; call(); }
int main(int argc, char **argv, char **env) {
    PERL_SYS_INIT3(&argc, &argv, &env);
    PerlInterpreter *one = make("sub keep { one() } sub one { push @k, [1 .. 3] for 1 .. 100 }");
    in_c();
    call_in(one);
    PerlInterpreter *two = make("sub keep { two() } sub two { push @k, [1 .. 3] for 1 .. 100 }");
    in_c();
    call_in(two);
    call_in(one);
    in_c();
    called = two;
    getcontext(&other);
    other.uc_stack.ss_sp = malloc(1 << 20);
    other.uc_stack.ss_size = 1 << 20;
    other.uc_link = &before;
    makecontext(&other, call, 0);
    swapcontext(&before, &other);
    puts("done");
    return 3;
}
