//! The command `callgrind`, in the scripts' form: positions are `file:line:function`, and a call
//! between two positions has the value of all stacks with it.
//!
//! jeprof's pattern for calls does not know a line `?`. It then takes a part of the call for a
//! position, or, if no part fits, writes a call that depends on the order of a hash table. Only in
//! that case the line is 0 here.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;

use anyhow::Result;
use heapprof_profile::Location;
use regex::Regex;

use crate::jeprof::stacks::JeprofStacks;
use crate::jeprof::tool::PerlTool;

/// Writes the calls as a callgrind file.
pub(super) fn write(
    stacks: &JeprofStacks,
    column: usize,
    tool: PerlTool,
    out: &mut dyn Write,
) -> Result<()> {
    // This is the scripts' pattern for a call. The name of a caller ends at a blank, and then the
    // callee is left out.
    let pattern = Regex::new(r"([^:]+):(\d+):([^ ]+)( -> ([^:]+):(\d+):(.+))?")?;
    let mut calls: BTreeMap<String, i128> = BTreeMap::new();
    for (call, value) in all_calls(stacks, column, tool) {
        let call = match pattern.is_match(&call) {
            true => call,
            false => call.replace(":?:", ":0:"),
        };
        *calls.entry(call).or_default() += value;
    }
    let mut rows: Vec<CallRow> = calls
        .iter()
        .map(|(text, &value)| CallRow::new(&pattern, text, value))
        .collect();
    rows.sort_by(|a, b| (a.caller.file, a.sort_line).cmp(&(b.caller.file, b.sort_line)));
    let (mut files, mut functions) = (NameNumbers::default(), NameNumbers::default());
    write!(out, "events: Hits\n\n")?;
    for row in rows {
        files.write("fl", row.caller.file, out)?;
        functions.write("fn", row.caller.function, out)?;
        if let Some(callee) = row.callee {
            files.write("cfl", callee.file, out)?;
            functions.write("cfn", callee.function, out)?;
            writeln!(out, "calls={} {}", row.value, callee.line)?;
        }
        write!(out, "{} {}\n\n", row.caller.line, row.value)?;
    }
    Ok(())
}

/// A row of the file: a position with its own value, or a call.
struct CallRow<'a> {
    caller: CallPosition<'a>,
    callee: Option<CallPosition<'a>>,
    value: i128,
    sort_line: u128,
}

struct CallPosition<'a> {
    file: &'a str,
    line: &'a str,
    function: &'a str,
}

impl<'a> CallRow<'a> {
    fn new(pattern: &Regex, text: &'a str, value: i128) -> Self {
        let found = pattern.captures(text);
        let group = |i| found.as_ref().and_then(|f| f.get(i)).map(|m| m.as_str());
        let caller = CallPosition {
            file: group(1).unwrap_or(text),
            line: group(2).unwrap_or_default(),
            function: group(3).unwrap_or_default(),
        };
        let callee = group(6).map(|line| CallPosition {
            file: group(5).unwrap_or_default(),
            line,
            function: group(7).unwrap_or_default(),
        });
        Self {
            sort_line: caller.line.parse().unwrap_or_default(),
            caller,
            callee,
            value,
        }
    }
}

/// Returns the calls with their values, by their text.
fn all_calls(stacks: &JeprofStacks, column: usize, tool: PerlTool) -> BTreeMap<String, i128> {
    let profile = &stacks.profile;
    let mut calls: BTreeMap<String, i128> = BTreeMap::new();
    let mut add = |call: String, value| *calls.entry(call).or_default() += value;
    for i in 0..profile.samples.len() {
        let sample = profile.samples.values(i);
        let value = i128::from(sample.get(column).copied().unwrap_or_default());
        let locations = profile.samples.stack(i).iter();
        let locations = locations.filter_map(|l| profile.location.get(l.index()));
        let mut positions: Vec<String> = match tool {
            PerlTool::Jeprof => locations.map(|l| outermost_position(stacks, l)).collect(),
            PerlTool::GooglePprof => locations.flat_map(|l| all_positions(stacks, l)).collect(),
        };
        // A stack without addresses has the value of an unknown position.
        if positions.is_empty() {
            positions.push(UNKNOWN_POSITION.to_string());
        }
        // google-pprof counts the calls between as many positions as the stack has addresses, and
        // leaves out the last of them.
        let counted = match tool {
            PerlTool::Jeprof => positions.len(),
            PerlTool::GooglePprof => profile.samples.stack(i).len().saturating_sub(1),
        };
        for pair in positions.windows(2).take(counted.saturating_sub(1)) {
            add(format!("{} -> {}", pair[1], pair[0]), value);
        }
        add(positions.swap_remove(0), value);
    }
    calls
}

/// Position of an address without a symbol.
const UNKNOWN_POSITION: &str = "??:0:unknown";

/// Returns the position of the function that contains an address.
fn outermost_position(stacks: &JeprofStacks, location: &Location) -> String {
    match stacks.frames(location).last() {
        Some((name, place)) => position(name, place),
        None => UNKNOWN_POSITION.to_string(),
    }
}

/// Returns the positions of all functions at an address, innermost first.
fn all_positions(stacks: &JeprofStacks, location: &Location) -> Vec<String> {
    let mut positions: Vec<String> = stacks
        .frames(location)
        .map(|(name, place)| position(name, place) + "[inline]")
        .collect();
    match positions.last_mut() {
        Some(outermost) => outermost.truncate(outermost.len() - "[inline]".len()),
        None => positions.push(UNKNOWN_POSITION.to_string()),
    }
    positions
}

fn position(name: &str, place: String) -> String {
    let place = match place.as_str() {
        "?" => "??:0",
        place => place,
    };
    let name = match name {
        "" => "??",
        name => name,
    };
    format!("{place}:{name}")
}

/// Numbers of names. A name that was written before is written as its number.
#[derive(Default)]
struct NameNumbers<'a> {
    numbers: HashMap<&'a str, usize>,
}

impl<'a> NameNumbers<'a> {
    fn write(&mut self, key: &str, name: &'a str, out: &mut dyn Write) -> Result<()> {
        // A number would not make such a name shorter.
        if name.len() <= 3 {
            writeln!(out, "{key}={name}")?;
            return Ok(());
        }
        let next = self.numbers.len() + 1;
        match self.numbers.get(name) {
            Some(number) => writeln!(out, "{key}=({number})")?,
            None => {
                self.numbers.insert(name, next);
                writeln!(out, "{key}=({next}) {name}")?;
            }
        }
        Ok(())
    }
}
