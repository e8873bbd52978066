//! Over other allocators, preloaded behind the hooks: their malloc, and their own operators new and delete.

use crate::built::library;
use crate::expectations::Sums;
use crate::harness::{command, root};
use crate::programs::compile_program;
use crate::stacks::read;

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
        let sums = Sums::of(&read(&out));
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
            // bad_alloc's own memory is allocated below the function that throws it, be it caught in there.
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
