//! What the tools of binutils say about a file: its routines (nm), its instructions (objdump), and
//! the source lines of addresses (addr2line).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use regex::Regex;

use crate::jeprof::names::NameShortener;
use crate::tool_process::{MAX_INSTRUCTION_BYTES, MAX_SYMBOL_BYTES, ToolCommand, ToolError};

/// A function of a file, as nm lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Routine {
    /// The shortened name.
    pub(super) name: String,
    /// The address in the file.
    pub(super) begin: u64,
    /// The address of the next symbol.
    pub(super) end: u64,
}

/// The functions of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct RoutineTable {
    /// The functions that match, sorted by their shortened names.
    pub(super) routines: Vec<Routine>,
    /// Whether nm lists the function `_fini`.
    pub(super) has_fini: bool,
}

/// An instruction, as objdump prints it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    /// The address in the process.
    pub(super) begin: u64,
    /// The address of the next instruction.
    pub(super) end: u64,
    /// The source file and line; an empty name and -1 if they are unknown.
    pub(super) file: String,
    pub(super) line: i64,
    pub(super) text: String,
}

/// Returns the functions of a file whose names match. Exported functions are only looked through if
/// no other function matches.
pub(super) fn routines(file: &Path, wanted: &Regex, names: &NameShortener) -> Result<RoutineTable> {
    let file = debug_file(file).unwrap_or_else(|| file.to_path_buf());
    let mut table = RoutineTable::default();
    for options in [&["-n", "--demangle"][..], &["-D", "-n", "--demangle"]] {
        let mut lines = SymbolLines::new(wanted);
        let command = command("nm", options, &file);
        run(&command, MAX_SYMBOL_BYTES, &mut |line| lines.read(line))?;
        let (found, has_fini) = lines.finish();
        table.has_fini |= has_fini;
        if !found.is_empty() {
            table.routines = sorted(found, names);
            break;
        }
    }
    Ok(table)
}

/// Reads nm's lines, which are sorted by address. The first symbol of an address counts, unless a
/// later one is code.
struct SymbolLines<'a> {
    wanted: &'a Regex,
    begin: u64,
    begin_text: String,
    name: String,
    found: BTreeMap<String, (u64, u64)>,
    has_fini: bool,
}

/// The function at the end of a program, which the scripts look for.
const LAST_FUNCTION: &str = "_fini";

impl<'a> SymbolLines<'a> {
    fn new(wanted: &'a Regex) -> Self {
        Self {
            wanted,
            begin: 0,
            begin_text: "0".to_string(),
            name: String::new(),
            found: BTreeMap::new(),
            has_fini: false,
        }
    }

    fn read(&mut self, line: &str) {
        let Some((address, kind, name)) = symbol(line) else {
            return;
        };
        let Ok(begin) = u64::from_str_radix(address, 16) else {
            return;
        };
        if address == self.begin_text {
            if kind.eq_ignore_ascii_case(&'t') {
                self.name = name.to_string();
            }
            return;
        }
        self.has_fini |= name == LAST_FUNCTION;
        self.add(begin);
        self.begin = begin;
        self.begin_text = address.to_string();
        // The address tells functions with the same name apart.
        self.name = format!("{name}<{address}>");
    }

    fn add(&mut self, end: u64) {
        if self.wanted.is_match(&self.name) {
            let name = std::mem::take(&mut self.name);
            self.found.insert(name, (self.begin, end));
        }
    }

    fn finish(mut self) -> (BTreeMap<String, (u64, u64)>, bool) {
        self.add(self.begin);
        (self.found, self.has_fini)
    }
}

/// Splits a line of nm into address, kind and name. Returns `None` for a line without an address.
fn symbol(line: &str) -> Option<(&str, char, &str)> {
    let line = line.trim_start();
    let (address, rest) = line.split_once(' ')?;
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    if address.is_empty() || !address.chars().all(is_hex) {
        return None;
    }
    let mut rest = rest.chars();
    let kind = rest.next()?;
    let name = rest.as_str().strip_prefix(' ')?;
    (!name.is_empty()).then_some((address, kind, name))
}

fn sorted(found: BTreeMap<String, (u64, u64)>, names: &NameShortener) -> Vec<Routine> {
    let routines = found.into_iter().map(|(name, (begin, end))| Routine {
        name: names.shorten(&name),
        begin,
        end,
    });
    let mut routines: Vec<Routine> = routines.collect();
    // Functions with the same shortened name stay in the order of their full names.
    routines.sort_by(|a, b| a.name.cmp(&b.name));
    routines
}

/// Returns the file with the symbols of a library that is installed without them.
pub(super) fn debug_file(file: &Path) -> Option<PathBuf> {
    let file = file.to_str().filter(|file| file.starts_with('/'))?;
    ["", ".debug"]
        .iter()
        .map(|end| PathBuf::from(format!("/usr/lib/debug{file}{end}")))
        .find(|path| path.is_file())
}

/// Returns the difference between the address and the file offset of a file's code section. Returns
/// 0 if the file has no such section.
pub(super) fn code_shift(file: &Path) -> Result<u64> {
    let mut shift = None;
    let command = command("objdump", &["-h"], file);
    run(&command, MAX_SYMBOL_BYTES, &mut |line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if let [_, ".text", _, address, _, offset, ..] = words[..]
            && let (Ok(address), Ok(offset)) = (
                u64::from_str_radix(address, 16),
                u64::from_str_radix(offset, 16),
            )
        {
            shift = shift.or(Some(address.wrapping_sub(offset)));
        }
    })?;
    Ok(shift.unwrap_or_default())
}

