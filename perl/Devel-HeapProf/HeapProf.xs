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

#ifdef MULTIPLICITY
#define my_perl_of(my_perl) (my_perl)
#else
#define my_perl_of(nothing) (&PL_sv_root)
#endif

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

/* As in heapprof's library, which keeps the list of free heads as it was at the last look. */
struct traced {
    const void *first;
    int64_t count;
};

typedef struct {
    uint64_t *call;
    /* The interpreter's values, if they are traced. */
    const struct traced *traced;
    const void *owner;
    /* The op that our run loop runs. */
    const OP *running;
} my_cxt_t;
START_MY_CXT

/* What the module keeps for this interpreter, or NULL if it has not loaded the module: ops are hooked for all interpreters
 * of the process. */
static my_cxt_t *context(pTHX) {
#ifdef MULTIPLICITY
    if (my_cxt_index < 0 || my_cxt_index >= PL_my_cxt_size || !PL_my_cxt_list) return NULL;
    return (my_cxt_t *)PL_my_cxt_list[my_cxt_index];
#else
    dMY_CXT;
    return &MY_CXT;
#endif
}

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

/* heapprof's functions for values. They are there if the library is. */
static struct {
    int (*wanted)(void);
    const struct traced *(*trace)(const void *, uint32_t, int);
    size_t (*changed)(const struct traced *);
    void (*made)(const struct traced *);
    void (*compiled)(const struct traced *);
    void (*ran_my)(const struct traced *, const uint64_t *, size_t);
    void (*end)(const struct traced *, int);
    uint32_t (*mark)(const char *);
    int (*since)(const struct traced *, uint32_t, void (*)(void *, const void *), void *);
} values;

static void find_values(void) {
    values.wanted = (int (*)(void))find("heapprof_perl_values_wanted");
    values.trace = (const struct traced *(*)(const void *, uint32_t, int))find("heapprof_perl_values");
    values.changed = (size_t (*)(const struct traced *))find("heapprof_perl_values_changed");
    values.made = (void (*)(const struct traced *))find("heapprof_perl_values_made");
    values.compiled = (void (*)(const struct traced *))find("heapprof_perl_values_compiled");
    values.ran_my =
        (void (*)(const struct traced *, const uint64_t *, size_t))find("heapprof_perl_values_my");
    values.end = (void (*)(const struct traced *, int))find("heapprof_perl_values_end");
    values.mark = (uint32_t (*)(const char *))find("heapprof_perl_values_mark");
    values.since = (int (*)(const struct traced *, uint32_t, void (*)(void *, const void *), void *))find(
        "heapprof_perl_values_since");
}

/* Values lie in arenas, and what heapprof reads of them is where it was from 5.20 to 5.42. */
#if defined(PURIFY) || defined(DEBUG_LEAKING_SCALARS) || defined(PERL_RC_STACK) || defined(PERL_POISON) || defined(DEBUGGING)
#define CAN_TRACE 0
#else
#define CAN_TRACE                                                                                                      \
    (sizeof(SV) == 24 && offsetof(SV, sv_u) == 16 && SVt_PV == 3 && SVt_REGEXP == 8 && SVt_PVGV == 9 &&               \
     SVt_PVLV == 10 && SVt_PVAV == 11 && SVt_PVHV == 12 && SVt_PVIO == 15 && SVTYPEMASK == 0xff &&                    \
     SVs_OBJECT == 0x00100000 && SVf_ROK == 0x0800 && SVf_IsCOW == 0x10000000 && sizeof(HE) == 24 &&                  \
     offsetof(XPVMG, xmg_stash) == 0 && offsetof(XPV, xpv_len_u) == 24 && offsetof(XPVAV, xav_max) == 24 &&           \
     offsetof(XPVAV, xav_alloc) == 32 && offsetof(XPVHV, xhv_keys) == 16 && offsetof(XPVHV, xhv_max) == 24)
#endif

/* The place of the newest context that is a frame, which perls from 5.32 on keep. */
#if FROM(32)
#define NEWEST_FRAME (PL_curstackinfo->si_cxsubix)
#define SET_NEWEST_FRAME(ix) (PL_curstackinfo->si_cxsubix = (ix))
#else
#define NEWEST_FRAME 0
#define SET_NEWEST_FRAME(ix) NOOP
#endif

/* Where a stack of contexts stood before an op, so that what the op made can be laid to the stack that it began with. */
struct before {
    const PERL_SI *info;
    const COP *cop;
    I32 ix, frame;
    /* The sub that the op ends, and the place of its context. */
    CV *cv;
    I32 sub;
};

