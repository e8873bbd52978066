/* What a forked child loads: under `heapprof record --fork-audit`, heapprof is told of each attempt when it is known how it
 * went. A part of HeapProf.xs.
 *
 * The ops that load files are replaced, as those are that call subs. So nothing of this can be seen in @INC or %INC, and
 * an attempt is seen whatever names the file. An attempt has ended when the context of its file has left the stack; then
 * %INC says how it went. Whoever dies leaves many contexts at once, and nobody is told. So what has ended is also looked
 * for before each call of a sub, and at the end of each file, eval and sub. While Perl looks for a file, it may run a sub in @INC;
 * then the search goes on if its C function is still on the stack. */
#include <time.h>
#include <unistd.h>

/* As in heapprof.h. */
struct heapprof_load {
    const char *name;
    const char *kind;
    const char *outcome;
    const char *site;
    int64_t micros;
    int64_t stats;
    int64_t opens;
};

#define DEEPEST 128
#define LONGEST_NAME 512
#define LONGEST_SITE 1024
#define SITES 8

/* An attempt that has not ended. */
struct attempt {
    char name[LONGEST_NAME];
    char site[LONGEST_SITE];
    bool is_do;
    /* Whether Perl looks for it or compiles it, and the C frame in which it does. */
    bool is_searched;
    const char *frame;
    /* Whether its file was found and compiled, and has a context. */
    bool is_entered;
    const PERL_SI *stack;
    I32 depth;
    int64_t began;
};

static struct {
    int (*tell)(const struct heapprof_load *);
    int (*look)(int);
    /* The one interpreter whose attempts are noted. */
    const void *owner;
    pid_t first;
    pid_t here;
    int count;
    struct attempt attempt[DEEPEST];
} loads;

static OP *(*load_required)(pTHX);
static OP *(*load_done)(pTHX);
static OP *(*leave_file)(pTHX);
static OP *(*exit_program)(pTHX);
static OP *(*return_from)(pTHX);

static int64_t micros_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Whether this is a forked child that is audited. What its parent was loading when it forked is the parent's. */
static bool is_audited(pTHX) {
    pid_t here;
    if (!loads.tell || loads.owner != (const void *)my_perl_of(aTHX)) return FALSE;
    here = getpid();
    if (here != loads.here) {
        loads.here = here;
        loads.count = 0;
    }
    return here != loads.first;
}

/* Who asks: the lines of the statements that run, the newest first. */
static void write_site(pTHX_ char *to) {
    const COP *cop = PL_curcop;
    size_t at = 0;
    I32 level, lines = 0;
    const char *last = NULL;
    line_t last_line = 0;
    *to = 0;
    for (level = 0; cop && lines < SITES; level++) {
        const char *file = CopFILE(cop);
        const PERL_CONTEXT *cx;
        /* A `use` is a block that is called on its own line. */
        if (file && !(last && strcmp(file, last) == 0 && CopLINE(cop) == last_line)) {
            int wrote = snprintf(to + at, LONGEST_SITE - at, "%s%s:%" UVuf, at ? " < " : "", file, (UV)CopLINE(cop));
            if (wrote < 0 || (size_t)wrote >= LONGEST_SITE - at) {
                to[at] = 0;
                return;
            }
            at += wrote;
            lines++;
            last = file;
            last_line = CopLINE(cop);
        }
        cx = caller_cx(level, NULL);
        cop = cx ? cx->blk_oldcop : NULL;
    }
}

/* How many system calls it took to look for a file in @INC: those that ask about a path, and those that open one. */
static void count_calls(pTHX_ const struct attempt *attempt, const char *found, int64_t *stats, int64_t *opens) {
    const char *name = attempt->name;
    size_t length = strlen(name);
    AV *dirs = GvAV(PL_incgv);
    SSize_t i;
    /* Perl looks for a compiled form of a module as well. */
#ifdef PERL_DISABLE_PMC
    int64_t each = 1;
#else
    int64_t each = length > 3 && strcmp(name + length - 3, ".pm") == 0 ? 2 : 1;
#endif
    bool is_path = *name == '/' || strncmp(name, "./", 2) == 0 || strncmp(name, "../", 3) == 0;
    *stats = 0;
    *opens = found ? 1 : 0;
    if (is_path || !dirs) {
        *stats = each;
        return;
    }
    for (i = 0; i <= av_len(dirs); i++) {
        SV **dir = av_fetch(dirs, i, 0);
        STRLEN dir_length;
        const char *text;
        if (!dir || SvROK(*dir) || !SvPOK(*dir)) continue;
        *stats += each;
        if (!found) continue;
        text = SvPV_nomg(*dir, dir_length);
        if (strncmp(found, text, dir_length) == 0 && found[dir_length] == '/' && strcmp(found + dir_length + 1, name) == 0)
            return;
    }
}

/* Whether an attempt goes on, as seen from a C frame. */
static bool goes_on(pTHX_ const struct attempt *attempt, const char *frame) {
    const PERL_SI *stack = PL_curstackinfo;
    const PERL_CONTEXT *cx;
    while (stack && stack != attempt->stack) stack = stack->si_prev;
    if (!stack) return FALSE;
    if (attempt->is_searched) return frame < attempt->frame && stack->si_cxix >= attempt->depth;
    if (!attempt->is_entered || stack->si_cxix <= attempt->depth) return FALSE;
    cx = &stack->si_cxstack[attempt->depth + 1];
    return CxTYPE(cx) == CXt_EVAL && (CxOLD_OP_TYPE(cx) == OP_REQUIRE || CxOLD_OP_TYPE(cx) == OP_DOFILE);
}

