//! pprof's views of a program's code: `/source` and `/disasm` have the rows of `-weblist` and
//! `-disasm`.

use std::fs;
use std::path::Path;
use std::process::Command;

use heapprof_profile::{Function, Line, Mapping, ProfileBuilder, encode};
use heapprof_symbolize::layout::read_layout;
use heapprof_tests::harness::ok;
use heapprof_tests::needs::have;

use super::pprof::{page, parts, plain, sample, serve};

/// Compiles a program and writes a profile of its function `made`, whose name and source are
/// hostile to a page. Returns the profile's path.
fn profile(folder: &Path) -> String {
    let source = "/* <b>&'\" */ int made(int x) {\n    return x * 3;\n}\n\
                  int main(void) { return made(1); }\n";
    fs::write(folder.join("made<i>.c"), source).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O0", "-g", "-o", "made", "made<i>.c"]);
    assert!(compiler.current_dir(folder).status().unwrap().success());
    let program = folder.join("made").display().to_string();
    let layout = read_layout(Path::new(&program), Some("made")).unwrap();
    let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
    let file = folder.join("made<i>.c").display().to_string();
    let [filename, name, file] = [&program, "made", &file].map(|text| builder.text(text));
    // The file is not loaded: the mapping is the whole address space.
    let mapping = builder.mapping(Mapping {
        memory_limit: u64::MAX,
        filename,
        has_functions: true,
        ..Mapping::default()
    });
    let function = builder.function(Function {
        name,
        system_name: name,
        filename: file,
        ..Function::default()
    });
    let line = Line {
        function,
        line: 2,
        column: 0,
    };
    let location = builder.location(Some(mapping), layout.symbol.unwrap(), false, &[line]);
    builder.add_sample(vec![location], &[1000], &mut []);
    let mut bytes = Vec::new();
    encode(&builder.finish(), &mut bytes).unwrap();
    let path = folder.join("made.pb.gz");
    fs::write(&path, bytes).unwrap();
    path.display().to_string()
}

/// Returns the text of a part of a page without tags, as words. The page of `-weblist` escapes the
/// places of instructions twice, as pprof does.
fn words(html: &str) -> Vec<String> {
    let text: String = html
        .split('<')
        .map(|part| part.split_once('>').map_or(part, |(_, text)| text))
        .collect();
    let text = plain(&plain(&text))
        .replace("&#34;", "\"")
        .replace("&#39;", "'");
    text.split_whitespace().map(str::to_string).collect()
}

#[test]
fn code_is_that_of_the_command_line() {
    if !have(&["cc", "objdump", "nm", "addr2line"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let profile = profile(folder.path());
    let server = serve(folder.path(), &["-symbolize=none", &profile]);
    let disassembled = ok(&["pprof", "-symbolize=none", "-disasm=made", &profile]);
    let shown = page(&server, "/disasm", "f=made");
    let shown = plain(parts(&shown, "<pre id=\"text\">", "</pre>")[0]);
    assert_eq!(shown, disassembled);

    let file = folder.path().join("list.html").display().to_string();
    let output = format!("-output={file}");
    ok(&[
        "pprof",
        "-symbolize=none",
        "-weblist=made",
        &output,
        &profile,
    ]);
    let printed = fs::read_to_string(&file).unwrap();
    let shown = page(&server, "/source", "f=made");
    let shown = parts(&shown, "<section class=\"listing\">", "</section>");
    let printed: Vec<&str> = printed.split("<h2>").skip(1).collect();
    assert_eq!((shown.len(), printed.len()), (1, 1));
    let shown = words(shown[0]);
    assert_eq!(shown, words(&format!("<h2>{}", printed[0])));
    assert!(shown.contains(&"return".to_string()), "{shown:?}");
    // What a setting changes is not said to have no effect.
    for (setting, flag) in [("intel=t", "-intel_syntax"), ("mean=t", "-mean")] {
        let changed = ok(&["pprof", "-symbolize=none", "-disasm=made", flag, &profile]);
        assert_ne!(changed, disassembled, "{setting}");
        let shown = page(&server, "/disasm", &format!("f=made&{setting}"));
        assert!(!shown.contains("no effect"), "{setting}: {shown}");
        let text = plain(parts(&shown, "<pre id=\"text\">", "</pre>")[0]);
        assert_eq!(text, changed, "{setting}");
    }
    let sorted = page(&server, "/disasm", "f=made&sort=cum");
    assert!(sorted.contains("sort: no effect on this view"), "{sorted}");
    let names = page(&server, "/source", "f=made%3Ci");
    assert!(!names.contains("<i>") && !names.contains("<b>"), "{names}");
}

/// Without the binary, the lines still have values, and a note says what is missing.
#[test]
fn code_without_a_binary() {
    let folder = tempfile::tempdir().unwrap();
    let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
    let binary = folder.path().join("gone").display().to_string();
    let [filename, name] = [&binary, "made"].map(|text| builder.text(text));
    let mapping = builder.mapping(Mapping {
        memory_limit: u64::MAX,
        filename,
        ..Mapping::default()
    });
    let function = builder.function(Function {
        name,
        system_name: name,
        ..Function::default()
    });
    let line = Line {
        function,
        line: 2,
        column: 0,
    };
    let location = builder.location(Some(mapping), 0x1000, false, &[line]);
    builder.add_sample(vec![location], &[1000], &mut []);
    let mut bytes = Vec::new();
    encode(&builder.finish(), &mut bytes).unwrap();
    let profile = folder.path().join("gone.pb.gz");
    fs::write(&profile, bytes).unwrap();
    let server = serve(
        folder.path(),
        &["-symbolize=none", &profile.display().to_string()],
    );
    let shown = page(&server, "/source", "f=made");
    let notes = parts(&shown, "<ul id=\"notes\">", "</ul>")[0];
    assert!(notes.contains("gone: no such file or directory"), "{notes}");
    let listing = words(parts(&shown, "<section class=\"listing\">", "</section>")[0]).join(" ");
    assert!(listing.contains("2 1000B 1000B ???"), "{listing}");
    let reply = server.get("/disasm", "f=made");
    assert_eq!(reply.status, 400);
    let why = reply.error();
    let (what, cause) = why.split_once("; ").unwrap();
    assert_eq!(what, "no matches found for regexp made");
    assert!(cause.contains("gone: no such file or directory"), "{why}");
    for view in ["/source", "/disasm"] {
        let go = serve(folder.path(), &[&sample("valid/go.leaky.after.pb.gz")]);
        assert_eq!(go.get(view, "f=nobody").status, 400, "{view}");
        assert_eq!(go.get(view, "f=(").status, 400, "{view}");
    }
}
