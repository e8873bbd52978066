//! Functions, files and lines of addresses from llvm-symbolizer, or from addr2line. The tool runs
//! as long as its owner exists, and answers one question after the other.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::address_names::AddressNames;
use super::places::{ToolPlaces, find_in_path};
use crate::report::InlinedFrame;
use crate::tool_process::{ToolProcess, file_argument};

/// Maximum length of a line of a tool's answer.
const MAX_LINE: u64 = 16 << 20;
/// Maximum number of lines of an answer of addr2line. An address with more inlined calls is not
/// real.
const MAX_FRAMES: usize = 10_000;
/// An address that no file has. addr2line gets it after each address, and its answer shows where
/// the answer before it ends.
const SENTINEL: u64 = u64::MAX;

/// A tool that finds the lines of a file.
pub(super) enum LineFinder {
    /// llvm-symbolizer, which answers in JSON. The text is the name of the file.
    Llvm(ToolPipe, String),
    /// addr2line, and the symbols from nm, because addr2line cuts some names short.
    Gnu(ToolPipe, Option<AddressNames>),
}

impl LineFinder {
    /// Starts a tool for a file, which was moved by `base`.
    pub(super) fn start(places: &ToolPlaces, file: &Path, base: u64) -> Result<Self, String> {
        let name = file_argument(file);
        // As in pprof, a tool that is not in the folders of `-tools` is taken from PATH.
        let text = name.to_string_lossy();
        if is_word(&text)
            && let Some(llvm) = or_in_path(&places.llvm_symbolizer, "llvm-symbolizer")
        {
            let mut command = Command::new(llvm);
            command.args(["--inlining", "-demangle=false", "--output-style=JSON"]);
            if let Ok(pipe) = ToolPipe::start(command, places.deadline) {
                return Ok(Self::Llvm(pipe, text.into_owned()));
            }
        }
        let not_found = |why: &str| format!("could not find local addr2liner: {why}");
        let addr2line = or_in_path(&places.addr2line, "addr2line")
            .ok_or_else(|| not_found("addr2line is not installed"))?;
        let mut command = Command::new(addr2line);
        command.args(["-aif", "-e"]).arg(&name);
        let pipe = ToolPipe::start(command, places.deadline).map_err(|error| not_found(&error))?;
        let nm = or_in_path(&places.nm, "nm");
        let names = nm.map(|nm| AddressNames::read(&nm, file, base, places.deadline));
        Ok(Self::Gnu(pipe, names.and_then(Result::ok)))
    }

    /// Returns the functions at an address, the innermost first. `address` is that in the profile.
    pub(super) fn frames(&mut self, address: u64, base: u64) -> Result<Vec<InlinedFrame>, String> {
        let inside = address.wrapping_sub(base);
        match self {
            Self::Llvm(pipe, file) => {
                pipe.write(&format!("CODE {file} {inside:#x}"))?;
                llvm_frames(&pipe.read_line()?)
            }
            Self::Gnu(pipe, names) => {
                pipe.write(&format!("{inside:x}\n{SENTINEL:x}"))?;
                let mut frames = gnu_frames(&mut || pipe.read_line())?;
                let name = names.as_ref().and_then(|names| names.find(address));
                if let (Some(last), Some(name)) = (frames.last_mut(), name)
                    && name.len() > last.function.len() + 1
                {
                    last.function = name.to_string();
                }
                Ok(frames)
            }
        }
    }
}

/// Whether llvm-symbolizer reads a file name in a question as one word. It reads a line break as
/// the end of the question.
fn is_word(name: &str) -> bool {
    !name.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\''))
}

fn or_in_path(found: &Option<PathBuf>, name: &str) -> Option<PathBuf> {
    found.clone().or_else(|| find_in_path(name))
}

/// A running tool that answers questions.
pub(super) struct ToolPipe {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    /// This comes last, so that the tool sees the end of its input before it is ended.
    _process: ToolProcess,
}

impl ToolPipe {
    fn start(mut command: Command, deadline: Option<Instant>) -> Result<Self, String> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let process = ToolProcess::new(child, deadline);
        match (input, output) {
            (Some(input), Some(output)) => Ok(Self {
                input,
                output: BufReader::new(output),
                _process: process,
            }),
            _ => Err("the tool has no input or no output".to_string()),
        }
    }

    fn write(&mut self, question: &str) -> Result<(), String> {
        let written = self.input.write_all(format!("{question}\n").as_bytes());
        written.map_err(|error| error.to_string())
    }

    fn read_line(&mut self) -> Result<String, String> {
        let mut line = Vec::new();
        let mut limited = self.output.by_ref().take(MAX_LINE);
        let read = limited.read_until(b'\n', &mut line);
        read.map_err(|error| error.to_string())?;
        match line.last() {
            Some(b'\n') => Ok(String::from_utf8_lossy(&line).trim().to_string()),
            _ => Err("the tool ended, or its answer is too long".to_string()),
        }
    }
}