static void tell_of(pTHX_ const struct attempt *attempt) {
    SV **entry = hv_fetch(GvHVn(PL_incgv), attempt->name, (I32)strlen(attempt->name), 0);
    bool is_known = entry && SvOK(*entry);
    struct heapprof_load load;
    load.name = attempt->name;
    load.kind = attempt->is_do ? "do" : "require";
    load.site = attempt->site;
    load.micros = micros_now() - attempt->began;
    /* What died in the search is not loaded, whatever the program has put into %INC since. */
    if (attempt->is_searched)
        load.outcome = entry && !is_known ? "failed" : "not found";
    else if (is_known && (attempt->is_entered || !attempt->is_do))
        load.outcome = "loaded";
    else
        load.outcome = entry || attempt->is_entered ? "failed" : "not found";
    is_known = is_known && !attempt->is_searched;
    load.stats = 0;
    load.opens = 1;
    /* Of a file that was found and failed, nothing says where it was. */
    if (strcmp(load.outcome, "failed") != 0)
        count_calls(aTHX_ attempt, is_known && SvPOK(*entry) ? SvPVX(*entry) : NULL, &load.stats, &load.opens);
    loads.tell(&load);
}

/* Tells of the attempts that have ended, as seen from a C frame. */
static void settle(pTHX_ const char *frame) {
    while (loads.count && !goes_on(aTHX_ &loads.attempt[loads.count - 1], frame)) {
        loads.count--;
        tell_of(aTHX_ &loads.attempt[loads.count]);
    }
}

/* Whether the op is to load a file that is not loaded yet. Copies its name. */
static bool is_attempt(pTHX_ bool is_do, char *name) {
    SV *sv = *PL_stack_sp;
    STRLEN length;
    const char *text;
    if (SvGMAGICAL(sv) || !SvPOK(sv) || SvVOK(sv)) return FALSE;
    text = SvPV_nomg(sv, length);
    if (!length || length >= LONGEST_NAME || strlen(text) != length) return FALSE;
    if (!is_do && hv_exists(GvHVn(PL_incgv), text, (I32)length)) return FALSE;
    memcpy(name, text, length + 1);
    return TRUE;
}

__attribute__((noinline)) static OP *note_load(pTHX_ OP *(*load)(pTHX), bool is_do) {
    struct attempt *attempt;
    const PERL_SI *stack = PL_curstackinfo;
    I32 depth = cxstack_ix;
    const char *frame = (const char *)__builtin_frame_address(0);
    OP *next;
    int place;
    if (!is_audited(aTHX)) return load(aTHX);
    settle(aTHX_ frame);
    place = loads.count;
    if (place == DEEPEST || !is_attempt(aTHX_ is_do, loads.attempt[place].name)) return load(aTHX);
    attempt = &loads.attempt[place];
    attempt->is_do = is_do;
    attempt->is_entered = FALSE;
    attempt->is_searched = TRUE;
    attempt->frame = frame;
    attempt->stack = stack;
    attempt->depth = depth;
    write_site(aTHX_ attempt->site);
    attempt->began = micros_now();
    loads.count++;
    /* If it dies, it does not come back. */
    next = load(aTHX);
    if (loads.count == place + 1) {
        attempt->is_searched = FALSE;
        attempt->is_entered = PL_curstackinfo == stack && cxstack_ix > depth;
    }
    settle(aTHX_ frame);
    return next;
}

static OP *note_required(pTHX) {
    return note_load(aTHX_ load_required, FALSE);
}

static OP *note_done(pTHX) {
    return note_load(aTHX_ load_done, TRUE);
}

static OP *note_end_of_file(pTHX) {
    OP *next = leave_file(aTHX);
    if (loads.count && is_audited(aTHX)) settle(aTHX_ (const char *)__builtin_frame_address(0));
    return next;
}

/* A file may end by a `return`. */
static OP *note_return(pTHX) {
    OP *next = return_from(aTHX);
    if (loads.count && is_audited(aTHX)) settle(aTHX_ (const char *)__builtin_frame_address(0));
    return next;
}

/* The last moment before variables are freed. */
static OP *note_exit(pTHX) {
    if (is_audited(aTHX)) {
        settle(aTHX_ (const char *)__builtin_frame_address(0));
        loads.look(0);
    }
    return exit_program(aTHX);
}

/* Begins to note what forked children load, if that is wanted. */
static void audit_loads(pTHX) {
    const char *wanted = getenv("HEAPPROF_FORK_AUDIT");
    if (loads.tell || !wanted || !*wanted) return;
    loads.look = (int (*)(int))find("heapprof_look");
    loads.tell = (int (*)(const struct heapprof_load *))find("heapprof_load");
    if (!loads.tell || !loads.look) return;
    loads.owner = (const void *)my_perl_of(aTHX);
    loads.first = loads.here = getpid();
    load_required = PL_ppaddr[OP_REQUIRE];
    PL_ppaddr[OP_REQUIRE] = note_required;
    load_done = PL_ppaddr[OP_DOFILE];
    PL_ppaddr[OP_DOFILE] = note_done;
    leave_file = PL_ppaddr[OP_LEAVEEVAL];
    PL_ppaddr[OP_LEAVEEVAL] = note_end_of_file;
    return_from = PL_ppaddr[OP_RETURN];
    PL_ppaddr[OP_RETURN] = note_return;
    exit_program = PL_ppaddr[OP_EXIT];
    PL_ppaddr[OP_EXIT] = note_exit;
}
