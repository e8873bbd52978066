//! Files that `heapprof convert symbolize` may replace if no output is given.

use heapprof_tests::harness;

/// A file is not replaced if something would be lost: another tool's dump, or the other parts of a
/// file. A pipe can't be replaced.
#[test]
fn only_pprof_profiles_are_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let samples = harness::sample_profiles();
    for (sample, format) in [
        ("jemalloc/shelf.heap", "jemalloc"),
        ("gperftools/shelf.heap", "gperftools"),
        ("leaksanitizer/pantry.unsymbolized.txt", "leaksanitizer"),
    ] {
        let sample = samples.join("foreign").join(sample);
        let bytes = std::fs::read(sample).unwrap();
        std::fs::write(folder.join("dump"), &bytes).unwrap();
        let run = harness::run(folder, &["symbolize", "dump"]);
        assert_eq!(
            (run.code, run.err),
            (
                2,
                format!(
                    "heapprof: dump: has the format {format} and would become a pprof profile; \
                     give a file for the result with -o\n"
                )
            )
        );
        assert_eq!(std::fs::read(folder.join("dump")).unwrap(), bytes);
        let run = harness::run(folder, &["symbolize", "dump", "-o", "named.pb.gz"]);
        assert_eq!(run.code, 0, "{}", run.err);
        let run = harness::run(folder, &["symbolize", "dump#last"]);
        assert_eq!(
            (run.code, run.err.as_str()),
            (
                2,
                "heapprof: dump#last: is a part of dump; give a file for the result with -o\n"
            )
        );
    }
    let profile = std::fs::File::open(samples.join("programs/basket.pb.gz")).unwrap();
    let mut command = harness::command(folder);
    let output = command
        .args(["symbolize", "/dev/stdin"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .and_then(|mut child| {
            let mut stdin = child.stdin.take().unwrap();
            std::io::copy(&mut &profile, &mut stdin)?;
            drop(stdin);
            child.wait_with_output()
        })
        .unwrap();
    assert!(output.status.success());
    let read = heapprof_profile::decode(&output.stdout[..]).unwrap();
    assert_eq!(read.location.len(), 4);
}
