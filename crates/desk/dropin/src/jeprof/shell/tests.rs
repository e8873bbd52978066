//! Sessions of the shell with a host in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use expect_test::expect;
use heapprof_profile::{Profile, ProfileBuilder};

use crate::host::{
    CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, PromptStream,
    ReportBody, ToolReadOptions, WebPageRequest,
};
use crate::jeprof::{run, run_google_pprof};

/// A host that reads one profile, and keeps all that is written.
struct MemoryHost {
    commands: &'static str,
    is_terminal: bool,
    out: RefCell<Vec<u8>>,
    said: RefCell<String>,
    files: RefCell<BTreeMap<PathBuf, String>>,
}

impl MemoryHost {
    fn new(commands: &'static str) -> Self {
        Self {
            commands,
            is_terminal: false,
            out: RefCell::default(),
            said: RefCell::default(),
            files: RefCell::default(),
        }
    }

    fn out(&self) -> String {
        String::from_utf8(self.out.borrow().clone()).unwrap()
    }
}

/// The commands of a session.
struct ScriptReader(std::str::Lines<'static>);

impl CommandReader for ScriptReader {
    fn read_line(&mut self, _: &str) -> Result<Option<String>> {
        Ok(self.0.next().map(str::to_string))
    }
}

impl DropinHost for MemoryHost {
    fn note(&self, text: &str) {
        *self.said.borrow_mut() += &format!("note: {text}\n");
    }

    fn print_lines(&self, help: &str) {
        *self.said.borrow_mut() += &format!("{help}\n");
    }

    fn help(&self) -> String {
        String::new()
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn read(&self, _: &str, _: ToolReadOptions) -> Result<Profile> {
        let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
        builder.add_folded("main;parse;new_node", &[3 << 20]);
        builder.add_folded("main;draw;canvas", &[1 << 20]);
        builder.add_folded("main;draw;malloc;arena", &[1 << 19]);
        let mut profile = builder.finish();
        // Without addresses, names make the rows.
        profile.location.iter_mut().for_each(|l| l.address = 0);
        Ok(profile)
    }

    fn fetch(&self, url: &str, _: &FetchOptions, _: ToolReadOptions) -> Result<Profile> {
        bail!("{url}: no server here")
    }

    fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        let mut text = Vec::new();
        body(&mut text)?;
        match file {
            None => self.out.borrow_mut().extend(text),
            Some(path) => {
                let text = String::from_utf8(text)?;
                self.files.borrow_mut().insert(path.to_path_buf(), text);
            }
        }
        Ok(())
    }

    fn write_into(&self, _: &str, mut file: File, body: ReportBody<'_>) -> Result<()> {
        body(&mut file)
    }

    fn post(&self, url: &str, _: String, _: &FetchOptions) -> Result<Vec<u8>> {
        bail!("{url}: no server here")
    }

    fn command_reader(
        &self,
        _: &str,
        prompts: PromptStream,
        _: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        assert_eq!(prompts, PromptStream::Messages);
        Ok(Box::new(ScriptReader(self.commands.lines())))
    }

    fn run_in_copy(&self, _: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool> {
        bail!("this shell runs its commands itself")
    }

    fn serve(&self, _: &WebPageRequest) -> Result<()> {
        bail!("there is no page here")
    }
}

/// Runs a session with the options before the profile.
fn session(commands: &'static str, options: &[&str]) -> MemoryHost {
    let host = MemoryHost::new(commands);
    let args: Vec<String> = ["--interactive"]
        .iter()
        .chain(options)
        .chain(&["profile"])
        .map(ToString::to_string)
        .collect();
    run(&host, &args).unwrap();
    host
}

#[test]
fn rows_and_filters() {
    let host = session("top2\ntop --cum -parse\nquit\ntop\n", &[]);
    expect![[r#"
        Total: 4.5 MB
             3.0  66.7%  66.7%      3.0  66.7% new_node
             1.0  22.2%  88.9%      1.0  22.2% canvas
        Total: 4.5 MB
        After ignoring 'parse': 1.5 MB of 4.5 (33.3%)
             0.5  33.3%  33.3%      1.5 100.0% draw
             0.0   0.0%  33.3%      1.5 100.0% main
             1.0  66.7% 100.0%      1.0  66.7% canvas
    "#]]
    .assert_eq(&host.out());
}

#[test]
fn a_command_that_fails_does_not_end_the_shell() {
    let host = session("top -[\n\nbananas\ntop1\n", &["--show_bytes"]);
    assert!(host.out().starts_with("Total: 4718592 B\n 3145728 "));
    expect![[r#"
        note: Main binary filename not available.
        Welcome to jeprof!  For help, type 'help'.
        Ignoring samples in call stacks that match '['
        note: "[": not a regular expression: unclosed character class
        Unknown command: try 'help'.
    "#]]
    .assert_eq(&host.said.borrow());
}

#[test]
fn calls_in_a_file() {
    let host = session("callgrind calls.out\n", &["--focus=parse"]);
    let files = host.files.borrow();
    assert!(host.out().is_empty());
    expect![[r#"
        events: Hits

        fl=??
        fn=(1) main
        cfl=??
        cfn=(2) parse
        calls=3145728 0
        0 3145728

        fl=??
        fn=(3) new_node
        0 3145728

        fl=??
        fn=(2)
        cfl=??
        cfn=(3)
        calls=3145728 0
        0 3145728

    "#]]
    .assert_eq(&files[Path::new("calls.out")]);
}

#[test]
fn each_script_hides_its_own_allocators() {
    let rows = |tool: fn(&dyn DropinHost, &[String]) -> Result<()>| {
        let host = MemoryHost::new("top1 -parse -canvas\n");
        let args = ["--interactive", "profile"].map(str::to_string);
        tool(&host, &args).unwrap();
        let said = host.said.borrow();
        let welcome = said.lines().find(|line| line.starts_with("Welcome"));
        let welcome = welcome.unwrap_or_default().to_string();
        (host.out().lines().last().unwrap().to_string(), welcome)
    };
    let (row, welcome) = rows(run);
    assert!(row.ends_with(" draw"), "{row}");
    assert!(welcome.starts_with("Welcome to jeprof!"), "{welcome}");
    let (row, welcome) = rows(run_google_pprof);
    assert!(row.ends_with(" arena"), "{row}");
    assert!(welcome.starts_with("Welcome to pprof!"), "{welcome}");
}

#[test]
fn only_a_terminal_opens_the_shell() {
    for (is_terminal, expected) in [(true, ""), (false, "Total: 4.5 MB")] {
        let mut host = MemoryHost::new("");
        host.is_terminal = is_terminal;
        run(&host, &["profile".to_string()]).unwrap();
        assert_eq!(host.out().lines().next().unwrap_or_default(), expected);
    }
}
