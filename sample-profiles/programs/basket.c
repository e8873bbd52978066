/* What `heapprof symbolize` is shown with: a list that is filled through an inlined function and never freed. */
#include <stdlib.h>
#include <string.h>

struct apple {
    struct apple *next;
    char *name;
};

static inline struct apple *pick(const char *name) {
    struct apple *apple = malloc(sizeof *apple);
    apple->name = strdup(name);
    return apple;
}

__attribute__((noinline)) struct apple *fill(struct apple *basket, int count) {
    for (int i = 0; i < count; i++) {
        struct apple *apple = pick("boskoop");
        apple->next = basket;
        basket = apple;
    }
    return basket;
}

int main(void) {
    struct apple *basket = fill(0, 1000);
    return basket->name[0] == 'x';
}
