//! Sessions of the shell with a host that keeps what it is told.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Result, bail};
use expect_test::{Expect, expect};
use heapprof_profile::{Profile, ProfileBuilder};

use crate::host::{
    CommandProcess, CommandReader, DropinHost, FetchOptions, LineCompleter, PromptStream,
    ReportBody, ToolReadOptions, WebPageRequest,
};

/// Host of one session: all that is printed, in order, with `!` before each message.
#[derive(Default)]
struct ScriptedHost {
    lines: Vec<&'static str>,
    printed: Rc<RefCell<String>>,
    /// Whether a command is interrupted, which ends a script.
    is_interrupted: bool,
}

struct ScriptReader {
    lines: std::vec::IntoIter<&'static str>,
    printed: Rc<RefCell<String>>,
}

impl CommandReader for ScriptReader {
    fn read_line(&mut self, prompt: &str) -> Result<Option<String>> {
        let line = self.lines.next();
        *self.printed.borrow_mut() += &format!("{prompt}{}\n", line.unwrap_or("(end)"));
        Ok(line.map(str::to_string))
    }
}

impl DropinHost for ScriptedHost {
    fn note(&self, text: &str) {
        *self.printed.borrow_mut() += &format!("! note: {text}\n");
    }

    fn print_lines(&self, text: &str) {
        for line in text.trim_end_matches('\n').lines() {
            *self.printed.borrow_mut() += &format!("! {line}\n");
        }
    }

    fn help(&self) -> String {
        "help\n".to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(name)
    }

    fn read(&self, name: &str, _: ToolReadOptions) -> Result<Profile> {
        match name {
            "profile" => Ok(profile()),
            name => bail!("{name}: there is no such profile"),
        }
    }

    fn fetch(&self, url: &str, _: &FetchOptions, _: ToolReadOptions) -> Result<Profile> {
        bail!("{url}: nothing is fetched here")
    }

    fn post(&self, url: &str, _: String, _: &FetchOptions) -> Result<Vec<u8>> {
        bail!("{url}: nothing is sent here")
    }

    fn command_reader(
        &self,
        shell: &str,
        _: PromptStream,
        _: Box<dyn LineCompleter>,
    ) -> Result<Box<dyn CommandReader>> {
        assert_eq!(shell, "pprof");
        Ok(Box::new(ScriptReader {
            lines: self.lines.clone().into_iter(),
            printed: Rc::clone(&self.printed),
        }))
    }

    fn run_in_copy(&self, command: &mut dyn FnMut(CommandProcess) -> Result<()>) -> Result<bool> {
        if let Err(error) = command(CommandProcess::Shell) {
            self.print_lines(&format!("{error:#}"));
        }
        Ok(!self.is_interrupted)
    }

    fn is_terminal(&self) -> bool {
        false
    }

    fn write(&self, file: Option<&Path>, body: ReportBody<'_>) -> Result<()> {
        let mut report = Vec::new();
        body(&mut report)?;
        if let Some(file) = file {
            *self.printed.borrow_mut() += &format!("into {}:\n", file.display());
        }
        *self.printed.borrow_mut() += &String::from_utf8_lossy(&report);
        Ok(())
    }

    fn write_into(&self, name: &str, _: File, _: ReportBody<'_>) -> Result<()> {
        bail!("{name}: nothing is written here")
    }

    fn serve(&self, _: &WebPageRequest) -> Result<()> {
        bail!("nothing is served here")
    }
}

/// A profile of two functions that `main` calls.
fn profile() -> Profile {
    let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
    builder.add_folded("main.run;store.put", &[3, 3 << 20]);
    builder.add_folded("main.run;store.walk", &[1, 1 << 20]);
    builder.finish()
}

