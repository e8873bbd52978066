//! Tests of `-disasm` and `-weblist`: which instructions belong to which lines, with a made object
//! file; and both reports of a program that is built here, with the real tools.
//!
//! oracle/code.py compares both reports with pprof's.
#![allow(
    clippy::disallowed_methods,
    reason = "tests write into folders of their own"
)]

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Result, bail};
use expect_test::{Expect, expect};
use heapprof_dropin::report::{
    InlinedFrame, Instruction, ListingOrder, ObjectFile, ObjectMapping, ObjectProblem,
    ObjectSymbol, ObjectTool, PprofReportOptions, SymbolQuery, disasm, weblist,
};
use heapprof_dropin::{
    CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, PromptStream,
    ReportBody, ToolReadOptions, WebPageRequest, pprof,
};
use heapprof_profile::{Function, Line, Mapping, Profile, ProfileBuilder, encode};
use heapprof_symbolize::layout::read_layout;
use heapprof_tests::needs::have;
use regex::Regex;

/// Where the object file is loaded in most tests.
const BASE: u64 = 0x7000_0000;

/// An object file with two functions. `keep` begins at 0x2000. At 0x2010, `copy` is inlined into
/// it, and the instruction at 0x2018 has no line. `late` begins at 0x2100.
struct MadeTool;

impl ObjectTool for MadeTool {
    fn open(&self, file: &str, mapping: ObjectMapping) -> Result<Box<dyn ObjectFile>, String> {
        match file {
            "/bin/made" => Ok(Box::new(MadeFile(mapping))),
            other => Err(format!("stat {other}: no such file or directory")),
        }
    }

    fn disassemble(
        &self,
        file: &str,
        range: Range<u64>,
        intel_syntax: bool,
    ) -> Result<Vec<Instruction>, String> {
        assert_eq!(file, "/bin/made");
        let code = [
            (0x2000, "push\t%rbp", "keep", 10),
            (0x2008, "call\tmalloc <&+1>", "keep", 11),
            (0x2010, "mov\t$1, %eax", "copy", 3),
            (
                0x2018,
                "movabs\t$0x1122334455667788, %rax; a long one",
                "",
                0,
            ),
            (0x2020, "ret", "keep", 12),
            (0x2100, "call\tkeep", "late", 40),
            (0x2108, "ret", "late", 41),
        ];
        let shown = code.iter().filter(|(address, ..)| range.contains(address));
        Ok(shown
            .map(|&(address, text, function, line)| Instruction {
                address,
                text: match intel_syntax {
                    true => text.to_uppercase(),
                    false => text.to_string(),
                },
                function: function.into(),
                file: match function {
                    "" => "",
                    _ => "/src/keep.c",
                }
                .into(),
                line,
            })
            .collect())
    }
}

struct MadeFile(ObjectMapping);

impl MadeFile {
    fn base(&self) -> u64 {
        self.0.start - self.0.offset
    }
}

impl ObjectFile for MadeFile {
    fn object_address(&self, address: u64) -> Result<u64, String> {
        match address >= self.0.start {
            true => Ok(address.wrapping_sub(self.base())),
            false => Err("outside".to_string()),
        }
    }

    fn symbols(&self, query: &SymbolQuery) -> Result<Vec<ObjectSymbol>, String> {
        let symbols = [
            ("keep", 0x2000, 0x20ff),
            ("late", 0x2100, 0x21ff),
            ("unused", 0x3000, 0x30ff),
        ];
        let found = symbols.iter().filter(|&&(name, start, end)| {
            query.pattern.is_match(name) || (start..=end).contains(&query.address)
        });
        Ok(found
            .map(|&(name, start, end)| ObjectSymbol {
                names: vec![name.to_string(), format!("{name}_alias")],
                start,
                end,
            })
            .collect())
    }