/// Returns the instructions of a routine. `bias` is the difference between addresses in the process
/// and in the file.
pub(super) fn instructions(file: &Path, routine: &Routine, bias: u64) -> Result<Vec<Instruction>> {
    let place = Regex::new(r"\s*([^:\s]+):(\d+)\s*$")?;
    let instruction = Regex::new(r"^ +([0-9a-f]+):\s*(.*)")?;
    let mut found: Vec<Instruction> = Vec::new();
    let (mut file_name, mut number) = (String::new(), -1);
    let begin = format!("--start-address=0x{:016x}", routine.begin);
    let end = format!("--stop-address=0x{:016x}", routine.end);
    let options = ["-C", "-d", "-l", "--no-show-raw-insn", &begin, &end];
    let command = command("objdump", &options, file);
    run(&command, MAX_INSTRUCTION_BYTES, &mut |line| {
        if let Some(found) = place.captures(line) {
            file_name = found[1].to_string();
            number = found[2].parse().unwrap_or(i64::MAX);
        } else if let Some(parts) = instruction.captures(line)
            && let Ok(address) = u64::from_str_radix(&parts[1], 16)
        {
            let begin = address.wrapping_add(bias);
            if let Some(last) = found.last_mut() {
                last.end = begin;
            }
            found.push(Instruction {
                begin,
                // The scripts forget the bias here. So the last instruction of a routine has no
                // values, if its file is not loaded at its own addresses.
                end: routine.end,
                file: file_name.clone(),
                line: number,
                text: parts[2].to_string(),
            });
        }
    })?;
    Ok(found)
}

/// Returns the source line of each address of a file, as addr2line prints it: that of the function
/// that contains the address, or, without `inlines`, that of the innermost inlined function.
pub(super) fn places(file: &Path, addresses: &[u64], inlines: bool) -> Result<Vec<String>> {
    let mut places = Vec::with_capacity(addresses.len());
    let mut input = String::new();
    for address in addresses {
        input.push_str(&format!("{address:016x}\n"));
    }
    let options: &[&str] = match inlines {
        true => &["-a", "-f", "-C", "-i", "-e"],
        false => &["-a", "-f", "-C", "-e"],
    };
    let mut command = command("addr2line", options, file);
    command.input(input);
    // An address is followed by two lines for each function: its name and its place.
    let mut is_place = false;
    run(
        &command,
        MAX_SYMBOL_BYTES,
        &mut |line| match line.strip_prefix("0x") {
            Some(digits) if !is_place && digits.bytes().all(|b| b.is_ascii_hexdigit()) => {
                places.push(String::new());
            }
            _ => {
                if let Some(last) = places.last_mut()
                    && is_place
                {
                    *last = line.to_string();
                }
                is_place = !is_place;
            }
        },
    )?;
    Ok(places)
}

/// Makes the command line of a tool that reads a file.
fn command(tool: &str, options: &[&str], file: &Path) -> ToolCommand {
    let mut command = ToolCommand::new(tool);
    for option in options {
        command.arg(option);
    }
    command.file(file);
    command
}

/// Runs a tool, and calls `read` with each line that it prints, without line ends. A tool that
/// fails has printed nothing that can be read.
fn run(command: &ToolCommand, most: u64, read: &mut dyn FnMut(&str)) -> Result<()> {
    let ran = command.run(most, &mut |line| {
        let line = line.strip_suffix('\n').unwrap_or(line);
        match line.contains('\r') {
            true => read(&line.replace('\r', "")),
            false => read(line),
        }
    });
    match ran {
        Ok(()) | Err(ToolError::Failed(_)) => Ok(()),
        Err(ToolError::NotInstalled(_)) => bail!(
            "{} is not installed, and this command reads code with it; install the package \
             binutils, or use top --lines",
            command.name()
        ),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// nm's output for a small program.
    const SYMBOLS: &str = "\
                 U malloc
0000000000001000 T _init
0000000000001120 W weak_alias
0000000000001120 T shop::put(int)
0000000000001120 t other_alias
0000000000001200 t shop::put(long)
0000000000001300 T main
0000000000001400 T _fini
0000000000004000 D data
";

    #[test]
    fn routines_that_match() {
        let table = |wanted: &str| {
            let wanted = Regex::new(wanted).unwrap();
            let mut lines = SymbolLines::new(&wanted);
            SYMBOLS.lines().for_each(|line| lines.read(line));
            let (found, has_fini) = lines.finish();
            assert!(has_fini);
            let routines = sorted(found, &NameShortener::new(false).unwrap());
            let text = |r: &Routine| format!("{} {:x}-{:x}", r.name, r.begin, r.end);
            routines.iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(table("put"), ["shop::put 1200-1300"]);
        assert_eq!(
            table("^main|alias|data"),
            ["data 4000-4000", "main 1300-1400", "other_alias 1120-1200"]
        );
        assert_eq!(table("00001300"), ["main 1300-1400"]);
        assert!(table("nothing").is_empty());
    }

    #[test]
    fn lines_of_nm() {
        for (line, expected) in [
            (
                "0000000000001000 T main",
                Some(("0000000000001000", 'T', "main")),
            ),
            (" 10 t a b", Some(("10", 't', "a b"))),
            ("                 U malloc", None),
            ("nm: file: no symbols", None),
            ("0010 T ", None),
            ("0010 T", None),
            ("", None),
        ] {
            assert_eq!(symbol(line), expected, "{line}");
        }
    }

    #[test]
    fn a_tool_that_is_not_there() {
        let command = command("heapprof-no-such-tool", &[], Path::new("file"));
        let error = run(&command, 1, &mut |_| {}).unwrap_err();
        assert!(format!("{error:#}").contains("install the package binutils"));
    }
}
