/* What heapprof can only learn from Perl's own headers: how this perl's structures are laid out. A part of HeapProf.xs. */

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
    INTERPRETER(Istrtab)
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

/* Says what the structures are, so that heapprof can read this perl, whatever its version and however it was built. */
static int tell_layout(void) {
    int (*tell)(const struct heapprof_perl_field *, size_t) =
        (int (*)(const struct heapprof_perl_field *, size_t))find("heapprof_perl_layout");
    return tell ? tell(fields, FIELDS) : ENOENT;
}