    fn frames(&self, address: u64) -> Result<Vec<InlinedFrame>, String> {
        let frame = |function: &str, line| InlinedFrame {
            function: function.to_string(),
            file: "/src/./keep.c".to_string(),
            line,
        };
        Ok(match address.wrapping_sub(self.base()) {
            0x2000 => vec![frame("keep", 10)],
            0x2008 => vec![frame("keep", 11)],
            0x2010 => vec![frame("copy", 3), frame("keep", 11)],
            0x2018 => vec![frame("", 0)],
            0x2020 => vec![frame("keep", 12)],
            _ => return Err("the tool ended".to_string()),
        })
    }
}

/// A profile of the made program: `late` calls `keep`, which allocates in itself and in `copy`. Its
/// last sample has a location without an address and a file. `base` is the distance between
/// addresses in the profile and in the object file.
fn profile(base: u64) -> Profile {
    let mut builder = ProfileBuilder::new(&[("objects", "count"), ("space", "bytes")]);
    let [file, source] = ["/bin/made", "/src/keep.c"].map(|text| builder.text(text));
    let mapping = builder.mapping(Mapping {
        memory_start: base + 0x1000,
        memory_limit: base + 0x4000,
        file_offset: 0x1000,
        filename: file,
        ..Mapping::default()
    });
    let function = |builder: &mut ProfileBuilder, name: &str| {
        let name = builder.text(name);
        builder.function(Function {
            name,
            system_name: name,
            filename: source,
            ..Function::default()
        })
    };
    let [keep, copy, late] = ["keep", "copy", "late"].map(|name| function(&mut builder, name));
    let line = |function, line| Line {
        function,
        line,
        column: 0,
    };
    let in_keep = [line(keep, 11)];
    let in_copy = [line(copy, 3), line(keep, 11)];
    // The address is in the middle of an instruction.
    let call = builder.location(Some(mapping), base + 0x200c, false, &in_keep);
    let inlined = builder.location(Some(mapping), base + 0x2010, false, &in_copy);
    let outer = builder.location(Some(mapping), base + 0x2100, false, &[line(late, 40)]);
    let unmapped = builder.location(None, 0, false, &[line(keep, 90)]);
    builder.add_sample(vec![call, outer], &[2, 3000], &mut []);
    builder.add_sample(vec![inlined, outer], &[1, 500], &mut []);
    builder.add_sample(vec![unmapped], &[1, 70], &mut []);
    builder.finish()
}

fn options(symbol: &str) -> PprofReportOptions {
    PprofReportOptions {
        column: 1,
        sample_type: "space".to_string(),
        sample_unit: "bytes".to_string(),
        output_unit: "bytes".to_string(),
        total: 3570,
        symbol: Some(Regex::new(symbol).unwrap()),
        ..PprofReportOptions::default()
    }
}

fn disassembled(profile: &Profile, options: &PprofReportOptions) -> Result<String, String> {
    disassembled_in(ListingOrder::Name, profile, options)
}

fn disassembled_in(
    order: ListingOrder,
    profile: &Profile,
    options: &PprofReportOptions,
) -> Result<String, String> {
    let mut out = Vec::new();
    let problem = |problem: ObjectProblem| panic!("{problem:?}");
    match disasm(profile, options, order, &MadeTool, &problem, &mut out) {
        Ok(()) => Ok(String::from_utf8(out).unwrap().replace('\t', "→")),
        Err(error) => {
            assert!(out.is_empty());
            Err(error.to_string())
        }
    }
}

fn check(found: &str, expected: Expect) {
    expected.assert_eq(found);
}

