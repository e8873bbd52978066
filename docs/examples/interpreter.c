/* A toy interpreter that tells heapprof its frames: functions of a made-up language, by file and line.
 *
 * gcc -g -O1 -o interpreter interpreter.c -I$(heapprof setup preload-path --header | xargs dirname) -ldl -pthread
 * heapprof record --exact -o toy.pb.gz ./interpreter, then heapprof traces toy.pb.gz
 * Without the library it runs as well. */
#define _GNU_SOURCE
#include "heapprof.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The language: a function is a list of statements, each on a line of shop.toy. */
enum kind { ALLOCATE, CALL, CALL_BACK, RETURN };
struct statement { enum kind kind; size_t number; int line; };
struct function { const char *name; int line; const struct statement *statements; };

static const struct statement of_main[] = {
    {CALL, 1, 2}, {CALL, 2, 3}, {ALLOCATE, 100, 4}, {CALL_BACK, 2, 5}, {RETURN, 0, 6}};
static const struct statement of_shelf[] = {{ALLOCATE, 200, 9}, {CALL, 2, 10}, {RETURN, 0, 11}};
static const struct statement of_goods[] = {{ALLOCATE, 300, 14}, {ALLOCATE, 400, 15}, {RETURN, 0, 16}};
static const struct function functions[] = {{"main", 1, of_main}, {"shelf", 8, of_shelf}, {"goods", 13, of_goods}};

/* A thread's interpreter: what it runs, innermost last. */
struct frame { const struct function *function; const struct statement *at; int from_c; };
struct interpreter { struct frame frame[64]; size_t depth; char record[2048]; size_t recorded; };
static __thread struct interpreter *current;
static void *volatile kept; /* or the compiler leaves the allocations out */

/* What the interpreter itself says of an allocation: its size and the stack, innermost first. */
static void note(struct interpreter *in, size_t size) {
    char *to = in->record + in->recorded;
    size_t left = sizeof in->record - in->recorded;
    int n = snprintf(to, left, "%zu", size);
    for (size_t i = in->depth; i-- > 0;)
        n += snprintf(to + n, left - n, " %s:%d", in->frame[i].function->name, in->frame[i].at->line);
    in->recorded += n + snprintf(to + n, left - n, "\n");
}

/* Runs a function until it returns: the run loop. It has a section of its own, so that the linker knows its ends. */
extern const char __start_toy_loop[], __stop_toy_loop[];
__attribute__((noinline, section("toy_loop"))) static void run(struct interpreter *in, const struct function *function) {
    size_t bottom = in->depth;
    in->frame[in->depth++] = (struct frame){function, function->statements, 1};
    while (in->depth > bottom) {
        struct frame *top = &in->frame[in->depth - 1];
        const struct statement *now = top->at;
        switch (now->kind) {
        case ALLOCATE:
            kept = malloc(now->number);
            note(in, now->number);
            break;
        case CALL:
            in->frame[in->depth++] = (struct frame){&functions[now->number], functions[now->number].statements, 0};
            continue; /* its caller goes on behind the statement when it returns */
        case CALL_BACK:
            run(in, &functions[now->number]);
            break;
        case RETURN:
            in->depth--;
            if (in->depth == bottom) return;
            top = &in->frame[in->depth - 1];
            break;
        }
        top->at++;
    }
}

/* Runs inside an allocation: only reads, and only this thread's interpreter. */
static size_t capture(void *context, struct heapprof_capture *capture) {
    (void)context;
    if (!current) return 0;
    size_t n = 0;
    while (n < current->depth && n < capture->most) {
        const struct frame *frame = &current->frame[current->depth - 1 - n];
        capture->frames[n++] = (struct heapprof_raw_frame){
            .code = (uintptr_t)frame->function, .place = (uintptr_t)frame->at, .line = frame->at->line, .entry = frame->from_c};
    }
    capture->label = 1 + current->frame[current->depth - 1].at->kind;
    return n;
}

static int resolve(void *context, const struct heapprof_raw_frame *frame, struct heapprof_named_frame *named) {
    (void)context;
    const struct function *function = (const struct function *)(uintptr_t)frame->code;
    snprintf(named->name, named->name_size, "%s", function->name);
    snprintf(named->file, named->file_size, "shop.toy");
    named->start_line = function->line;
    return 0;
}

static int label(void *context, uint64_t label, size_t i, char *key, size_t key_size, char *text, size_t text_size) {
    static const char *const kinds[] = {"allocate", "call", "call back", "return"};
    (void)context;
    if (i > 0 || label == 0) return 1;
    snprintf(key, key_size, "op");
    snprintf(text, text_size, "%s", kinds[label - 1]);
    return 0;
}

static void *thread(void *interpreter) {
    current = interpreter;
    run(current, &functions[0]);
    current = NULL;
    return NULL;
}

int main(void) {
    int (*add)(const struct heapprof_stack_provider *);
    *(void **)&add = dlsym(RTLD_DEFAULT, "heapprof_register_stack_provider");
    struct heapprof_stack_provider toy = {
        .version = HEAPPROF_STACK_PROVIDER_VERSION, .size = sizeof toy, .language = "toy",
        .capture = capture, .resolve = resolve, .label = label, .run_loop = __start_toy_loop, .run_loop_size = __stop_toy_loop - __start_toy_loop};
    if (add && add(&toy) != 0) return 1;
    pthread_t threads[3];
    static struct interpreter interpreters[3];
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, thread, &interpreters[i]);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        fputs(interpreters[i].record, stdout);
    }
    return 0;
}
