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

#ifdef MULTIPLICITY
#define my_perl_of(my_perl) (my_perl)
#else
#define my_perl_of(nothing) (&PL_sv_root)
#endif

static void *find(const char *name) {
    return dlsym(RTLD_DEFAULT, name);
}

#include "layout.h"

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

/* The values that are traced of this interpreter. A thread begins with a copy of what its parent has, which is not its own. */
static const struct traced *traced_by(pTHX_ const my_cxt_t *our) {
    return our && our->owner == (const void *)my_perl_of(aTHX) ? our->traced : NULL;
}

#include "values.h"
#include "loads.h"
#include "watch.h"

/* A sub that is written in C has no context on Perl's stack. So each call of one is noted where heapprof looks: the sub,
 * and what tells that the call is still being made. Nothing has to be taken back if the sub dies, because then the op that
 * runs is another one. */
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
    const my_cxt_t *our = context(aTHX);
    uint64_t *call = our ? our->call : NULL;
    const struct traced *traced;
    uint64_t before[4];
    CV *cv;
    OP *next;
    look_before(aTHX);
    /* Whoever catches a death does not load anything at once. */
    if (loads.count && is_audited(aTHX)) settle(aTHX_ (const char *)__builtin_frame_address(0));
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
    traced = traced_by(aTHX_ context(aTHX));
    if (traced) follow(aTHX_ traced);
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
        audit_loads(aTHX);
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
_look_at_end()
  PREINIT:
    CV *last = get_cv("Devel::HeapProf::_look", 0);
  CODE:
    /* After the program's own END blocks, and before Perl cleans up. An eval would count up the numbers of the program's. */
    if (last && loads.look) {
        CvNODEBUG_on(last);
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
    RETVAL = traced_by(aTHX_ &MY_CXT) != NULL;
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
    tell_watch(name ? name : "");
    RETVAL = MY_CXT.traced ? begin_part(aTHX_ MY_CXT.traced, name) : 0;
  OUTPUT:
    RETVAL

void
_since(mark)
    UV mark
  PREINIT:
    dMY_CXT;
  PPCODE:
    SP = put_rows(aTHX_ SP, left_since(aTHX_ MY_CXT.traced, (U32)mark));

void
_leaks(block)
    SV *block
  PREINIT:
    dMY_CXT;
    uint32_t from = 0;
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
    SP = put_rows(aTHX_ SP, left_since(aTHX_ from ? MY_CXT.traced : NULL, from));

void
_look()
  CODE:
    if (is_audited(aTHX)) {
        settle(aTHX_ (const char *)__builtin_frame_address(0));
        loads.look(1);
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

void
alive(name)
    SV *name
  PREINIT:
    void (*alive)(const char *, const char *) = (void (*)(const char *, const char *))find("heapprof_alive_at");
    const char *text;
    char site[512];
  CODE:
    /* A name with a zero in it is told up to there. */
    if (alive && SvOK(name)) {
        (void)name_of(aTHX_ name, &text);
        snprintf(site, sizeof site, "%s:%lu", CopFILE(PL_curcop) ? CopFILE(PL_curcop) : "-",
                 (unsigned long)CopLINE(PL_curcop));
        alive(text, site);
    }

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
