//! jeprof's options, read as Perl's Getopt::Long reads them: one dash or two, shortened names, `--nocum`, in any order.

use std::collections::HashMap;

/// What an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nothing; `--no` before its name turns it off.
    Bool,
    /// A whole number.
    Int,
    /// A number.
    Float,
    /// A text.
    Text,
}

use Kind::{Bool, Float, Int, Text};

/// What becomes of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// An output; at most one.
    Output,
    /// Done here.
    Here,
    /// Passed on to the part that is pprof's, under the same name.
    Passed,
    /// Of jeprof's own ways to find symbols or draw; it has no say here.
    NoSay,
    /// Not done; what to use instead.
    Instead(&'static str),
}

use Fate::{Here, Instead, NoSay, Output, Passed};

const VIEWER: &str = "heapprof starts no viewers; write a picture with --svg, and open that";

/// All options: name, what it takes, its fate, help.
#[rustfmt::skip]
pub(super) const OPTIONS: &[(&str, Kind, Fate, &str)] = &[
    ("text", Bool, Output, "Functions by their values (default)"),
    ("collapsed", Bool, Output, "Stacks on one line each, for flame graphs"),
    ("list", Text, Output, "Source lines of functions that match"),
    ("dot", Bool, Output, "The call graph for Graphviz"),
    ("svg", Bool, Output, "The call graph as SVG (needs Graphviz)"),
    ("gif", Bool, Output, "The call graph as GIF (needs Graphviz)"),
    ("pdf", Bool, Output, "The call graph as PDF (needs Graphviz)"),
    ("ps", Bool, Output, "The call graph as PostScript (needs Graphviz)"),
    ("callgrind", Bool, Output, "For KCachegrind"),
    ("cum", Bool, Here, "Sort by values with all that was called"),
    ("base", Text, Passed, "Profile to subtract"),
    ("drop_negative", Bool, Here, "Take what shrank since the base for 0"),
    ("functions", Bool, Passed, "By function (default)"),
    ("lines", Bool, Passed, "By line"),
    ("addresses", Bool, Passed, "By address"),
    ("files", Bool, Passed, "By file"),
    ("inuse_space", Bool, Passed, "Bytes in use (default)"),
    ("inuse_objects", Bool, Passed, "Objects in use"),
    ("alloc_space", Bool, Passed, "Bytes ever allocated"),
    ("alloc_objects", Bool, Passed, "Objects ever allocated"),
    ("show_bytes", Bool, Here, "Bytes, not megabytes"),
    ("focus", Text, Here, "Only stacks with a match"),
    ("ignore", Text, Here, "No stacks with a match"),
    ("retain", Text, Here, "Only matching functions of each stack"),
    ("exclude", Text, Here, "No matching functions of each stack"),
    ("thread", Text, Here, "Of one thread, or * for each"),
    ("nodecount", Int, Passed, "Most functions in a graph"),
    ("nodefraction", Float, Passed, "Hide functions below this share in a graph"),
    ("edgefraction", Float, Passed, "Hide edges below this share in a graph"),
    ("total_delay", Bool, Passed, "Delay in contention profiles"),
    ("contentions", Bool, Passed, "Number of delays"),
    ("mean_delay", Bool, Passed, "Mean delay"),
    ("seconds", Int, Passed, "How long a server is to collect"),
    ("help", Bool, Here, "This text"),
    ("version", Bool, Here, "Version"),
    ("interactive", Bool, Instead("there is no interactive shell; --text prints at once"), ""),
    ("gv", Bool, Instead(VIEWER), ""),
    ("evince", Bool, Instead(VIEWER), ""),
    ("web", Bool, Instead(VIEWER), ""),
    ("disasm", Text, Instead("there is no disassembler; --text --addresses shows values by address"), ""),
    ("symbols", Bool, Instead("heapprof symbolize gives a profile's addresses their names"), ""),
    ("raw", Bool, Instead("heapprof symbolize -o OUT.pb.gz FILE writes a profile that needs no program"), ""),
    ("test", Bool, Instead("heapprof's tests come with its source"), ""),
    ("maxdegree", Int, NoSay, ""),
    ("scale", Int, NoSay, ""),
    ("heapcheck", Bool, NoSay, ""),
    ("add_lib", Text, NoSay, ""),
    ("lib_prefix", Text, NoSay, ""),
    ("tools", Text, NoSay, ""),
    ("debug", Bool, NoSay, ""),
    ("debug-syms-by-id", Bool, NoSay, ""),
];

/// What was typed.
#[derive(Debug, Default)]
pub(super) struct Typed {
    value: HashMap<&'static str, String>,
    /// The program and the profiles.
    pub(super) words: Vec<String>,
}

