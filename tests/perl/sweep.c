/* A module for tests: counts the values of its interpreter from within, by type, writes the counts
   with malloc's own sums to a descriptor (1, or SWEEP_FD), and waits for good. */
#define PERL_NO_GET_CONTEXT
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>
XS(sweep_and_wait) {
    SV *arena;
    long types[32] = {0}, all = 0;
    int i, fd;
    char line[2000];
    int n = 0;
    PERL_UNUSED_VAR(cv);
    for (arena = PL_sv_arenaroot; arena; arena = MUTABLE_SV(SvANY(arena))) {
        SV *sv, *end = arena + SvREFCNT(arena);
        for (sv = arena + 1; sv < end; ++sv)
            if (SvTYPE(sv) != (svtype)SVTYPEMASK && SvTYPE(sv) < 32) { types[SvTYPE(sv)]++; all++; }
    }
    {
#if __GLIBC_PREREQ(2, 33)
        struct mallinfo2 m = mallinfo2();
#else
        struct mallinfo m = mallinfo();
#endif
        n += snprintf(line + n, sizeof line - n, "{\"pid\": %d, \"count\": %ld, \"all\": %ld, \"malloc\": %ld, \"types\": [",
            (int)getpid(), (long)PL_sv_count, all, (long)(m.uordblks + m.hblkhd));
    }
    for (i = 0; i < 17; i++) n += snprintf(line + n, sizeof line - n, "%s%ld", i ? ", " : "", types[i]);
    n += snprintf(line + n, sizeof line - n, "]}\n");
    fd = 1;
    if (getenv("SWEEP_FD")) fd = atoi(getenv("SWEEP_FD"));
    if (write(fd, line, n) != n) _exit(3);
    for (;;) pause();
}
XS(boot_sweep) {
    PERL_UNUSED_VAR(cv);
    newXS("Sweep::wait", sweep_and_wait, "sweep.c");
}