#[test]
fn instructions_have_values_and_places() {
    check(
        &disassembled(&profile(BASE), &options("keep")).unwrap(),
        expect![[r#"
        Total: 3570B
        ROUTINE ======================== keep
            AKA ======================== keep_alias
             3500B      4000B (flat, cum) 112.04% of Total
                 .          .       2000: push→%rbp                               ;keep keep.c:10
             3000B      3000B       2008: call→malloc <&+1>                       ;keep keep.c:11
              500B      1000B       2010: mov→$1, %eax                            ;copy keep.c:3
                 .          .       2018: movabs→$0x1122334455667788, %rax; a long one
                 .          .       2020: ret                                     ;keep keep.c:12
    "#]],
    );
    let intel = PprofReportOptions {
        intel_syntax: true,
        mean_divisor: Some(0),
        ..options("late")
    };
    check(
        &disassembled(&profile(BASE), &intel).unwrap(),
        expect![[r#"
        Total: 3570B
        ROUTINE ======================== late
            AKA ======================== late_alias
                 0      3500B (flat, cum) 98.04% of Total
                 .      1166B       2100: CALL→KEEP                               ;late keep.c:40
                 .          .       2108: RET                                     ;late keep.c:41
    "#]],
    );
}

/// A page shows the functions with the largest flat first, up to a number.
#[test]
fn pages_begin_with_the_largest_function() {
    let titles = |order: ListingOrder| -> Vec<String> {
        let text = disassembled_in(order, &profile(BASE), &options(".")).unwrap();
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("ROUTINE ="));
        lines
            .map(|line| line.trim_start_matches('=').trim().to_string())
            .collect()
    };
    assert_eq!(titles(ListingOrder::Name), ["keep", "late"]);
    assert_eq!(titles(ListingOrder::Largest(500)), ["keep", "late"]);
    assert_eq!(titles(ListingOrder::Largest(1)), ["keep"]);
    assert!(titles(ListingOrder::Largest(0)).is_empty());
}

/// As in pprof, an address selects a function only if the file is loaded where it was linked.
#[test]
fn addresses_select_functions() {
    let at = |base: u64, address: &str| disassembled(&profile(base), &options(address));
    let found = at(0, "0x2010").unwrap();
    let title =
        "ROUTINE ======================== keep\n    AKA ======================== keep_alias\n";
    assert!(found.contains(title), "{found}");
    for (base, address, says) in [
        (0, "nothing", "no matches found for regexp nothing"),
        (0, "0x10", "no matches found for address 0x10"),
        (
            BASE,
            "0x70002010",
            "no matches found for address 0x70002010",
        ),
        (
            0,
            "0x3010",
            "address 0x3010 found in binary, but the corresponding symbols do not have samples in \
             the profile",
        ),
    ] {
        assert_eq!(at(base, address), Err(says.to_string()));
    }
}

/// Returns the part of the page below its legend in short: without lines that have no instructions,
/// tags and runs of blanks.
fn listed(options: &PprofReportOptions) -> String {
    let source: Vec<Vec<u8>> = (1..=42)
        .map(|line| format!("\tline {line} <\"&+'>").into_bytes())
        .collect();
    let source: Rc<[Vec<u8>]> = source.into();
    let read = |file: &str| match file {
        "/src/keep.c" | "/src/./keep.c" => Ok(source.clone()),
        other => Err(format!("open {other}: no such file or directory")),
    };
    let mut out = Vec::new();
    let note = |text: &str| panic!("{text}");
    weblist(&profile(BASE), options, &MadeTool, &read, &note, &mut out).unwrap();
    let page = String::from_utf8(out).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>\n") && page.ends_with("</body>\n</html>\n"));
    assert!(page.contains("<title>made space</title>"));
    let (_, listing) = page.split_once("</div>").unwrap();
    let blanks = Regex::new("[\t ]+").unwrap();
    let lines = listing.lines().filter(|line| !line.contains("class=nop"));
    let lines = lines.map(|line| {
        let line = line.replace("<span class=", "<").replace("</span>", "</>");
        let line = line.replace("<asm>", "\n<asm>");
        blanks.replace_all(&line, " ").into_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn source_lines_have_instructions() {
    check(
        &listed(&options("keep")),
        expect![[r#"
            <h2>copy</h2><p class="filename">/src/keep.c</p>
            <pre onClick="pprof_toggle_asm(event)">
             Total: 500B 500B (flat, cum) 14.01%
            <line> 3</> <livesrc> 500B 500B line 3 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> 500B 500B 2010: mov $1, %eax <unimportant>keep.c:3</>
             . . 2018: movabs $0x1122334455667788, %rax; a long one <unimportant>keep.c:0</>
            </>
            </pre>
            <h2>keep</h2><p class="filename">/src/keep.c</p>
            <pre onClick="pprof_toggle_asm(event)">
             Total: 3500B 3500B (flat, cum) 98.04%
            <line> 10</> <livesrc> . . line 10 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> . . 2000: push %rbp <unimportant>keep.c:10</>
            </>
            <line> 11</> <livesrc> 3500B 3500B line 11 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> 3000B 3000B 2008: call malloc &lt;&amp;&#43;1&gt; <unimportant>keep.c:11</>
             <inlinesrc> line 3 &lt;&#34;&amp;&#43;&#39;&gt; </> <unimportant>keep.c:3</>
             500B 500B 2010: mov $1, %eax <unimportant>keep.c:3</>
             . . 2018: movabs $0x1122334455667788, %rax; a long one <unimportant>keep.c:0</>
            </>
            <line> 12</> <livesrc> . . line 12 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> . . 2020: ret <unimportant>keep.c:12</>
            </>
            </pre>
            <h2>late</h2><p class="filename">/src/keep.c</p>
            <pre onClick="pprof_toggle_asm(event)">
             Total: 0 3500B (flat, cum) 98.04%
            <line> 40</> <livesrc> . 3500B line 40 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> . 3500B 2100: call keep <unimportant>keep.c:40</>
            </>
            <line> 41</> <livesrc> . . line 41 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> . . 2108: ret <unimportant>keep.c:41</>
            </>
            </pre>
            <h2>keep</h2><p class="filename">/src/keep.c</p>
            <pre onClick="pprof_toggle_asm(event)">
             Total: 70B 70B (flat, cum) 1.96%
            <line> 90</> <deadsrc> 70B 70B ??? </>
            </pre>

            </body>
            </html>"#]],
    );
}

#[test]
fn an_inlined_function_has_its_own_lines() {
    check(
        &listed(&options("^copy$")),
        expect![[r#"
            <h2>copy</h2><p class="filename">/src/keep.c</p>
            <pre onClick="pprof_toggle_asm(event)">
             Total: 500B 500B (flat, cum) 14.01%
            <line> 3</> <livesrc> 500B 500B line 3 &lt;&#34;&amp;&#43;&#39;&gt; </>
            <asm> 500B 500B 2010: mov $1, %eax <unimportant>keep.c:3</>
             . . 2018: movabs $0x1122334455667788, %rax; a long one <unimportant>keep.c:0</>
            </>
            </pre>

            </body>
            </html>"#]],
    );
}

#[test]
fn a_page_without_a_match_is_an_error() {
    let read = |file: &str| panic!("{file}");
    let mut out = Vec::new();
    let result = weblist(
        &profile(BASE),
        &options("nothing"),
        &MadeTool,
        &read,
        &|_| (),
        &mut out,
    );
    assert_eq!(
        result.unwrap_err().to_string(),
        "no matches found for regexp: nothing"
    );
    assert!(out.is_empty());
}

/// A host that reads one profile and keeps the report.
struct TestHost<'a> {
    profile: &'a [u8],
    report: std::cell::RefCell<Vec<u8>>,
}

impl DropinHost for TestHost<'_> {
    fn note(&self, text: &str) {
        assert!(text.starts_with("Generating report in "), "{text}");
    }

    fn print_lines(&self, _: &str) {}

    fn post(&self, _: &str, _: String, _: &FetchOptions) -> Result<Vec<u8>> {
        bail!("no server")
    }

    fn command_reader(
        &self,
        _: &str,
        _: PromptStream,
        _: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        bail!("no terminal")
    }

    fn run_in_copy(&self, _: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool> {
        bail!("no shell")
    }

    fn help(&self) -> String {
        String::new()
    }

    fn path(&self, name: &str) -> PathBuf {
        name.into()
    }

    fn read(&self, _: &str, _: ToolReadOptions) -> Result<Profile> {
        Ok(heapprof_profile::decode(self.profile)?)
    }

    fn fetch(&self, _: &str, _: &FetchOptions, _: ToolReadOptions) -> Result<Profile> {
        bail!("no server")
    }

    fn is_terminal(&self) -> bool {
        false
    }

    fn write(&self, _: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        body(&mut *self.report.borrow_mut())
    }

    fn write_into(&self, _: &str, _: File, _: ReportBody<'_>) -> Result<()> {
        bail!("no file")
    }

    fn serve(&self, _: &WebPageRequest) -> Result<()> {
        bail!("no server")
    }
}

/// The program has a function whose address is known, because the file is not loaded: the mapping
/// of the profile is the whole address space.
#[test]
fn real_tools_read_a_program() {
    if !have(&["gcc", "objdump", "nm", "addr2line"]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut source = File::create(at("made.c")).unwrap();
    let text = "int made(int x) {\n    return x * 3;\n}\nint main(void) { return made(1); }\n";
    source.write_all(text.as_bytes()).unwrap();
    let mut gcc = std::process::Command::new("gcc");
    gcc.args(["-O0", "-g", "-o", "made", "made.c"]);
    assert!(gcc.current_dir(folder.path()).status().unwrap().success());
    let program = at("made").display().to_string();
    let layout = read_layout(Path::new(&program), Some("made")).unwrap();

    let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
    let [filename, name, file] = [&program, "made", "made.c"].map(|text| builder.text(text));
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

    let report = |flags: &[&str]| {
        let host = TestHost {
            profile: &bytes,
            report: Vec::new().into(),
        };
        let args: Vec<String> = flags
            .iter()
            .chain(&["made.pb.gz"])
            .map(|s| s.to_string())
            .collect();
        pprof(&host, &args).unwrap();
        String::from_utf8(host.report.into_inner()).unwrap()
    };
    let gnu = format!("-tools={}", gnu_tools(folder.path()));
    let found = report(&["-disasm=made", "-symbolize=none", &gnu]);
    let lines: Vec<&str> = found.lines().collect();
    assert_eq!(lines[0], "Total: 1000B");
    assert_eq!(lines[1], "ROUTINE ======================== made");
    assert_eq!(
        lines[2],
        "     1000B      1000B (flat, cum)   100% of Total"
    );
    assert!(lines[3].starts_with("     1000B      1000B "), "{found}");
    assert!(lines[3].ends_with(";made made.c:1"), "{found}");
    assert!(found.contains(";made made.c:2\n"), "{found}");

    let output = "-output=made.html";
    let found = report(&["-weblist=made", "-symbolize=none", output, &gnu]);
    assert!(found.contains("<h2>made</h2>"), "{found}");
    let first = "<span class=line>      1</span> <span class=livesrc>       1000B      1000B           int made(int x) {";
    assert!(found.contains(first), "{found}");
    assert!(
        found.contains("<span class=unimportant>made.c:2</span>"),
        "{found}"
    );
}

/// Makes a folder with links to GNU's tools, so that the result does not depend on LLVM's.
fn gnu_tools(folder: &Path) -> String {
    let tools = folder.join("tools");
    std::fs::create_dir(&tools).unwrap();
    for tool in ["objdump", "nm", "addr2line"] {
        let path = std::env::var_os("PATH").unwrap();
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool));
        let found = found.into_iter().find(|path| path.exists()).unwrap();
        std::os::unix::fs::symlink(found, tools.join(tool)).unwrap();
    }
    tools.display().to_string()
}
