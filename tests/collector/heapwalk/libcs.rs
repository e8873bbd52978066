//! `heapwalk` with the libcs of other Debian releases: the same blocks in the same states as in
//! valgrind.

use std::path::{Path, PathBuf};

use heapprof_tests::built::{Built, build, have};

use super::{BEGIN, PROGRAMS, Waiting, of_valgrind, walked};

/// Builds a program for another release's libc, to run with that release's loader.
fn of_release(source: &str, root: &Path) -> Built {
    let of = |folder: &str| root.join(folder).display().to_string();
    let folders = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"].map(of);
    let libc = folders
        .iter()
        .find(|folder| Path::new(folder).join("libc.so.6").exists());
    let libc = libc.expect("no libc in this root");
    let compiler = format!(
        "gcc -O1 -g -pthread --sysroot={} -B{} -L{libc} -L{} -Wl,-rpath,{libc} \
         -Wl,--dynamic-linker,{}",
        root.display(),
        folders[1],
        folders[1],
        of("loader"),
    );
    build(source, &compiler)
}

#[test]
#[ignore = "needs HEAPPROF_LIBCS with what oracle/fetch-libcs.sh makes"]
fn libcs_of_other_releases() {
    if !have(&["gcc", "valgrind"]) {
        return;
    }
    let roots = std::env::var_os("HEAPPROF_LIBCS").expect("HEAPPROF_LIBCS is not set");
    let roots = std::fs::read_dir(roots)
        .unwrap()
        .map(|root| root.unwrap().path());
    let roots: Vec<PathBuf> = roots.filter(|root| root.join("loader").exists()).collect();
    assert!(roots.len() >= 3, "{roots:?}");
    for (name, source) in PROGRAMS.iter().filter(|(_, source)| !source.is_empty()) {
        let whole = format!("/* {name} */\n{BEGIN}{source}");
        let mut expected = of_valgrind(&build(&whole, "gcc -O1 -g -pthread").program);
        for root in &roots {
            let built = of_release(&whole, root);
            let found = walked(&Waiting::start(&built.program).target());
            // pthread_create's own block, which it may still free, counts as possibly lost in
            // valgrind.
            if source.contains("pthread_create") {
                expected[2] = found[2];
            }
            let release = root.file_name().unwrap().display();
            assert_eq!(found, expected, "{name}: {release}");
        }
    }
}