#define HAS_CHANGED(traced) ((traced)->first != (const void *)PL_sv_root || (traced)->count != (int64_t)PL_sv_count)

/* The sub that `return` or the end of a sub leaves. */
static void note_sub(pTHX_ struct before *before) {
    I32 ix;
    for (ix = before->ix; ix >= 0; ix--) {
        const PERL_CONTEXT *cx = &cxstack[ix];
        switch (CxTYPE(cx)) {
        case CXt_SUB:
            before->cv = cx->blk_sub.cv;
            before->sub = ix;
            return;
        case CXt_EVAL:
        case CXt_FORMAT:
            return;
        }
    }
}

/* Lays the values that an op made to the stack that it began with. The contexts that it left are still there behind the
 * newest one, and a sub that has ended is mostly alive. */
static void made_by_op(pTHX_ const struct traced *traced, const struct before *before) {
    COP *cop = PL_curcop;
    I32 ix = cxstack_ix, frame = NEWEST_FRAME, i;
    PERL_CONTEXT *sub = NULL;
    bool can_go_back = PL_curstackinfo == before->info && before->ix <= cxstack_max;
    if (can_go_back && before->ix > ix) {
        if (before->cv && before->sub > ix && !cxstack[before->sub].blk_sub.cv && SvTYPE(before->cv) == SVt_PVCV &&
            SvREFCNT(before->cv) > 0)
            sub = &cxstack[before->sub];
        for (i = ix + 1; i <= before->ix; i++) {
            const PERL_CONTEXT *cx = &cxstack[i];
            /* What another one has left is not whole any more. */
            if (cx != sub && (CxTYPE(cx) == CXt_SUB || CxTYPE(cx) == CXt_FORMAT || (CxTYPE(cx) == CXt_EVAL && !CxTRYBLOCK(cx))))
                can_go_back = FALSE;
        }
    }
    if (!can_go_back) {
        values.made(traced);
        return;
    }
    if (sub) sub->blk_sub.cv = before->cv;
    cxstack_ix = before->ix;
    SET_NEWEST_FRAME(before->frame);
    PL_curcop = (COP *)before->cop;
    values.made(traced);
    PL_curcop = cop;
    SET_NEWEST_FRAME(frame);
    cxstack_ix = ix;
    PERL_UNUSED_VAR(frame);
    if (sub) sub->blk_sub.cv = NULL;
}

/* The variables of a pad that an op introduces, as `my` does: the pad, the place of the first one, and how many there are.
 * Most have waited there since the last call of the sub. */
struct introduced {
    const PAD *pad;
    PADOFFSET first;
    UV count;
};

static struct introduced introduced_by(pTHX_ const OP *op) {
    struct introduced by = { PL_comppad, op->op_targ, 0 };
    bool is_my = (op->op_private & OPpLVAL_INTRO) != 0;
    switch (op->op_type) {
    case OP_PADRANGE:
        if (is_my) by.count = op->op_private & OPpPADRANGE_COUNTMASK;
        break;
#if FROM(28)
    case OP_MULTICONCAT:
        by.count = is_my && (op->op_private & OPpTARGET_MY);
        break;
#endif
#if FROM(26)
    case OP_SPLIT:
        if (is_my && (op->op_private & OPpSPLIT_LEX)) {
            by.first = ((const PMOP *)op)->op_pmreplrootu.op_pmtargetoff;
            by.count = 1;
        }
        break;
#endif
#if FROM(38)
    case OP_EMPTYAVHV:
    case OP_UNDEF:
        by.count = is_my && (op->op_private & OPpTARGET_MY);
        break;
    case OP_PADSV_STORE:
#endif
    case OP_PADSV:
    case OP_PADAV:
    case OP_PADHV:
        by.count = is_my;
        break;
#if FROM(26)
    case OP_ARGELEM:
#endif
    case OP_INTROCV:
    case OP_CLONECV:
        by.count = 1;
    }
    return by;
}

/* Says that these variables were made, now that their `my` has run. */
static void ran_my(pTHX_ const struct traced *traced, const struct introduced *by) {
    uint64_t variables[OPpPADRANGE_COUNTMASK + 1];
    size_t count = 0;
    UV i;
    if (PL_comppad != by->pad) return;
    for (i = 0; i < by->count; i++) {
        SV *sv = PL_curpad[by->first + i];
        if (sv && SvTYPE(sv) != (svtype)SVTYPEMASK && !SvPADSTALE(sv)) variables[count++] = (uint64_t)(uintptr_t)sv;
    }
    if (count) values.ran_my(traced, variables, count);
}

