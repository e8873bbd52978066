//! Functions without a linker name are distinguished by the scopes around them.

use heapprof_tests::built::{build, have};
use heapprof_tests::harness;

/// Lambdas and functions private to a unit have only `operator()` or `h` as their name, so without
/// scopes unrelated functions would be added up. They are tested inlined and not, in one file,
/// split, shared by dwz and optimized at link time.
#[test]
fn functions_without_linker_names_are_named_with_what_stands_around_them() {
    if !have(&["g++", "readelf", "nm", "dwz"]) {
        return;
    }
    let text = r#"
#include <cstdlib>
#define KEEP(p) asm volatile("" : "+r"(p))
namespace a {
    char *f(int n) { auto get = [n](int k) { char *p = (char *)malloc(n + k); KEEP(p); return p; }; char *p = get(1); KEEP(p); return p; }
    class Box { struct Inner { static inline char *get(int n) { char *p = (char *)malloc(n); KEEP(p); return p; } };
        public: char *put(int n) { char *p = Inner::get(n); KEEP(p); return p; } };
}
namespace b {
    static inline char *h(int n) { char *p = (char *)malloc(n); KEEP(p); return p; }
    namespace { inline char *hidden(int n) { char *p = (char *)malloc(n); KEEP(p); return p; } }
    char *f(int n) { auto get = [](int k) { char *p = (char *)malloc(k); KEEP(p); return p; }; char *p = get(n); KEEP(p); return p; }
    extern "C" inline char *plain(int n) { char *p = (char *)malloc(n); KEEP(p); return p; }
}
int main() { char *p = a::f(1); KEEP(p); p = b::h(2); KEEP(p); p = b::hidden(3); KEEP(p); p = b::f(4); KEEP(p); p = b::plain(5);
    KEEP(p); a::Box box; p = box.put(6); KEEP(p); }
"#;
    for (compile, shared) in [
        ("g++ -g -O2", false),
        ("g++ -g -O2 -gdwarf-4", false),
        ("g++ -g -O2 -gsplit-dwarf", false),
        ("g++ -g -O2 -flto", false),
        ("g++ -g -O2", true),
    ] {
        let built = build(text, compile);
        if shared {
            built.run("cp program other");
            built.run("dwz -m shared.debug program other");
        }
        let recorded = harness::run(
            built.folder.path(),
            &["record", "--exact", "-o", "p.pb.gz", "./program"],
        );
        assert_eq!(recorded.code, 0, "{}", recorded.err);
        let file = std::fs::File::open(built.path("p.pb.gz")).unwrap();
        let profile = heapprof_profile::decode(file).unwrap();
        let names: Vec<&str> = profile
            .function
            .iter()
            .map(|f| profile.text(f.name))
            .collect();
        for name in [
            "a::f(int)::{lambda}::operator()",
            "b::f(int)::{lambda}::operator()",
            "b::h",
            "b::(anonymous namespace)::hidden",
            "plain",
        ] {
            assert!(
                names.contains(&name),
                "{compile} {shared}: {name}: {names:?}"
            );
        }
        let inner = |name: &&str| name.starts_with("a::Box::Inner::get");
        assert!(names.iter().any(inner), "{compile}: {names:?}");
        assert!(!names.contains(&"operator()"), "{compile}: {names:?}");
    }
}

/// gcc separates the body of a function from its declaration, and only the declaration is in the
/// namespace.
#[test]
fn lambdas_of_functions_that_are_defined_apart() {
    if !have(&["g++"]) {
        return;
    }
    let text = r#"
#include <cstdlib>
void *volatile sink;
#define F void f(int n) { auto l = [&](int q) { return malloc(q + 1000); }; sink = l(n); }
#define ALONE __attribute__((noinline))
namespace red { static ALONE F }
namespace blue { static ALONE F }
namespace { struct K { ALONE F }; }
int main(int argc, char **) { red::f(argc); blue::f(argc); K().f(argc); }
"#;
    let built = build(text, "g++ -O1 -g");
    let words = ["record", "--exact", "-o", "p.pb.gz", "./program"];
    assert_eq!(harness::run(built.folder.path(), &words).code, 0);
    let top = harness::run(built.folder.path(), &["top", "--full-names", "p.pb.gz"]).out;
    for name in ["red::f", "blue::f", "(anonymous namespace)::K::f"] {
        assert!(
            top.contains(&format!("  {name}::{{lambda}}::operator()")),
            "{name}: {top}"
        );
    }
}
