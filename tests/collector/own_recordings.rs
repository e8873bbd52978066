//! Recordings without names, which get them when their user reads them.

use heapprof_tests::built::{build, have};
use heapprof_tests::harness;

/// A recording without names gets them when it is read, if it is this user's own, and if the files
/// are those that ran.
#[test]
fn an_own_recording_has_names_when_it_is_read() {
    if !have(&["gcc"]) {
        return;
    }
    const PROGRAM: &str = r#"
        #include <stdlib.h>
        static void *volatile kept;
        __attribute__((noinline)) void keep_it(void) { kept = malloc(100000); }
        int main(void) { keep_it(); return 0; }
    "#;
    let built = build(PROGRAM, "gcc -O1 -g");
    let place = tempfile::tempdir().unwrap();
    let program = built.program.to_str().unwrap();
    let words = [
        "record",
        "--exact",
        "--no-symbolize",
        "-q",
        "-o",
        "p.pb.gz",
        "--",
        program,
    ];
    let recorded = harness::run(place.path(), &words);
    assert_eq!(recorded.code, 0, "{}", recorded.err);
    let file = place.path().join("p.pb.gz");
    let top = || harness::run(place.path(), &["top", "p.pb.gz"]).out;
    assert!(top().contains("keep_it"), "{}", top());
    // Not from standard input, which may be anybody's.
    let stdin = harness::command(place.path())
        .args(["top", "-"])
        .stdin(std::fs::File::open(&file).unwrap())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&stdin.stdout);
    assert!(!text.contains("keep_it") && text.contains("0x"), "{text}");
    // Not if the file belongs to another user.
    if harness::is_root() {
        std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
        assert!(!top().contains("keep_it"), "{}", top());
        std::os::unix::fs::chown(&file, Some(0), None).unwrap();
    }
    // Not if another program is there now.
    let other = build(&PROGRAM.replace("keep_it", "hold_it"), "gcc -O1 -g");
    std::fs::copy(&other.program, &built.program).unwrap();
    let text = top();
    assert!(
        !text.contains("keep_it") && !text.contains("hold_it"),
        "{text}"
    );
}