/* Takes what has changed since the last look as made by the sub that runs. */
static void follow(pTHX_ const struct traced *traced) {
    if (HAS_CHANGED(traced) && values.changed(traced)) values.made(traced);
}

/* Begins another part of the program. Returns its number. */
static uint32_t begin_part(pTHX_ const struct traced *traced, const char *text) {
    follow(aTHX_ traced);
    return values.mark(text);
}

static int run_and_trace(pTHX);

/* Keeps the values as they are: the program has ended, and what follows frees them. */
static void end_tracing(pTHX_ my_cxt_t *our) {
    const struct traced *traced = our->traced;
    if (!traced || our->owner != (const void *)my_perl_of(aTHX)) return;
    follow(aTHX_ traced);
    values.end(traced, PL_runops != run_and_trace);
    our->traced = NULL;
    if (PL_runops == run_and_trace) PL_runops = Perl_runops_standard;
}

/* The run loop, which looks after each op whether values were made or freed. */
static int run_and_trace(pTHX) {
    OP *op = PL_op;
    /* The last op of the program frees its variables. */
    const OP *last = op == PL_main_start ? PL_main_root : NULL;
    my_cxt_t *our = context(aTHX);
    const struct traced *traced = our && our->owner == (const void *)my_perl_of(aTHX) ? our->traced : NULL;
    if (!traced) {
        while ((PL_op = op = op->op_ppaddr(aTHX))) {
        }
        PERL_ASYNC_CHECK();
        TAINT_NOT;
        return 0;
    }
    /* What was made outside of ops: by the compiler, by C code, or by an op that died. */
    follow(aTHX_ traced);
    do {
        struct before before;
        struct introduced by = introduced_by(aTHX_ op);
        before.info = PL_curstackinfo;
        before.cop = PL_curcop;
        before.ix = cxstack_ix;
        before.frame = NEWEST_FRAME;
        before.cv = NULL;
        before.sub = -1;
        if (op->op_type == OP_LEAVESUB || op->op_type == OP_RETURN || op->op_type == OP_LEAVESUBLV)
            note_sub(aTHX_ &before);
        our->running = op;
        if (op == last) {
            end_tracing(aTHX_ our);
            break;
        }
        op = op->op_ppaddr(aTHX);
        if (HAS_CHANGED(traced) && values.changed(traced)) made_by_op(aTHX_ traced, &before);
        if (by.count) ran_my(aTHX_ traced, &by);
    } while ((PL_op = op));
    while (op) {
        PL_op = op = op->op_ppaddr(aTHX);
    }
    PERL_ASYNC_CHECK();
    TAINT_NOT;
    return 0;
}

/* Ends the program: values are all that was asked for. */
static void refuse(pTHX_ const char *why) {
    PerlIO_printf(PerlIO_stderr(), "heapprof: --perl-values: %s\n", why);
    my_exit(2);
}

/* Perl's own run loop runs the coroutines of Coro. There, what was made is looked for before some ops: when a sub is
 * called or left, and when the next statement begins. When `exit` is called the values are kept as they are. */
static const Optype looked_at[] = { OP_NEXTSTATE, OP_LEAVESUB, OP_RETURN, OP_EXIT };
static OP *(*behind[sizeof looked_at / sizeof *looked_at])(pTHX);

static void look_before(pTHX) {
    const my_cxt_t *our = context(aTHX);
    if (our && our->running != PL_op && our->traced && our->owner == (const void *)my_perl_of(aTHX))
        follow(aTHX_ our->traced);
}

static OP *look_and_begin_statement(pTHX) {
    look_before(aTHX);
    return behind[0](aTHX);
}

static OP *look_and_leave_sub(pTHX) {
    look_before(aTHX);
    return behind[1](aTHX);
}

static OP *look_and_return(pTHX) {
    look_before(aTHX);
    return behind[2](aTHX);
}

static OP *end_and_exit(pTHX) {
    my_cxt_t *our = context(aTHX);
    if (our) end_tracing(aTHX_ our);
    return behind[3](aTHX);
}

/* Has ops that are compiled from now on look for values. */
static void look_in_ops(void) {
    static OP *(*const look[])(pTHX) = { look_and_begin_statement, look_and_leave_sub, look_and_return, end_and_exit };
    size_t i;
    for (i = 0; i < sizeof look / sizeof *look; i++) {
        /* Another module may have put its own function before ours since. */
        if (behind[i]) continue;
        behind[i] = PL_ppaddr[looked_at[i]];
        PL_ppaddr[looked_at[i]] = look[i];
    }
}

