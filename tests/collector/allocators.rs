//! Recording over other allocators, preloaded after the hooks: their malloc, and their own
//! operators new and delete.

use crate::programs::compile_program;
use crate::stacks::read;
use heapprof_tests::built::{build, have, library};
use heapprof_tests::expectations::Sums;
use heapprof_tests::harness::{command, ok, root};

const ALLOCATORS: [&str; 2] = ["libjemalloc.so.2", "libtcmalloc.so.4"];

#[test]
fn operators_of_another_allocator_are_counted() {
    let Some(built) = compile_program("linkage_operators.cc", &[]) else {
        return;
    };
    let installed = ALLOCATORS.iter().filter_map(|name| library(name));
    for library in installed.map(Some).chain([None]) {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("out.pb.gz");
        let mut record = command(root());
        if let Some(library) = &library {
            record.env("LD_PRELOAD", library);
        }
        record
            .args(["record", "--exact", "-o"])
            .arg(&out)
            .arg("--")
            .arg(&built[0]);
        let output = record.output().unwrap();
        let name = library.as_deref().unwrap_or("glibc");
        assert_eq!(output.status.code(), Some(0), "{name}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, "caught 1, null 1\n", "{name}");
        let sums = Sums::from_profile(&read(&out));
        for (function, objects, bytes, left) in [
            ("operators_array", 101, 15_000, 5000),
            ("operators_one", 100, 400, 0),
            ("operators_aligned", 100, 12_800, 0),
            ("operators_nothrow", 1, 300, 300),
        ] {
            let value = |kind| sums.value(function, kind).unwrap();
            let found = (
                value("alloc_objects"),
                value("alloc_space"),
                value("inuse_space"),
            );
            // The memory of bad_alloc itself is allocated below the throwing function, even if the
            // exception is caught in that function.
            let thrown = i64::from(["operators_array", "operators_nothrow"].contains(&function));
            let objects = objects..=objects + thrown;
            assert!(objects.contains(&found.0), "{name}: {function}: {found:?}");
            assert!(
                found.1 >= bytes && found.1 <= bytes + 512 * thrown,
                "{name}: {function}: {found:?}"
            );
            assert_eq!(found.2, left, "{name}: {function}");
        }
    }
}

/// An allocator may define only the operators that throw. Then the C++ library defines the others,
/// and these call the operators of the allocator.
#[test]
fn an_allocator_with_half_of_the_operators_does_not_go_in_circles() {
    if !have(&["g++"]) {
        return;
    }
    let allocator = r#"
#include <cstdlib>
#include <new>
extern "C" {
void *__libc_malloc(size_t); void __libc_free(void *); void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t); void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) { return __libc_malloc(n); }
void free(void *p) { __libc_free(p); }
void *calloc(size_t a, size_t b) { return __libc_calloc(a, b); }
void *realloc(void *p, size_t n) { return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { return __libc_memalign(a, n); }
}
void *operator new(size_t n) { void *p = malloc(n); if (!p) throw std::bad_alloc(); return p; }
void *operator new[](size_t n) { return operator new(n); }
void operator delete(void *p) noexcept { free(p); }
void operator delete[](void *p) noexcept { free(p); }
"#;
    let program = "#include <string>\nint main() { char *p = new char[5000]; std::string s(1000, \
                   'x'); volatile auto q = new (std::nothrow) char[3000]; (void)q; delete[] p; \
                   return s.size() != 1000; }\n";
    let (allocator, program) = (
        build(allocator, "g++ -O1 -shared -fPIC"),
        build(program, "g++ -g -O0"),
    );
    for mode in ["--exact", "--no-symbolize"] {
        let mut record = command(program.folder.path());
        record.env("LD_PRELOAD", &allocator.program);
        record.args(["record", mode, "-o", "p.pb.gz", "./program"]);
        let output = record.output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let mut record = command(program.folder.path());
    record.env("LD_PRELOAD", &allocator.program);
    record.args(["record", "--exact", "-o", "p.pb.gz", "./program"]);
    assert!(record.output().unwrap().status.success());
    let sums = Sums::from_profile(&read(&program.path("p.pb.gz")));
    let main = |kind| sums.value("main", kind).unwrap();
    assert_eq!(main("inuse_space"), 3000);
    assert!(main("alloc_space") >= 9000, "{}", main("alloc_space"));
}

/// glibc's own malloc debugging is a preloaded library. It finds an overflow with our library
/// before it as well as without.
#[test]
fn malloc_debugging_stays_on() {
    if !have(&["gcc"]) {
        return;
    }
    let source = r"
#include <stdlib.h>
#include <string.h>
int main(void) {
    char *volatile p = malloc(24);
    memset(p, 1, 26);
    free(p);
    return 0;
}
";
    let built = build(source, "gcc -O1 -fno-builtin");
    let run = |preload: String| {
        let mut command = std::process::Command::new(&built.program);
        let output = command
            .env("LD_PRELOAD", preload)
            .env("MALLOC_CHECK_", "3")
            .output()
            .unwrap();
        std::os::unix::process::ExitStatusExt::signal(&output.status)
    };
    let debug = "libc_malloc_debug.so.0";
    let bare = run(debug.to_string());
    assert_eq!(
        bare,
        run(format!("{} {debug}", ok(&["preload-path"]).trim()))
    );
}
