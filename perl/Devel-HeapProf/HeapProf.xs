/* Devel::HeapProf: what a Perl program may ask of heapprof, and what heapprof can only learn from Perl's own headers.
 *
 * heapprof's library is not linked. It is there if the program was started by `heapprof record`, or preloads it. Without
 * it every function does nothing. */
#define PERL_NO_GET_CONTEXT
#include "EXTERN.h"
#include "perl.h"
#include "XSUB.h"
#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

#define FROM(version) (PERL_VERSION >= (version))

/* As in heapprof.h. */
struct heapprof_perl_field {
    const char *name;
    uint32_t value;
};

/* The structures that heapprof reads, by the names of its table of perls (layouts.tsv). A field that this perl lacks is
 * left out. */
#define AT(name, type, member) { name, (uint32_t)offsetof(type, member) },
#define IS(name, value) { name, (uint32_t)(value) },
#define INTERPRETER(member) AT("interp." #member, PerlInterpreter, member)
static const struct heapprof_perl_field fields[] = {
#ifdef MULTIPLICITY
    IS("sizeof.interp", sizeof(PerlInterpreter))
    INTERPRETER(Istack_sp)
    INTERPRETER(Iop)
    INTERPRETER(Istack_base)
    INTERPRETER(Istack_max)
    INTERPRETER(Icurcop)
    INTERPRETER(Icurstackinfo)
    INTERPRETER(Itop_env)
    INTERPRETER(Istart_env)
    INTERPRETER(IDBsub)
    INTERPRETER(Icompiling)
    INTERPRETER(Icop_seqmax)
    INTERPRETER(Iphase)
#ifndef DEBUG_LEAKING_SCALARS
    INTERPRETER(Isv_count)
    INTERPRETER(Isv_arenaroot)
    INTERPRETER(Isv_root)
    INTERPRETER(Ibody_roots)
    INTERPRETER(Ibody_arenas)
#endif
#endif
    AT("PERL_SI.si_cxstack", PERL_SI, si_cxstack)
    AT("PERL_SI.si_prev", PERL_SI, si_prev)
    AT("PERL_SI.si_cxix", PERL_SI, si_cxix)
    AT("PERL_SI.si_cxmax", PERL_SI, si_cxmax)
    AT("PERL_SI.si_type", PERL_SI, si_type)
    IS("sizeof.CX", sizeof(PERL_CONTEXT))
    AT("CX.cx_u.cx_blk.blku_type", PERL_CONTEXT, cx_u.cx_blk.blku_type)
    AT("CX.cx_u.cx_blk.blku_u16", PERL_CONTEXT, cx_u.cx_blk.blku_u16)
    AT("CX.cx_u.cx_blk.blku_oldcop", PERL_CONTEXT, cx_u.cx_blk.blku_oldcop)
    AT("CX.cx_u.cx_blk.blk_u.blku_sub.retop", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_sub.retop)
    AT("CX.cx_u.cx_blk.blk_u.blku_sub.cv", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_sub.cv)
    AT("CX.cx_u.cx_blk.blk_u.blku_format.retop", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_format.retop)
    AT("CX.cx_u.cx_blk.blk_u.blku_format.cv", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_format.cv)
    AT("CX.cx_u.cx_blk.blk_u.blku_eval.retop", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_eval.retop)
    AT("CX.cx_u.cx_blk.blk_u.blku_eval.old_namesv", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_eval.old_namesv)
#if FROM(32)
    AT("PERL_SI.si_cxsubix", PERL_SI, si_cxsubix)
    AT("CX.cx_u.cx_blk.blk_u.blku_sub.old_cxsubix", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_sub.old_cxsubix)
    AT("CX.cx_u.cx_blk.blk_u.blku_format.old_cxsubix", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_format.old_cxsubix)
    AT("CX.cx_u.cx_blk.blk_u.blku_eval.old_cxsubix", PERL_CONTEXT, cx_u.cx_blk.blk_u.blku_eval.old_cxsubix)
#endif
    IS("CXTYPEMASK", CXTYPEMASK)
    IS("CXt_SUB", CXt_SUB)
    IS("CXt_FORMAT", CXt_FORMAT)
    IS("CXt_EVAL", CXt_EVAL)
    IS("CXp_SUB_RE_FAKE", CXp_SUB_RE_FAKE)
#ifdef CXp_TRY
    IS("CXp_TRY", CXp_TRY)
#endif
    IS("PERLSI_MAIN", PERLSI_MAIN)
    AT("COP.cop_line", COP, cop_line)
#ifdef USE_ITHREADS
    AT("COP.cop_file", COP, cop_file)
#else
    AT("COP.cop_filegv", COP, cop_filegv)
#endif
    AT("COP.cop_seq", COP, cop_seq)
    AT("OP.op_next", OP, op_next)
    /* A field of bits, right behind this one. */
    IS("OP.op_type", offsetof(OP, op_targ) + sizeof(PADOFFSET))
    IS("OP_REQUIRE", OP_REQUIRE)
    IS("OP_DOFILE", OP_DOFILE)
    IS("OP_ENTEREVAL", OP_ENTEREVAL)
    IS("OP_NEXTSTATE", OP_NEXTSTATE)
    IS("OP_DBSTATE", OP_DBSTATE)
    IS("OP_max", OP_max)
    AT("SV.sv_any", SV, sv_any)
    AT("SV.sv_flags", SV, sv_flags)
    AT("SV.sv_u", SV, sv_u)
    IS("SVTYPEMASK", SVTYPEMASK)
    IS("SVt_PVGV", SVt_PVGV)
    IS("SVt_PVCV", SVt_PVCV)
    IS("SVt_PVFM", SVt_PVFM)
    IS("SVt_PVHV", SVt_PVHV)
#ifdef SVphv_HasAUX
    IS("SVf_OOK", SVphv_HasAUX)
#else
    IS("SVf_OOK", SVf_OOK)
#endif
    AT("XPVCV.xcv_stash", XPVCV, xcv_stash)
    AT("XPVCV.xcv_start_u", XPVCV, xcv_start_u)
    AT("XPVCV.xcv_gv_u", XPVCV, xcv_gv_u)
    AT("XPVCV.xcv_flags", XPVCV, xcv_flags)
    IS("CVf_NAMED", CVf_NAMED)
#ifdef CVf_LEXICAL
    IS("CVf_LEXICAL", CVf_LEXICAL)
#endif
    IS("CVf_ISXSUB", CVf_ISXSUB)
    AT("XPVGV.xiv_u.xivu_namehek", XPVGV, xiv_u.xivu_namehek)
    AT("XPVGV.xnv_u.xgv_stash", XPVGV, xnv_u.xgv_stash)
    AT("GP.gp_cv", GP, gp_cv)
    AT("GP.gp_egv", GP, gp_egv)
    AT("HEK.hek_len", HEK, hek_len)
    AT("HEK.hek_key", HEK, hek_key)
    AT("XPVHV.xhv_max", XPVHV, xhv_max)
#if FROM(36)
    AT("XPVHV_WITH_AUX.xhv_aux", struct xpvhv_with_aux, xhv_aux)
    IS("sizeof.XPVHV_WITH_AUX", sizeof(struct xpvhv_with_aux))
#endif
    AT("XPVHV_AUX.xhv_name_u", struct xpvhv_aux, xhv_name_u)
    AT("XPVHV_AUX.xhv_name_count", struct xpvhv_aux, xhv_name_count)
#if NVSIZE <= 8
    /* From 5.22 on, a number that is as long as a pointer needs no body. */
    IS("body[2].body_size", FROM(22) ? 0 : NVSIZE)
    IS("body[8].body_size", sizeof(regexp))
#if FROM(38)
    IS("body[16].body_size", sizeof(XPVOBJ))
#endif
#endif
};
#define FIELDS (sizeof fields / sizeof *fields)

