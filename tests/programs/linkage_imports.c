// scenario: linkage: the program exports each function that the library takes from libc, and counts who calls them
// build: gcc -O1 -g -fno-builtin -fcf-protection=none -pthread -rdynamic
// variant: pie -fPIE -pie
// variant: fixed -fno-pie -no-pie
// needs: x86-64
//
// Each of them takes a lock, allocates while it has it, and goes on to libc's. If the profiler
// called one inside an allocation, it would wait for itself, and the lock says so instead. If it
// called one anywhere, the count would not be the program's own.
#include "expect.h"
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

// tests/imports.txt has the same functions.
#define EACH(X) \
    X(_IO_list_lock) X(_IO_list_resetlock) X(_IO_list_unlock) X(__cxa_at_quick_exit) X(__cxa_atexit) \
    X(__cxa_finalize) X(__errno_location) X(__libc_calloc) X(__libc_free) X(__libc_malloc) \
    X(__libc_memalign) X(__libc_pvalloc) X(__libc_realloc) X(__libc_valloc) X(__sigaction) \
    X(__xpg_strerror_r) X(_dl_find_object) X(bcmp) X(clock_gettime) X(close) X(dl_iterate_phdr) \
    X(dladdr) X(dlerror) X(dlopen) X(dlsym) X(dlvsym) X(fcntl) X(fstat) X(fstat64) X(getauxval) \
    X(getcwd) X(getenv) X(geteuid) X(gethostname) X(getpid) X(getppid) X(getrandom) X(getrlimit) \
    X(gettid) X(lseek64) X(memcmp) X(memcpy) X(memmove) X(memset) X(open64) X(pthread_attr_init) \
    X(pthread_attr_setstacksize) X(pthread_create) X(pthread_detach) X(pthread_getspecific) \
    X(pthread_join) X(pthread_key_create) X(pthread_self) X(pthread_setspecific) \
    X(pthread_sigmask) X(pthread_tryjoin_np) X(raise) X(read) X(readlink) X(realpath) \
    X(sched_yield) X(sigaddset) X(sigemptyset) X(sigfillset) X(socket) X(stat64) X(statx) \
    X(strlen) X(write) X(mmap64) X(munmap)

enum {
#define NUMBER(name) N_##name,
    EACH(NUMBER) COUNT
};

static const char *const names[COUNT] = {
#define NAME(name) #name,
    EACH(NAME)
};

void *real[COUNT];
static long calls[COUNT];
static uintptr_t owner;

static int is_same(const char *a, const char *b) {
    while (*a && *a == *b) a++, b++;
    return *a == *b;
}

static long call(long number, long a, long b, long c) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
    return result;
}

static void fails(const char *what, const char *name) {
    char line[200];
    size_t at = text_put(line, 0, "not so: ");
    at = text_put(line, at, what);
    at = text_put(line, at, name);
    line[at++] = '\n';
    call(SYS_write, 1, (long)line, (long)at);
    call(SYS_exit_group, 99, 0, 0);
}

// The default version of a function, as an object of glibc's defines it.
static void *defined_by(struct link_map *map, const char *name) {
    const Elf64_Sym *symbols = 0;
    const char *texts = 0;
    const uint32_t *table = 0;
    const uint16_t *versions = 0;
    for (Elf64_Dyn *entry = map->l_ld; entry->d_tag; entry++) {
        uintptr_t at = entry->d_un.d_ptr;
        if (at < map->l_addr) at += map->l_addr;
        if (entry->d_tag == DT_SYMTAB) symbols = (void *)at;
        if (entry->d_tag == DT_STRTAB) texts = (void *)at;
        if (entry->d_tag == DT_GNU_HASH) table = (void *)at;
        if (entry->d_tag == DT_VERSYM) versions = (void *)at;
    }
    if (!symbols || !texts || !table || !versions) return 0;
    uint32_t hash = 5381, buckets = table[0], first = table[1], words = table[2];
    for (const char *at = name; *at; at++) hash = hash * 33 + (unsigned char)*at;
    const uint32_t *bucket = table + 4 + 2 * words, *chain = bucket + buckets;
    for (uint32_t i = bucket[hash % buckets]; i >= first; i++) {
        const Elf64_Sym *symbol = &symbols[i];
        if ((chain[i - first] | 1) == (hash | 1) && symbol->st_shndx && !(versions[i] & 0x8000) &&
            is_same(texts + symbol->st_name, name)) {
            void *found = (void *)(map->l_addr + symbol->st_value);
            return ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC ? ((void *(*)(void))found)() : found;
        }
        if (chain[i - first] & 1) break;
    }
    return 0;
}

static int ends_with(const char *text, const char *end) {
    const char *from = text;
    for (; *text; text++)
        if (*text == '/') from = text + 1;
    return is_same(from, end);
}

static void *find(int number) {
    static const char *const objects[] = {"libc.so.6", "ld-linux-x86-64.so.2", "libpthread.so.0", "libdl.so.2"};
    for (struct link_map *map = _r_debug.r_map; map; map = map->l_next)
        for (int i = 0; i < 4; i++)
            if (ends_with(map->l_name, objects[i])) {
                void *found = defined_by(map, names[number]);
                if (found) return found;
            }
    // Nothing of this program's calls what this libc does not have.
    return 0;
}