static OP *note_and_call_sub(pTHX) {
    const my_cxt_t *our = context(aTHX);
    uint64_t *call = our ? our->call : NULL;
    uint64_t before[4];
    CV *cv;
    OP *next;
    look_before(aTHX);
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
    /* What the sub made is laid to it while it can still be named. */
    our = context(aTHX);
    if (our && our->traced && our->owner == (const void *)my_perl_of(aTHX)) follow(aTHX_ our->traced);
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

/* Traces the values of this interpreter, if they are wanted. */
static void trace_values(pTHX_ int is_copy) {
    dMY_CXT;
    /* A thread begins with what its parent has. */
    bool is_ours = PL_runops == Perl_runops_standard || (is_copy && PL_runops == run_and_trace);
    MY_CXT.traced = NULL;
    MY_CXT.owner = my_perl_of(aTHX);
    if (!values.wanted || !values.trace || !values.wanted()) return;
    if (!CAN_TRACE) {
        if (!is_copy && values.wanted() == 2) refuse(aTHX_ "this perl was built in a way in which its values can't be traced");
        return;
    }
    if (!is_ours) {
        if (!is_copy && values.wanted() == 2)
            refuse(aTHX_ "another module has replaced Perl's run loop (PL_runops), which values are traced by; "
                         "run the program without it");
        return;
    }
#ifdef MULTIPLICITY
    MY_CXT.traced = values.trace(aTHX, SVs_PADSTALE, is_copy);
#else
    MY_CXT.traced = values.trace(NULL, SVs_PADSTALE, is_copy);
#endif
    if (MY_CXT.traced) {
        if (!is_copy) look_in_ops();
        PL_runops = run_and_trace;
    } else if (!is_copy && values.wanted() == 2)
        refuse(aTHX_ "this perl's values can't be traced: heapprof does not record it, or does not know its structures");
}

/* The rows of what was left go into an array. */
struct left {
    const char *stack;
    const char *type;
    const char *class_name;
    uint64_t count;
    uint64_t bytes;
};
struct rows {
#ifdef MULTIPLICITY
    PerlInterpreter *perl;
#endif
    AV *rows;
};
static void add_row(void *to, const void *row) {
    const struct rows *rows = (const struct rows *)to;
    const struct left *left = (const struct left *)row;
#ifdef MULTIPLICITY
    pTHX = rows->perl;
#endif
    HV *hash = newHV();
    const char *from = left->stack;
    AV *stack = newAV();
    while (*from) {
        const char *end = strchr(from, '\n');
        size_t length = end ? (size_t)(end - from) : strlen(from);
        av_push(stack, newSVpvn_utf8(from, length, 1));
        from += length + (end ? 1 : 0);
    }
    (void)hv_stores(hash, "stack", newRV_noinc((SV *)stack));
    (void)hv_stores(hash, "type", newSVpv(left->type, 0));
    (void)hv_stores(hash, "class", *left->class_name ? newSVpvn_utf8(left->class_name, strlen(left->class_name), 1) : newSV(0));
    (void)hv_stores(hash, "count", newSVuv((UV)left->count));
    (void)hv_stores(hash, "bytes", newSVuv((UV)left->bytes));
    av_push(rows->rows, newRV_noinc((SV *)hash));
}

/* Puts the rows into an array. Returns an errno. */
static int add_rows(pTHX_ const struct traced *traced, U32 mark, AV *found) {
    struct rows rows;
#ifdef MULTIPLICITY
    rows.perl = aTHX;
#endif
    rows.rows = found;
    return values.since(traced, mark, add_row, &rows);
}

/* Puts what an array has on the stack. Returns the stack's new end. */
static SV **put_rows(pTHX_ SV **sp, AV *found) {
    SSize_t i, count = av_len(found) + 1;
    EXTEND(SP, count);
    for (i = 0; i < count; i++) {
        SV **row = av_fetch(found, i, 0);
        if (row) PUSHs(sv_2mortal(SvREFCNT_inc_simple_NN(*row)));
    }
    return sp;
}

/* A file's name, or NULL if there is none. One with wide characters is UTF-8, as for `open`. Returns false if it has a zero
 * in it, which would cut it short. */
static bool name_of(pTHX_ SV *sv, const char **name) {
    STRLEN length;
    SV *bytes;
    *name = NULL;
    if (!SvOK(sv)) return TRUE;
    bytes = sv_mortalcopy(sv);
    (void)sv_utf8_downgrade(bytes, TRUE);
    *name = SvPV(bytes, length);
    return strlen(*name) == length;
}

/* No rows would say that nothing is left. */
static void cant_be_told(pTHX_ int error) {
    if (error == EAGAIN)
        croak("Devel::HeapProf: what was left can't be told: values are no longer traced, because the recording was "
              "stopped or the program has ended");
    croak("Devel::HeapProf: what was left can't be told: %s", Strerror(error));
}

MODULE = Devel::HeapProf   PACKAGE = Devel::HeapProf

PROTOTYPES: DISABLE

BOOT:
{
    const my_cxt_t *our = context(aTHX);
    /* A program may load a module again. Then all of this is done. */
    if (!our || our->owner != (const void *)my_perl_of(aTHX)) {
        MY_CXT_INIT;
        tell_layout();
        MY_CXT.call = calls(aTHX);
        /* Subs that were compiled before are called as before. Another module may have put its own function before ours. */
        if (MY_CXT.call && !call_sub) {
            call_sub = PL_ppaddr[OP_ENTERSUB];
            PL_ppaddr[OP_ENTERSUB] = note_and_call_sub;
        }
        find_values();
        trace_values(aTHX_ 0);
    }
}

void
_before_and_after()
  PREINIT:
    CV *first = get_cv("Devel::HeapProf::_check_loop", 0);
    CV *last = get_cv("Devel::HeapProf::_end", 0);
  CODE:
    /* A debugger stops in neither. */
    if (first && last) {
        CvNODEBUG_on(first);
        CvNODEBUG_on(last);
        if (!PL_initav) PL_initav = newAV();
        av_push(PL_initav, SvREFCNT_inc_simple_NN((SV *)first));
        if (!PL_endav) PL_endav = newAV();
        av_unshift(PL_endav, 1);
        (void)av_store(PL_endav, 0, SvREFCNT_inc_simple_NN((SV *)last));
    }

void
CLONE(...)
  CODE:
  {
    MY_CXT_CLONE;
    MY_CXT.call = calls(aTHX);
    PERL_UNUSED_VAR(items);
    trace_values(aTHX_ 1);
  }

bool
is_tracing()
  PREINIT:
    dMY_CXT;
  CODE:
    RETVAL = MY_CXT.traced != NULL && MY_CXT.owner == (const void *)my_perl_of(aTHX);
  OUTPUT:
    RETVAL

void
_check_loop()
  PREINIT:
    dMY_CXT;
  CODE:
    if (MY_CXT.traced && PL_runops != run_and_trace && values.wanted() == 2)
        refuse(aTHX_ "another module has replaced Perl's run loop (PL_runops), which values are traced by; "
                     "run the program without it");
    if (MY_CXT.traced) values.compiled(MY_CXT.traced);

void
_end()
  PREINIT:
    dMY_CXT;
  CODE:
    end_tracing(aTHX_ &MY_CXT);

UV
_mark(text)
    SV *text
  PREINIT:
    dMY_CXT;
    const char *name = NULL;
    STRLEN length = 0;
  CODE:
    if (SvOK(text)) name = SvPVutf8(text, length);
    if (name && strlen(name) != length) croak("Devel::HeapProf::mark: the text has a zero in it");
    RETVAL = MY_CXT.traced ? begin_part(aTHX_ MY_CXT.traced, name) : 0;
  OUTPUT:
    RETVAL

void
_since(mark)
    UV mark
  PREINIT:
    dMY_CXT;
    AV *found;
    int error = ENOENT;
  PPCODE:
    if (MY_CXT.traced) follow(aTHX_ MY_CXT.traced);
    /* It is made after that, so that it does not count. */
    found = (AV *)sv_2mortal((SV *)newAV());
    if (MY_CXT.traced) {
        error = add_rows(aTHX_ MY_CXT.traced, (U32)mark, found);
        if (error) cant_be_told(aTHX_ error);
    }
    SP = put_rows(aTHX_ SP, found);
    errno = error;

void
_leaks(block)
    SV *block
  PREINIT:
    dMY_CXT;
    AV *found;
    uint32_t from = 0;
    int error = ENOENT;
  PPCODE:
    if (MY_CXT.traced) from = begin_part(aTHX_ MY_CXT.traced, NULL);
    ENTER;
    SAVETMPS;
    PUSHMARK(SP);
    PUTBACK;
    call_sv(block, G_VOID | G_DISCARD | G_NOARGS);
    SPAGAIN;
    FREETMPS;
    LEAVE;
    if (MY_CXT.traced) follow(aTHX_ MY_CXT.traced);
    found = (AV *)sv_2mortal((SV *)newAV());
    if (MY_CXT.traced && from) {
        error = add_rows(aTHX_ MY_CXT.traced, from, found);
        if (error) cant_be_told(aTHX_ error);
    }
    SP = put_rows(aTHX_ SP, found);
    errno = error;

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
