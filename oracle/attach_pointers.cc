// Programs for oracle/attach_coverage.py that call malloc only through pointers which they have
// copied before somebody attaches: an expat parser, streams of zlib, SQLite with a table of methods,
// and an allocator with virtual functions. Works whenever it gets a line.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#ifdef EXPAT
#include <expat.h>
#endif
#ifdef ZLIB
#include <zlib.h>
#endif
#ifdef SQLITE
#include <sqlite3.h>
#endif

static void *(*volatile allocate)(size_t) = malloc;
static void *(*volatile resize)(void *, size_t) = realloc;
static void (*volatile release)(void *) = free;

#if defined(EXPAT)

static XML_Parser parser;
static void on_element(void *, const XML_Char *, const XML_Char **) {}
static void prepare() {
    XML_Memory_Handling_Suite methods = {allocate, resize, release};
    parser = XML_ParserCreate_MM(nullptr, &methods, nullptr);
}
static void work() {
    std::string text = "<all>";
    for (int i = 0; i < 500; i++)
        text += "<e" + std::to_string(i) + " a='" + std::to_string(i) + "'>text</e" + std::to_string(i) + ">";
    text += "</all>";
    XML_ParserReset(parser, nullptr);
    XML_SetStartElementHandler(parser, on_element);
    if (!XML_Parse(parser, text.data(), (int)text.size(), 1))
        exit(1);
}

#elif defined(ZLIB)

static void *stream_allocate(void *, unsigned count, unsigned size) { return allocate((size_t)count * size); }
static void stream_release(void *, void *block) { release(block); }
static void prepare() {}
static void work() {
    static unsigned char in[10000], out[20000], back[10000];
    for (int i = 0; i < 100; i++) {
        memset(in, i, sizeof in);
        z_stream stream{};
        stream.zalloc = stream_allocate, stream.zfree = stream_release;
        deflateInit(&stream, 6);
        stream.next_in = in, stream.avail_in = sizeof in;
        stream.next_out = out, stream.avail_out = sizeof out;
        deflate(&stream, Z_FINISH);
        unsigned len = stream.total_out;
        deflateEnd(&stream);
        inflateInit(&stream);
        stream.next_in = out, stream.avail_in = len;
        stream.next_out = back, stream.avail_out = sizeof back;
        inflate(&stream, Z_FINISH);
        inflateEnd(&stream);
        if (memcmp(in, back, sizeof in))
            exit(1);
    }
}

#elif defined(SQLITE)

static sqlite3 *database;
static void *table_allocate(int size) {
    size_t *block = (size_t *)allocate((size_t)size + 8);
    *block = (size_t)size;
    return block + 1;
}
static void table_release(void *block) { release((size_t *)block - 1); }
static void *table_resize(void *block, int size) {
    size_t *made = (size_t *)resize((size_t *)block - 1, (size_t)size + 8);
    *made = (size_t)size;
    return made + 1;
}
static int table_size(void *block) { return (int)((size_t *)block)[-1]; }
static int table_round(int size) { return (size + 7) & ~7; }
static int table_begin(void *) { return 0; }
static void table_end(void *) {}
static void run(const char *text) {
    if (sqlite3_exec(database, text, nullptr, nullptr, nullptr))
        exit(1);
}
static void prepare() {
    static sqlite3_mem_methods methods = {table_allocate, table_release, table_resize, table_size,
                                          table_round,    table_begin,   table_end,    nullptr};
    sqlite3_config(SQLITE_CONFIG_MALLOC, &methods);
    sqlite3_open(":memory:", &database);
    run("create table t (a, b)");
}
static void work() {
    for (int i = 0; i < 200; i++)
        run("insert into t values (random(), hex(randomblob(100)))");
    run("select count(*), max(b) from t");
    run("delete from t");
}

#else

struct Allocator {
    virtual void *make(size_t size) = 0;
    virtual void give(void *block) = 0;
    virtual ~Allocator() = default;
};
struct Copied : Allocator {
    void *(*allocates)(size_t) = allocate;
    void (*releases)(void *) = release;
    void *make(size_t size) override { return allocates(size); }
    void give(void *block) override { releases(block); }
};
static Allocator *volatile allocator;
static void *kept[1000];
static void prepare() {
    allocator = new Copied;
    for (int i = 0; i < 1000; i++)
        kept[i] = allocator->make(500);
}
static void work() {
    for (int i = 0; i < 1000; i++) {
        allocator->give(kept[i]);
        kept[i] = allocator->make(i + 1);
    }
}

#endif

int main() {
    prepare();
    char line[100];
    while (fgets(line, sizeof line, stdin)) {
        work();
        puts("done");
        fflush(stdout);
    }
}