// Where the function goes on.
__attribute__((used)) void *enters(int number) {
    uintptr_t own = (uintptr_t)__builtin_thread_pointer(), free_one = 0;
    if (__atomic_load_n(&owner, __ATOMIC_ACQUIRE) == own) fails("called inside of another: ", names[number]);
    while (!__atomic_compare_exchange_n(&owner, &free_one, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        free_one = 0;
        call(SYS_sched_yield, 0, 0, 0);
    }
    calls[number]++;
    if (!real[number] && !(real[number] = find(number))) fails("not in libc: ", names[number]);
    void *block = malloc(50 + number);
    keep(block);
    free(block);
    __atomic_store_n(&owner, 0, __ATOMIC_RELEASE);
    return real[number];
}

// All are exported, whatever their arguments are: these stay in their registers.
#define EXPORT(name) \
    ".globl " #name "\n.type " #name ",@function\n" #name ":\n" \
    "push %rdi\n push %rsi\n push %rdx\n push %rcx\n push %r8\n push %r9\n push %rax\n" \
    "mov $number, %edi\n call enters\n mov %rax, %r11\n" \
    "pop %rax\n pop %r9\n pop %r8\n pop %rcx\n pop %rdx\n pop %rsi\n pop %rdi\n jmp *%r11\n" \
    ".size " #name ", . - " #name "\n.set number, number + 1\n"
__asm__(".text\n.set number, 0\n" EACH(EXPORT));

static struct tally by_hoard = {.name = "hoard"};

ALLOCATING void *hoard(size_t size) {
    void *p = malloc(size);
    keep(p);
    tally_alloc(&by_hoard, size);
    return p;
}

static void on_signal(int signal) { (void)signal; }

static void *thread(void *key) {
    char text[100], other[100];
    struct timespec now;
    for (int i = 0; i < 500; i++) {
        void *p = hoard(100 + i);
        REQUIRE(clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_sec > 0);
        REQUIRE(pthread_setspecific(*(pthread_key_t *)key, p) == 0);
        REQUIRE(pthread_getspecific(*(pthread_key_t *)key) == p);
        memset(text, 'x', sizeof text);
        memcpy(other, text, sizeof text);
        memmove(other + 1, other, 50);
        REQUIRE(memcmp(text, other, sizeof text) == 0);
        sched_yield();
        if (i % 2) {
            tally_free(&by_hoard, 100 + i);
            free(p);
        }
    }
    REQUIRE(pthread_setspecific(*(pthread_key_t *)key, 0) == 0);
    return (void *)pthread_self();
}

static void use_files(void) {
    char text[4096];
    struct stat found;
    for (int i = 0; i < 100; i++) {
        int file = open64("/proc/self/comm", O_RDONLY | O_CLOEXEC);
        REQUIRE(file >= 0 && fstat(file, &found) == 0 && fcntl(file, F_GETFD) == FD_CLOEXEC);
        REQUIRE(read(file, text, sizeof text) > 0 && lseek64(file, 0, SEEK_SET) == 0);
        REQUIRE(close(file) == 0);
        char *path = realpath("/proc/self/..", 0);
        REQUIRE(path && strlen(path) == 5 && readlink("/proc/self/exe", text, sizeof text) > 0);
        free(path);
        REQUIRE(getcwd(text, sizeof text));
        REQUIRE(getenv("no such variable") == 0);
        void *map = mmap64(0, 1 << 16, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        REQUIRE(map != MAP_FAILED && munmap(map, 1 << 16) == 0);
    }
}

static void use_loader(void) {
    Dl_info info;
    for (int i = 0; i < 50; i++) {
        void *handle = dlopen("libm.so.6", RTLD_NOW);
        REQUIRE(handle && dlsym(handle, "cos") && dladdr(dlsym(handle, "sin"), &info));
        REQUIRE(!dlsym(handle, "no such function") && dlerror());
        dlclose(handle);
    }
}

int main(void) {
    pthread_key_t key;
    pthread_t threads[4];
    sigset_t set;
    REQUIRE(pthread_key_create(&key, 0) == 0);
    for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], 0, thread, &key) == 0);
    signal(SIGUSR1, on_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    REQUIRE(pthread_sigmask(SIG_BLOCK, &set, 0) == 0 && raise(SIGUSR1) == 0);
    use_files();
    use_loader();
    for (int i = 0; i < 4; i++) {
        void *result;
        REQUIRE(pthread_join(threads[i], &result) == 0 && (pthread_t)result == threads[i]);
    }
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        use_files();
        _exit(getpid() == gettid() ? 9 : 8);
    }
    int status;
    REQUIRE(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 9);
    // Who else called them is told by what bare and recorded runs print.
    for (int i = 0; i < COUNT; i++) printf("%s %ld\n", names[i], calls[i]);
    expect_tally(&by_hoard);
    return 0;
}
