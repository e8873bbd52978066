//! jeprof's options, parsed as Perl's Getopt::Long does: one dash or two, shortened names,
//! `--nocum`, in any order.

use std::collections::HashMap;

use super::tool::PerlTool;
use crate::jeprof::option_table::{JEPROF_OPTIONS, JeprofOption};
use crate::kind::FlagKind::{self, Bool, Float, Int, Regex, Text};

/// A parsed command line of jeprof.
#[derive(Debug, Default)]
pub(super) struct JeprofArguments {
    value: HashMap<&'static str, String>,
    /// The arguments that are not options: the program and the profiles.
    pub(super) words: Vec<String>,
}

impl JeprofArguments {
    pub(super) fn parse(args: &[String], tool: PerlTool) -> Result<Self, String> {
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
            let (option, on) = find(name, tool)?;
            let name = option.name;
            let value = match (option.kind, value) {
                (Bool, None) => if on { "1" } else { "" }.to_string(),
                (Bool, Some(_)) => return Err(format!("--{name} takes no value")),
                (_, Some(value)) => value,
                (_, None) => match args.next() {
                    Some(value) => value.clone(),
                    None => return Err(format!("--{name} needs a value")),
                },
            };
            let fits = match option.kind {
                Bool | Text | Regex => true,
                Int => value.parse::<i64>().is_ok(),
                Float => value.parse::<f64>().is_ok(),
            };
            if !fits {
                return Err(format!("--{name} needs a number, not {value:?}"));
            }
            typed.value.insert(name, value);
        }
        Ok(typed)
    }

    /// Returns the value of an option; empty if it was not given, or was turned off.
    pub(super) fn text(&self, name: &str) -> &str {
        self.value.get(name).map_or("", String::as_str)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        !self.text(name).is_empty()
    }

    /// Returns the options that were given, in the order of the table.
    pub(super) fn given_options(&self) -> impl Iterator<Item = &'static JeprofOption> {
        JEPROF_OPTIONS
            .iter()
            .filter(|option| self.is_on(option.name))
    }
}

/// Finds an option by its name on the command line. Also returns whether the option is turned on.
/// The name may be shortened as long as only one option matches.
fn find(typed: &str, tool: PerlTool) -> Result<(&'static JeprofOption, bool), String> {
    let name = typed.to_ascii_lowercase();
    if let Some(found) = find_by_name(&name, tool)? {
        return Ok((found, true));
    }
    let negated = name.strip_prefix("no").map(|n| n.trim_start_matches('-'));
    match negated.map(|name| find_by_name(name, tool)) {
        Some(Ok(Some(option))) if option.kind == FlagKind::Bool => Ok((option, false)),
        _ => Err(format!("--{typed} is not an option of {}", tool.command())),
    }
}

fn find_by_name(name: &str, tool: PerlTool) -> Result<Option<&'static JeprofOption>, String> {
    let options = || JEPROF_OPTIONS.iter().filter(|option| option.is_of(tool));
    if let Some(option) = options().find(|option| option.name == name) {
        return Ok(Some(option));
    }
    let mut found = options().filter(|option| option.name.starts_with(name));
    match (found.next(), found.next()) {
        (one, None) => Ok(one),
        (Some(one), Some(two)) => Err(format!(
            "--{name} is ambiguous: --{} or --{}; type more of it",
            one.name, two.name
        )),
        (None, Some(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<JeprofArguments, String> {
        let args: Vec<String> = line.split(' ').map(str::to_string).collect();
        JeprofArguments::parse(&args, PerlTool::Jeprof)
    }

    #[test]
    fn options_come_in_any_order_and_may_be_short() {
        let typed = parse("prog --text heap -cum --show --base=b --focus x -- --odd").unwrap();
        assert_eq!(typed.words, ["prog", "heap", "--odd"]);
        assert!(typed.is_on("text") && typed.is_on("cum") && typed.is_on("show_bytes"));
        assert_eq!((typed.text("base"), typed.text("focus")), ("b", "x"));
        assert!(!parse("--cum --nocum x").unwrap().is_on("cum"));
        assert!(parse("--INUSE_SPACE x").unwrap().is_on("inuse_space"));
    }

    #[test]
    fn wrong_options() {
        for (line, says) in [
            ("--bananas", "--bananas is not an option of jeprof"),
            (
                "--in x",
                "--in is ambiguous: --interactive or --inuse_space",
            ),
            ("--base", "--base needs a value"),
            ("--nodecount=x", "--nodecount needs a number, not \"x\""),
            ("--text=1", "--text takes no value"),
        ] {
            let why = parse(line).unwrap_err();
            assert!(why.contains(says), "{line}: {why}");
        }
    }

    #[test]
    fn each_script_has_its_own_options() {
        for (option, is_of_jeprof) in [("--retain=x", true), ("--no_strip_temp", false)] {
            for tool in [PerlTool::Jeprof, PerlTool::GooglePprof] {
                let parsed = JeprofArguments::parse(&[option.to_string()], tool);
                let is_of = (tool == PerlTool::Jeprof) == is_of_jeprof;
                assert_eq!(parsed.is_ok(), is_of, "{option} {tool:?}");
            }
        }
    }
}
