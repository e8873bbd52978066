/* Tracing Perl's values: the run loop that sees them being made and freed, and the rows of what was left. A part of
 * HeapProf.xs. */

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
    const struct traced *traced = traced_by(aTHX_ our);
    if (!traced) return;
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
    const struct traced *traced = traced_by(aTHX_ our);
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
    const struct traced *traced = traced_by(aTHX_ our);
    if (traced && our->running != PL_op) follow(aTHX_ traced);
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
    end_tracing(aTHX_ context(aTHX));
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

/* No rows would say that nothing is left. */
static void cant_be_told(pTHX_ int error) {
    if (error == EAGAIN)
        croak("Devel::HeapProf: what was left can't be told: values are no longer traced, because the recording was "
              "stopped or the program has ended");
    croak("Devel::HeapProf: what was left can't be told: %s", Strerror(error));
}

/* The rows of what was left since a part began, in an array. There are none, and errno says so, if nothing is traced. */
static AV *left_since(pTHX_ const struct traced *traced, U32 part) {
    struct rows rows;
    int error;
    if (traced) follow(aTHX_ traced);
    /* It is made after that, so that it does not count. */
    rows.rows = (AV *)sv_2mortal((SV *)newAV());
#ifdef MULTIPLICITY
    rows.perl = aTHX;
#endif
    error = traced ? values.since(traced, part, add_row, &rows) : 0;
    if (error) cant_be_told(aTHX_ error);
    errno = traced ? 0 : ENOENT;
    return rows.rows;
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
