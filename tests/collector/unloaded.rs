//! Libraries that are closed while the process has no free file descriptor, so that its mappings
//! can't be read: another library at the same address has its own names.

use heapprof_tests::built::{build, have};
use heapprof_tests::fixtures::json;
use heapprof_tests::harness::{root, run};
use heapprof_tests::needs;

const PROGRAM: &str = r#"
    #include <dlfcn.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <sys/resource.h>
    #include <unistd.h>
    static void *kept[1000];
    static int count;
    static void *use(const char *name, int times) {
        void *library = dlopen(name, RTLD_NOW);
        if (!library) exit(90);
        void *(**entry)(size_t) = (void *(**)(size_t))dlsym(library, "plugin_entry");
        for (int i = 0; i < times; i++) kept[count++] = (*entry)(100);
        printf("%p\n", (void *)*entry);
        return library;
    }
    int main(int argc, char **argv) {
        struct rlimit few = {300, 300};
        int last = 0, file;
        setrlimit(RLIMIT_NOFILE, &few);
        void *one = use("libone.so", 30);
        // Code is looked at only after so much.
        if (argc > 1) for (int i = 0; i < 300000; i++) free(malloc(100));
        while ((file = open("/dev/null", O_RDONLY)) >= 0) last = file;
        dlclose(one);
        close(last);
        use("libtwo.so", 40);
        for (file = 3; file < 300; file++) close(file);
        return 0;
    }
"#;

#[test]
fn another_library_at_the_place_of_one_that_nobody_saw_go_has_its_own_names() {
    if !cfg!(target_arch = "x86_64") || !have(&["gcc"]) {
        return;
    }
    let built = build(PROGRAM, "gcc -O1 -g -Wl,-rpath,$ORIGIN");
    let source = root().join("tests/programs/lib_plugin.c");
    for name in ["one", "two"] {
        built.run(&format!(
            "gcc -O1 -g -shared -fPIC -DPLUGIN=plugin_{name} -DSHIFT=64 {} -o lib{name}.so",
            source.display()
        ));
    }
    let program = built.path("program").display().to_string();
    for more in [&[][..], &["more"]] {
        let folder = tempfile::tempdir().unwrap();
        let words = [
            &["record", "--exact", "-o", "p.pb.gz", "--", &program],
            more,
        ]
        .concat();
        let said = run(folder.path(), &words);
        assert_eq!(said.code, 0, "{}", said.err);
        let places: Vec<&str> = said.out.lines().collect();
        if places.len() != 2 || places[0] != places[1] {
            needs::cannot(&format!(
                "a loader that puts a library where another was: {places:?}"
            ));
            return;
        }
        let of = |name: &str| {
            let words = [
                "top",
                "-t",
                "inuse_objects",
                "--focus",
                name,
                "-f",
                "json",
                "p.pb.gz",
            ];
            json(folder.path(), &words)["net"].as_i64().unwrap()
        };
        assert_eq!(of("^plugin_two$"), 40, "{}", said.err);
        // The mappings may not have been read while the first library was loaded.
        assert!([0, 30].contains(&of("^plugin_one$")), "{}", said.err);
    }
}
