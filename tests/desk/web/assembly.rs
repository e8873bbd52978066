//! Instructions from a server: only one with `--source` opens the files that a profile names.

use std::path::Path;

use heapprof_tests::elf_file::{AARCH64, ElfFile};
use heapprof_tests::fixtures::{bytes_in_use, json, write};
use heapprof_tests::harness::sample_profiles;
use serde_json::Value;

use super::{Reply, Server};

/// The code of a function that calls the one behind it: the place of the call is 4.
const CODE: &[u8] = b"\xfd\x7b\xbf\xa9\x02\x00\x00\x94\xc0\x03\x5f\xd6";

/// Encodes a value of a parameter.
fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02x}")).collect()
}

/// Writes a profile `p.pb.gz` of a function, and the file `program` with its code.
fn write_profile(folder: &Path, function: &str, callee: &str) -> String {
    let file = ElfFile {
        processor: AARCH64,
        build_id: [1, 2, 3, 4],
        functions: &[(function, CODE), (callee, b"\xc0\x03\x5f\xd6")],
        labels: &[],
        has_symbols: true,
    };
    let path = folder.join("program");
    std::fs::write(&path, file.bytes()).unwrap();
    let profile = file.profile(&path, &[(4, function, "shop.c", 2, 4096)]);
    write(folder, "p.pb.gz", &profile);
    folder.join("p.pb.gz").to_str().unwrap().to_string()
}

fn help(reply: &Reply) -> String {
    let body: Value = serde_json::from_slice(&reply.body).unwrap();
    body["error"]["help"].as_str().unwrap().to_string()
}

/// The answer is what the command prints, with the filters of the request and the source lines in
/// the server's folders.
#[test]
fn instructions_are_those_of_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let profile = write_profile(folder, "sum", "allocate");
    std::fs::create_dir(folder.join("src")).unwrap();
    std::fs::write(folder.join("src/shop.c"), "int sum(void) {\n\tgrow();\n}\n").unwrap();
    let places = folder.join("src");
    let places = ["--source-path", places.to_str().unwrap()];
    let server = Server::start(&[&["--source"], &places[..], &[&profile]].concat());
    let list = ["list", "--format", "json", "^sum$", &profile];
    for (query, words) in [
        ("asm=1", &["--asm"][..]),
        ("asm=", &["--asm"]),
        ("asm=0", &[]),
        (
            "asm=1&sample_type=inuse_space&own_code=1&no_inlines=1&focus=s.m",
            &[
                "--asm",
                "-t",
                "inuse_space",
                "--own-code",
                "--no-inlines",
                "--focus",
                "s.m",
            ],
        ),
    ] {
        let found = server.json("list", &format!("regex=^sum$&{query}"));
        let printed = json(folder, &[&list[..], &places, words].concat());
        assert_eq!(found, printed, "{query}");
        let lines = found["rows"][0]["lines"].as_array().unwrap();
        let allocating = lines.iter().find(|line| line["line"] == 2).unwrap();
        assert_eq!(allocating["source"], "\tgrow();");
        let call = &allocating["instructions"][0];
        match words.is_empty() {
            true => assert_eq!(*call, Value::Null),
            false => assert_eq!(
                (&call["text"], &call["flat"]),
                (&"bl allocate".into(), &4096.into())
            ),
        }
    }
    let nothing = server.get("/api/v1/list", "regex=^sum$&asm=1&ignore=sum");
    assert_eq!(nothing.status, 400);
    assert!(nothing.error().contains("matches \"^sum$\""));
    let other = server.get("/api/v1/top", "asm=1");
    assert_eq!(other.error(), "top has no parameter \"asm\"");
}

/// Without `--source`, no binary is opened, and the page has no button.
#[test]
fn a_server_without_source_opens_no_binary() {
    let folder = tempfile::tempdir().unwrap();
    let profile = write_profile(folder.path(), "sum", "allocate");
    let mark = b"name=\"heapprof-assembly\"";
    let has_mark = |server: &Server| {
        let page = server.get("/", "").body;
        page.windows(mark.len()).any(|part| part == mark)
    };
    let closed = Server::start(&[&profile]);
    let refused = closed.get("/api/v1/list", "regex=^sum$&asm=1");
    assert_eq!(
        (refused.status, &*refused.error(), &*help(&refused)),
        (
            403,
            "This server opens no binaries, and instructions are read from them",
            "Start heapprof web with --source"
        )
    );
    let listed = closed.json("list", "regex=^sum$&asm=0");
    let why = "source files are read with --source only";
    assert_eq!(listed["rows"][0]["no_source"], why);
    assert!(!has_mark(&closed));
    let open = Server::start(&["--source", &profile]);
    assert_eq!(open.get("/api/v1/list", "regex=^sum$&asm=1").status, 200);
    assert!(has_mark(&open));
    let of_pprof = super::pprof::serve(folder.path(), &[&profile]);
    let refused = of_pprof.get("/api/v1/list", "regex=^sum$&asm=1");
    assert_eq!(refused.status, 403);
    assert!(!has_mark(&of_pprof));
}