/// Parses an answer of llvm-symbolizer.
fn llvm_frames(answer: &str) -> Result<Vec<InlinedFrame>, String> {
    let answer: Value = serde_json::from_str(answer).map_err(|error| error.to_string())?;
    let frames = answer.get("Symbol").and_then(Value::as_array);
    let text = |frame: &Value, key: &str| {
        let text = frame.get(key).and_then(Value::as_str);
        text.unwrap_or_default().to_string()
    };
    let frames = frames.map(Vec::as_slice).unwrap_or_default().iter();
    Ok(frames
        .map(|frame| InlinedFrame {
            function: text(frame, "FunctionName"),
            file: text(frame, "FileName"),
            line: frame.get("Line").and_then(Value::as_i64).unwrap_or(0),
        })
        .collect())
}

/// Reads an answer of addr2line, which ends with its answer to [`SENTINEL`].
fn gnu_frames(
    read: &mut dyn FnMut() -> Result<String, String>,
) -> Result<Vec<InlinedFrame>, String> {
    let first = read()?;
    if !first.starts_with("0x") {
        return Err(format!("unexpected addr2line output: {first}"));
    }
    let mut frames = Vec::new();
    for _ in 0..MAX_FRAMES {
        let Ok(function) = read() else {
            break;
        };
        if function.starts_with("0x") {
            // The sentinel has a function and a place, too.
            _ = read().and_then(|_| read());
            break;
        }
        let Ok(place) = read() else {
            break;
        };
        let (file, line) = gnu_place(&place);
        let frame = InlinedFrame {
            function: match function.as_str() {
                "??" => String::new(),
                _ => function,
            },
            file: file.to_string(),
            line,
        };
        if frame != InlinedFrame::default() {
            frames.push(frame);
        }
    }
    Ok(frames)
}

/// Splits `FILE:LINE`, which may end with a discriminator. If the line is not a number, the whole
/// text is the file.
fn gnu_place(place: &str) -> (&str, i64) {
    if place == "??:0" {
        return ("", 0);
    }
    let Some(colon) = place.rfind(':') else {
        return (place, 0);
    };
    let place = match place.find(" (discriminator") {
        Some(at) if at > 0 => &place[..at],
        _ => place,
    };
    match place.get(colon + 1..).map(str::parse) {
        Some(Ok(line)) => (&place[..colon], line),
        _ => (place, 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_for_questions() {
        for (name, expected) in [
            ("/bin/app", true),
            ("./-M", true),
            ("/bin/a b", false),
            ("/bin/a\nCODE /dev/x", false),
            ("/bin/\"a\"", false),
            ("/bin/a\u{1b}", false),
        ] {
            assert_eq!(is_word(name), expected, "{name:?}");
        }
    }

    fn frame(function: &str, file: &str, line: i64) -> InlinedFrame {
        InlinedFrame {
            function: function.to_string(),
            file: file.to_string(),
            line,
        }
    }

    #[test]
    fn answers_of_llvm() {
        let known = r#"{"Address":"0x1190","ModuleName":"a","Symbol":[
            {"Column":5,"FileName":"/a.c","FunctionName":"f","Line":3,"StartLine":1},
            {"FileName":"","FunctionName":"","Line":0}]}"#;
        assert_eq!(
            llvm_frames(known),
            Ok(vec![frame("f", "/a.c", 3), frame("", "", 0)])
        );
        let unknown = r#"{"Address":"0x1","Error":{"Message":"no such file"}}"#;
        assert_eq!(llvm_frames(unknown), Ok(vec![]));
        let odd = r#"{"Symbol":[{"FileName":1,"Line":"x"},7]}"#;
        assert_eq!(
            llvm_frames(odd),
            Ok(vec![frame("", "", 0), frame("", "", 0)])
        );
        assert!(llvm_frames("f\n/a.c:3").is_err());
    }

    #[test]
    fn answers_of_gnu() {
        let sentinel = "0xffffffffffffffff\n??\n??:0\n";
        let table = [
            (
                "0x1190\nf\n/a.c:3 (discriminator 2)\nmain\n/a.c:9\n",
                vec![frame("f", "/a.c", 3), frame("main", "/a.c", 9)],
            ),
            ("0x1\n??\n??:0\n", vec![]),
            ("0x1\n_start\n??:?\n", vec![frame("_start", "??:?", 0)]),
            ("0x1\nf\nfile\n", vec![frame("f", "file", 0)]),
        ];
        for (answer, expected) in table {
            let answer = format!("{answer}{sentinel}next");
            let mut lines = answer.lines();
            let mut read = || lines.next().map(str::to_string).ok_or_else(String::new);
            assert_eq!(gnu_frames(&mut read), Ok(expected), "{answer}");
            assert_eq!(lines.next(), Some("next"), "{answer}");
        }
        assert!(gnu_frames(&mut || Ok("f".to_string())).is_err());
        let mut line = 0;
        let endless = gnu_frames(&mut || {
            line += 1;
            Ok(if line == 1 { "0x1" } else { "f" }.to_string())
        });
        assert_eq!(endless.map(|frames| frames.len()), Ok(MAX_FRAMES));
    }
}