static void *find(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

/* Says what the structures are, so that heapprof can read this perl, whatever its version and however it was built. */
static int tell_layout(void) {
    int (*tell)(const struct heapprof_perl_field *, size_t) =
        (int (*)(const struct heapprof_perl_field *, size_t))find("heapprof_perl_layout");
    return tell ? tell(fields, FIELDS) : ENOENT;
}

/* A sub that is written in C has no context on Perl's stack. So each call of one is noted where heapprof looks: the sub,
 * and what tells that the call is still being made. Nothing has to be taken back if the sub dies, because then the op that
 * runs is another one. */
#define MY_CXT_KEY "Devel::HeapProf::calls" XS_VERSION
typedef struct {
    uint64_t *call;
} my_cxt_t;
START_MY_CXT

static OP *(*call_sub)(pTHX);

static CV *sub_in_c(SV *sv) {
    CV *cv = NULL;
    if (SvTYPE(sv) == SVt_PVCV)
        cv = (CV *)sv;
    else if (SvTYPE(sv) == SVt_PVGV && isGV_with_GP(sv))
        cv = GvCV((GV *)sv);
    else if (SvROK(sv) && SvTYPE(SvRV(sv)) == SVt_PVCV)
        cv = (CV *)SvRV(sv);
    return cv && CvISXSUB(cv) ? cv : NULL;
}

static OP *note_and_call_sub(pTHX) {
    dMY_CXT;
    uint64_t *call = MY_CXT.call;
    uint64_t before[4];
    CV *cv;
    OP *next;
    if (!call) return call_sub(aTHX);
    cv = sub_in_c(*PL_stack_sp);
    if (!cv) {
        call[0] = 0;
        return call_sub(aTHX);
    }
    memcpy(before, call, sizeof before);
    call[1] = (uint64_t)(uintptr_t)PL_op;
    call[2] = (uint64_t)(uintptr_t)PL_curstackinfo;
    call[3] = (uint32_t)cxstack_ix;
    call[0] = (uint64_t)(uintptr_t)cv;
    next = call_sub(aTHX);
    memcpy(call, before, sizeof before);
    return next;
}

static uint64_t *calls(pTHX) {
    uint64_t *(*where)(const void *) = (uint64_t *(*)(const void *))find("heapprof_perl_calls");
#ifdef MULTIPLICITY
    return where ? where(aTHX) : NULL;
#else
    return where ? where(NULL) : NULL;
#endif
}

/* A file's name, or NULL if there is none. Returns false if it has a zero in it, which would cut it short. */
static bool name_of(pTHX_ SV *sv, const char **name) {
    STRLEN length;
    *name = NULL;
    if (!SvOK(sv)) return TRUE;
    *name = SvPVbyte(sv, length);
    return strlen(*name) == length;
}

MODULE = Devel::HeapProf   PACKAGE = Devel::HeapProf

PROTOTYPES: DISABLE

BOOT:
{
    MY_CXT_INIT;
    tell_layout();
    MY_CXT.call = calls(aTHX);
    /* Subs that were compiled before are called as before. */
    if (MY_CXT.call && PL_ppaddr[OP_ENTERSUB] != note_and_call_sub) {
        call_sub = PL_ppaddr[OP_ENTERSUB];
        PL_ppaddr[OP_ENTERSUB] = note_and_call_sub;
    }
}

void
CLONE(...)
  CODE:
  {
    MY_CXT_CLONE;
    MY_CXT.call = calls(aTHX);
    PERL_UNUSED_VAR(items);
  }

bool
is_loaded()
  CODE:
    RETVAL = find("heapprof_start") != NULL;
  OUTPUT:
    RETVAL

bool
is_running()
  PREINIT:
    int (*is_running)(void) = (int (*)(void))find("heapprof_is_running");
  CODE:
    RETVAL = is_running && is_running();
  OUTPUT:
    RETVAL

bool
_start(output, period)
    SV *output
    UV period
  PREINIT:
    int (*start)(const char *, unsigned long) = (int (*)(const char *, unsigned long))find("heapprof_start");
    const char *name;
    int error = ENOENT;
  CODE:
    if (start && name_of(aTHX_ output, &name)) error = start(name, (unsigned long)period);
    errno = error;
    RETVAL = error == 0;
  OUTPUT:
    RETVAL

void
stop()
  PREINIT:
    void (*stop)(void) = (void (*)(void))find("heapprof_stop");
  CODE:
    if (stop) stop();

bool
_dump(path)
    SV *path
  PREINIT:
    int (*dump)(const char *) = (int (*)(const char *))find("heapprof_dump");
    const char *name;
    int error = ENOENT;
  CODE:
    if (dump && name_of(aTHX_ path, &name)) error = dump(name);
    errno = error;
    RETVAL = error == 0;
  OUTPUT:
    RETVAL

int
_tell_layout()
  CODE:
    RETVAL = tell_layout();
  OUTPUT:
    RETVAL

void
_fields()
  PREINIT:
    size_t i;
  PPCODE:
    EXTEND(SP, (SSize_t)(2 * FIELDS));
    for (i = 0; i < FIELDS; i++) {
        mPUSHp(fields[i].name, strlen(fields[i].name));
        mPUSHu(fields[i].value);
    }