impl Typed {
    pub(super) fn parse(args: &[String]) -> Result<Self, String> {
        let mut typed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            if arg == "--" {
                typed.words.extend(args.cloned());
                break;
            }
            let body = arg.strip_prefix("--").or_else(|| arg.strip_prefix('-'));
            let Some(body) = body.filter(|body| !body.is_empty()) else {
                typed.words.push(arg.clone());
                continue;
            };
            let (name, value) = match body.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (body, None),
            };
            let (name, kind, on) = find(name)?;
            let value = match (kind, value) {
                (Bool, None) => if on { "1" } else { "" }.to_string(),
                (Bool, Some(_)) => return Err(format!("--{name} takes no value")),
                (_, Some(value)) => value,
                (_, None) => match args.next() {
                    Some(value) => value.clone(),
                    None => return Err(format!("--{name} wants a value")),
                },
            };
            let fits = match kind {
                Bool | Text => true,
                Int => value.parse::<i64>().is_ok(),
                Float => value.parse::<f64>().is_ok(),
            };
            if !fits {
                return Err(format!("--{name} wants a number, not {value:?}"));
            }
            typed.value.insert(name, value);
        }
        Ok(typed)
    }

    /// The value of an option; empty when it was not given, or turned off.
    pub(super) fn text(&self, name: &str) -> &str {
        self.value.get(name).map_or("", String::as_str)
    }

    pub(super) fn on(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// The options that were given, in the order of the table.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, Kind, Fate)> {
        let all = OPTIONS.iter();
        all.filter(|option| self.on(option.0))
            .map(|&(name, kind, fate, _)| (name, kind, fate))
    }
}

/// The option of a name, whole or shortened as far as it stays the only one, and whether it is turned on.
fn find(typed: &str) -> Result<(&'static str, Kind, bool), String> {
    let name = typed.to_ascii_lowercase();
    if let Some(found) = by_name(&name)? {
        return Ok((found.0, found.1, true));
    }
    let negated = name.strip_prefix("no").map(|n| n.trim_start_matches('-'));
    match negated.map(by_name) {
        Some(Ok(Some((name, Bool)))) => Ok((name, Bool, false)),
        _ => Err(format!("--{typed} is no option of jeprof")),
    }
}

fn by_name(name: &str) -> Result<Option<(&'static str, Kind)>, String> {
    let as_found = |option: &(&'static str, Kind, Fate, &str)| (option.0, option.1);
    if let Some(option) = OPTIONS.iter().find(|option| option.0 == name) {
        return Ok(Some(as_found(option)));
    }
    let mut found = OPTIONS.iter().filter(|option| option.0.starts_with(name));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(Some(as_found(one))),
        (Some(one), Some(two)) => Err(format!(
            "--{name} may be --{} or --{}; type more of it",
            one.0, two.0
        )),
        (None, _) => Ok(None),
    }
}

/// All options with their help, a line each.
pub(super) fn help() -> String {
    let mut text = "Options:\n".to_string();
    for (name, kind, _, help) in OPTIONS.iter().filter(|option| !option.3.is_empty()) {
        let value = match kind {
            Bool => "",
            Int => "=N",
            Float => "=X",
            Text => "=TEXT",
        };
        let name = format!("--{name}{value}");
        text += &format!("  {name:<22} {help}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Typed, String> {
        let args: Vec<String> = line.split(' ').map(str::to_string).collect();
        Typed::parse(&args)
    }

    #[test]
    fn options_come_in_any_order_and_may_be_short() {
        let typed = parse("prog --text heap -cum --show --base=b --focus x -- --odd").unwrap();
        assert_eq!(typed.words, ["prog", "heap", "--odd"]);
        assert!(typed.on("text") && typed.on("cum") && typed.on("show_bytes"));
        assert_eq!((typed.text("base"), typed.text("focus")), ("b", "x"));
        assert!(!parse("--cum --nocum x").unwrap().on("cum"));
        assert!(parse("--INUSE_SPACE x").unwrap().on("inuse_space"));
    }

    #[test]
    fn wrong_options() {
        for (line, says) in [
            ("--bananas", "--bananas is no option of jeprof"),
            ("--in x", "--in may be --inuse_space or --inuse_objects"),
            ("--base", "--base wants a value"),
            ("--nodecount=x", "--nodecount wants a number, not \"x\""),
            ("--text=1", "--text takes no value"),
        ] {
            let why = parse(line).unwrap_err();
            assert!(why.contains(says), "{line}: {why}");
        }
    }
}