fn check(flags: &[&str], lines: &[&'static str], expected: Expect) {
    let host = ScriptedHost {
        lines: lines.to_vec(),
        ..ScriptedHost::default()
    };
    expected.assert_eq(&session(&host, flags));
}

fn session(host: &ScriptedHost, flags: &[&str]) -> String {
    let flags = ["-symbolize=none"].iter().chain(flags).chain(&["profile"]);
    let args: Vec<String> = flags.map(ToString::to_string).collect();
    crate::pprof::run(host, &args).unwrap();
    host.printed.take()
}

#[test]
fn settings_stay_and_words_do_not() {
    check(
        &[],
        &[
            "focus=put",
            "top 1 -cum",
            "sample_index=0",
            ":",
            "top5 -walk >out",
            "quit",
            "never",
        ],
        expect![[r#"
            ! Type: inuse_space
            ! Entering interactive mode (type "help" for commands, "o" for options)
            (pprof) focus=put
            (pprof) top 1 -cum
            Active filters:
               focus=put
            Showing nodes accounting for 0, 0% of 4MB total
            Showing top 1 nodes out of 2
                  flat  flat%   sum%        cum   cum%
                     0     0%     0%        3MB 75.00%  main.run
            (pprof) sample_index=0
            (pprof) :
            (pprof) top5 -walk >out
            ! Generating report in out
            into out:
            Active filters:
               ignore=walk
            Showing nodes accounting for 3, 75.00% of 4 total
                  flat  flat%   sum%        cum   cum%
                     3 75.00% 75.00%          3 75.00%  store.put
                     0     0% 75.00%          3 75.00%  main.run
            (pprof) quit
        "#]],
    );
}

#[test]
fn what_is_wrong_is_said_and_the_shell_goes_on() {
    check(
        &["-compact_labels=false"],
        &[
            "nosuch",
            "focus",
            "unit",
            "peek",
            "top >",
            "granularity=x",
            "nodecount=many",
            "mean=maybe",
            "sample_index=9",
            "lines",
            "help nosuch",
            "peek nothing",
            "top",
            "list [",
        ],
        expect![[r#"
            ! Type: inuse_space
            ! Entering interactive mode (type "help" for commands, "o" for options)
            (pprof) nosuch
            ! unrecognized command: "nosuch"
            (pprof) focus
            ! please specify a value, e.g. focus=<val>
            (pprof) unit
            ! please specify a value, e.g. unit=<val>
            (pprof) peek
            ! command peek requires an argument
            (pprof) top >
            ! unexpected end of line after >
            (pprof) granularity=x
            ! invalid "granularity" value "x"; it is one of addresses, filefunctions, files, functions, lines
            (pprof) nodecount=many
            ! nodecount: "many" is not a whole number
            (pprof) mean=maybe
            ! mean: "maybe" is not true or false
            (pprof) sample_index=9
            ! sample_index 9 is outside the range [0..1]
            (pprof) lines
            ! "lines" takes true: lines=true
            (pprof) help nosuch
            ! Unknown command: nosuch
            (pprof) peek nothing
            ! no matches found for regexp: nothing
            (pprof) top
            Showing nodes accounting for 4MB, 100% of 4MB total
                  flat  flat%   sum%        cum   cum%
                   3MB 75.00% 75.00%        3MB 75.00%  store.put
                   1MB 25.00%   100%        1MB 25.00%  store.walk
                     0     0%   100%        4MB   100%  main.run
            (pprof) list [
            ! -list "[": not a regular expression: a [ has no ]
            (pprof) (end)
        "#]],
    );
}

#[test]
fn a_type_of_the_samples_chooses_itself() {
    check(
        &[],
        &["total_inuse_objects", "top", "mean_inuse_space", "top 1"],
        expect![[r#"
            ! Type: inuse_space
            ! Entering interactive mode (type "help" for commands, "o" for options)
            (pprof) total_inuse_objects
            (pprof) top
            Showing nodes accounting for 4, 100% of 4 total
                  flat  flat%   sum%        cum   cum%
                     3 75.00% 75.00%          3 75.00%  store.put
                     1 25.00%   100%          1 25.00%  store.walk
                     0     0%   100%          4   100%  main.run
            (pprof) mean_inuse_space
            (pprof) top 1
            Showing nodes accounting for 1MB, 100% of 1MB total
            Showing top 1 nodes out of 3
                  flat  flat%   sum%        cum   cum%
                   1MB   100%   100%        1MB   100%  store.put
            (pprof) (end)
        "#]],
    );
}

#[test]
fn help_names_everything_that_can_be_typed() {
    let host = ScriptedHost {
        lines: vec![
            "help",
            "help top",
            "help focus",
            "help sort",
            "help lines",
            "o",
        ],
        ..ScriptedHost::default()
    };
    let printed = session(&host, &[]);
    for command in super::command_table::ReportCommand::all() {
        assert!(
            printed.contains(&format!("\n!     {} ", command.name)),
            "{}",
            command.name
        );
    }
    for option in super::settings::ShellOption::with_values() {
        let name = option.name();
        assert!(printed.contains(&format!("\n!     {name} ")), "{name}");
        let listed = printed.contains(&format!("\n!   {name} ")) || name == "source_path";
        assert!(listed, "{name}");
    }
}

#[test]
fn an_interrupted_script_ends() {
    let host = ScriptedHost {
        lines: vec!["top", "never"],
        is_interrupted: true,
        ..ScriptedHost::default()
    };
    let printed = session(&host, &[]);
    assert!(printed.contains("(pprof) top\n"), "{printed}");
    assert!(!printed.contains("never"), "{printed}");
}
