//! Go's flag syntax: `-flag`, `--flag`, `-flag=x`, `-flag x`. The first word that is not a flag
//! ends the flags.

use std::collections::HashMap;

use crate::kind::FlagKind;
use crate::pprof::flag_table::{PprofFlag, find_flag};
use crate::pprof::go_numbers::parse_float;

/// A parsed command line of pprof: the values of the flags, and the words after them.
#[derive(Clone, Debug, Default)]
pub(super) struct PprofArguments {
    value: HashMap<&'static str, String>,
    /// The binary and the sources.
    pub(super) words: Vec<String>,
    /// Flags that were given more than once. The last occurrence counts.
    pub(super) repeated: Vec<&'static str>,
}

/// Reason why a command line is not executed.
#[derive(Debug)]
pub(super) enum FlagError {
    /// The user asked for the help with `-h`.
    Help,
    /// The command line is invalid, for the reason in the text.
    Invalid(String),
}

impl PprofArguments {
    /// Parses a command line according to the table of flags.
    pub(super) fn parse(args: &[String]) -> Result<Self, FlagError> {
        let mut typed = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let Some(body) = arg.strip_prefix('-').filter(|body| !body.is_empty()) else {
                typed.words.push(arg.clone());
                break;
            };
            if body == "-" {
                break;
            }
            let body = body.strip_prefix('-').unwrap_or(body);
            if body.is_empty() || body.starts_with(['-', '=']) {
                return Err(FlagError::Invalid(format!("bad flag syntax: {arg}")));
            }
            let (name, value) = match body.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (body, None),
            };
            let Some(flag) = find_flag(name) else {
                return Err(match name {
                    "h" | "help" => FlagError::Help,
                    _ => FlagError::Invalid(format!("flag provided but not defined: -{name}")),
                });
            };
            let value = match (flag.kind, value) {
                (_, Some(value)) => value,
                (FlagKind::Bool, None) => "true".to_string(),
                (_, None) => match args.next() {
                    Some(value) => value.clone(),
                    None => {
                        return Err(FlagError::Invalid(format!(
                            "flag needs an argument: -{name}"
                        )));
                    }
                },
            };
            check(flag, &value).map_err(FlagError::Invalid)?;
            if typed.value.insert(flag.name, value).is_some() {
                typed.repeated.push(flag.name);
            }
        }
        typed.words.extend(args.cloned());
        Ok(typed)
    }

    /// Returns the flags that were typed, sorted by name.
    pub(super) fn flags(&self) -> Vec<&'static str> {
        let mut flags: Vec<&str> = self.value.keys().copied().collect();
        flags.sort_unstable();
        flags
    }

    /// Changes the value of a flag to a value that fits it.
    pub(super) fn set(&mut self, name: &'static str, value: String) {
        self.value.insert(name, value);
    }

    /// Returns the value of a flag as text, or the default value of the flag.
    pub(super) fn text(&self, name: &str) -> &str {
        match self.value.get(name) {
            Some(value) => value,
            None => find_flag(name).map_or("", |flag| flag.default),
        }
    }

    /// Whether a flag is on.
    pub(super) fn is_on(&self, name: &str) -> bool {
        boolean(self.text(name)).unwrap_or(false)
    }

    /// Returns the value of a flag as a whole number.
    pub(super) fn int(&self, name: &str) -> i64 {
        integer(self.text(name)).unwrap_or(0)
    }

    /// Returns the value of a flag as a number that may have a fraction.
    pub(super) fn float(&self, name: &str) -> f64 {
        parse_float(self.text(name)).unwrap_or(0.0)
    }
}

fn check(flag: &PprofFlag, value: &str) -> Result<(), String> {
    let name = flag.name;
    let good = match flag.kind {
        FlagKind::Text | FlagKind::Regex => return Ok(()),
        FlagKind::Bool if boolean(value).is_none() => {
            return Err(format!("invalid boolean value {value:?} for -{name}"));
        }
        FlagKind::Bool => true,
        FlagKind::Int => integer(value).is_some(),
        FlagKind::Float => parse_float(value).is_some(),
    };
    match good {
        true => Ok(()),
        false => Err(format!(
            "invalid value {value:?} for flag -{name}: not a number"
        )),
    }
}

/// Reads a truth value as Go's flags do.
pub(super) fn boolean(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Reads a whole number, which is decimal or begins with `0x`, `0o`, `0b` or 0.
fn integer(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(['-', '+']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let lower = digits.to_ascii_lowercase();
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2), ("0", 8)];
    let based = prefixes.iter().find_map(|&(prefix, base)| {
        let rest = lower.strip_prefix(prefix)?;
        (!rest.is_empty()).then_some((rest, base))
    });
    let (digits, base) = based.unwrap_or((&lower, 10));
    let digits = match base {
        10 => digits.to_string(),
        _ => digits.replace('_', ""),
    };
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let size = i128::from_str_radix(&digits, base).ok()?;
    i64::try_from(if negative { -size } else { size }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<PprofArguments, FlagError> {
        let args: Vec<String> = line.split(' ').map(str::to_string).collect();
        PprofArguments::parse(&args)
    }

    #[test]
    fn flags_end_at_the_first_word() {
        let typed = parse("-top --cum=false -nodecount 0x10 -unit=kb a -lines").unwrap();
        assert!(typed.is_on("top") && !typed.is_on("cum") && !typed.is_on("lines"));
        assert_eq!((typed.int("nodecount"), typed.text("unit")), (16, "kb"));
        assert_eq!(typed.words, ["a", "-lines"]);
        assert_eq!(parse("-top -- -x").unwrap().words, ["-x"]);
        assert_eq!(parse("- -top").unwrap().words, ["-", "-top"]);
        assert_eq!(parse("-base a -base b c").unwrap().text("base"), "b");
    }

    #[test]
    fn what_is_not_typed_is_the_default() {
        let typed = parse("x").unwrap();
        assert_eq!(typed.int("nodecount"), -1);
        assert_eq!(typed.float("nodefraction"), 0.005);
        assert!(typed.is_on("trim") && !typed.is_on("mean"));
        assert_eq!(typed.text("unit"), "minimum");
    }

    #[test]
    fn wrong_lines() {
        for (line, says) in [
            ("-bananas", "flag provided but not defined: -bananas"),
            ("-unit", "flag needs an argument: -unit"),
            ("-top=maybe", "invalid boolean value \"maybe\" for -top"),
            (
                "-nodecount=1.5",
                "invalid value \"1.5\" for flag -nodecount",
            ),
            ("-divide_by=x", "invalid value \"x\" for flag -divide_by"),
            ("---top", "bad flag syntax: ---top"),
            ("-=x", "bad flag syntax: -=x"),
        ] {
            match parse(line) {
                Err(FlagError::Invalid(why)) => assert!(why.contains(says), "{why}"),
                other => panic!("{line}: {other:?}"),
            }
        }
        assert!(matches!(parse("-h"), Err(FlagError::Help)));
        assert!(matches!(parse("-top --help"), Err(FlagError::Help)));
    }

    #[test]
    fn integers() {
        for (text, expected) in [
            ("12", Some(12)),
            ("-0x10", Some(-16)),
            ("010", Some(8)),
            ("0b11", Some(3)),
            ("0", Some(0)),
            ("9223372036854775808", None),
            ("-9223372036854775808", Some(i64::MIN)),
            ("", None),
            ("1_0", None),
            ("--1", None),
        ] {
            assert_eq!(integer(text), expected, "{text}");
        }
    }
}