/// A profile that was sent may name any file. One that is no program gets a line, whatever it is.
#[test]
fn files_without_code_get_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let profile = write_profile(folder, "sum", "allocate");
    let server = Server::start(&["--source", &profile]);
    let program = folder.join("program");
    let whole = std::fs::read(&program).unwrap();
    // Returns the only reason why there are no instructions.
    let reason = |server: &Server| {
        let found = server.json("list", "regex=^sum$&asm=1");
        let row = &found["rows"][0];
        assert_eq!(row["code"], Value::Array(Vec::new()));
        assert_eq!(row["flat"].as_i64().unwrap(), row["lines"][0]["flat"]);
        assert_eq!(row["missing"].as_array().unwrap().len(), 1);
        row["missing"][0].as_str().unwrap().to_string()
    };
    let ask = || reason(&server);
    let found = server.json("list", "regex=^sum$&asm=1");
    assert_eq!(found["rows"][0]["missing"], Value::Null);
    let mut other_id = whole.clone();
    let id = other_id
        .windows(8)
        .position(|part| part == b"GNU\0\x01\x02\x03\x04");
    other_id[id.unwrap() + 7] = 9;
    for (content, wanted) in [
        (&b""[..], "is not an ELF file"),
        (b"root:x:0:0:", "is not an ELF file"),
        (&whole[..100], ""),
        (&other_id, "build id 01020309, the profile wants 01020304"),
    ] {
        std::fs::write(&program, content).unwrap();
        let said = ask();
        assert!(said.contains(wanted), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(!said.contains("root:x"), "{said}");
    }
    // Nothing is read from a device or a pipe, and nothing is waited for.
    for kind in ["gone", "folder", "pipe", "/dev/zero"] {
        let _ = std::fs::remove_file(&program);
        let _ = std::fs::remove_dir(&program);
        match kind {
            "gone" => {}
            "folder" => std::fs::create_dir(&program).unwrap(),
            "pipe" => rustix::fs::mkfifoat(rustix::fs::CWD, &program, 0o600.into()).unwrap(),
            device => std::os::unix::fs::symlink(device, &program).unwrap(),
        }
        assert_eq!(ask().lines().count(), 1, "{kind}");
    }
    // The right one is found in a folder of the server, and without one, advice ends the line.
    std::fs::remove_file(&program).unwrap();
    let advice = "; give the folder of the right one with --debug-dir";
    assert!(ask().ends_with(advice), "{}", ask());
    std::fs::create_dir(folder.join("kept")).unwrap();
    std::fs::write(folder.join("kept/program"), &whole).unwrap();
    let kept = folder.join("kept");
    let words = ["--source", "--debug-dir", kept.to_str().unwrap(), &profile];
    let server = Server::start(&words);
    let found = server.json("list", "regex=^sum$&asm=1");
    assert_eq!(found["rows"][0]["code"][0]["symbol"], "sum");
    // Names alone have no file.
    write(folder, "names.pb.gz", &bytes_in_use("main;sum 7"));
    let names = folder.join("names.pb.gz");
    let server = Server::start(&["--source", names.to_str().unwrap()]);
    let nameless = "the profile does not name the file that has the code of the function";
    assert_eq!(reason(&server), nameless);
}

/// Names of functions and symbols are any text. In the answer they are texts of JSON.
#[test]
fn hostile_names_are_texts() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in [
        "</script><script>alert(1)</script>",
        "\u{1b}[31m\u{7}\u{202e}\n\r\t\"\\",
        "%s%n{{{}}}\u{0}x",
    ] {
        // A symbol ends at its first zero byte.
        let symbol = name.replace('\0', "");
        let profile = write_profile(folder, &symbol, &symbol);
        let server = Server::start(&["--source", &profile]);
        let exact = encoded(&format!("^{}$", regex::escape(&symbol)));
        let query = format!("asm=1&regex={exact}");
        let reply = server.get("/api/v1/list", &query);
        assert_eq!(reply.status, 200, "{name:?}: {}", reply.error());
        let media = reply.header("content-type");
        assert_eq!(media, Some("application/json"), "{name:?}");
        let text = String::from_utf8(reply.body).unwrap();
        let controls = text.trim_end().chars().filter(|c| c.is_control()).count();
        assert_eq!(controls, 0, "{text}");
        let answer: Value = serde_json::from_str(&text).unwrap();
        let row = &answer["rows"][0];
        assert_eq!(row["function"], *symbol);
        assert_eq!(row["lines"][1]["instructions"][0]["flat"], 4096);
    }
    // A long name is refused as every long parameter is.
    let long = sample_profiles().join("valid/go.leaky.after.pb.gz");
    let server = Server::start(&["--source", long.to_str().unwrap()]);
    let refused = server.get("/api/v1/list", &format!("asm=1&regex={}", "x".repeat(9000)));
    assert_eq!(refused.status, 414);
}
