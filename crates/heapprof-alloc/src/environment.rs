//! Options from environment variables, by the names and in the forms that `libheapprof.so` reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

use heapprof_collect::{Format, Mode, Options};

/// An environment variable that [`start_from_environment`](crate::start_from_environment) obeys.
#[derive(Clone, Copy, Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// What it may be set to.
    pub expected: &'static str,
    read: fn(&str, &mut Options) -> Option<()>,
}

/// A variable with a value that is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misunderstood {
    /// The variable's name.
    pub name: &'static str,
    /// What it may be set to.
    pub expected: &'static str,
}

impl std::fmt::Display for Misunderstood {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: expected {}", self.name, self.expected)
    }
}

impl std::error::Error for Misunderstood {}

const fn variable(
    name: &'static str,
    expected: &'static str,
    read: fn(&str, &mut Options) -> Option<()>,
) -> Variable {
    Variable {
        name,
        expected,
        read,
    }
}

/// The variables besides `HEAPPROF_OUTPUT`, which is a path pattern and must be set for the others to matter.
#[rustfmt::skip]
pub const VARIABLES: &[Variable] = &[
    variable("HEAPPROF_MODE", "sampled or exact", |text, to| {
        to.mode = match text { "sampled" => Mode::Sampled, "exact" => Mode::Exact, _ => return None };
        Some(())
    }),
    variable("HEAPPROF_PERIOD", "a size from 2 bytes to 1 TiB, such as 512KiB", |text, to| {
        to.period = bytes(text).filter(|b| (2..=1 << 40).contains(b))?;
        Some(())
    }),
    variable("HEAPPROF_FORMAT", "pprof or text", |text, to| {
        to.format = match text { "pprof" => Format::Pprof, "text" => Format::Text, _ => return None };
        Some(())
    }),
    variable("HEAPPROF_INTERVAL", "a time such as 10, 500ms or 2m", |text, to| {
        to.triggers.interval = Some(time(text)?);
        Some(())
    }),
    variable("HEAPPROF_GROWTH", "a size such as 1048576 or 1MiB", |text, to| {
        to.triggers.growth = Some(bytes(text)?).filter(|&b| b > 0);
        Some(())
    }),
    variable("HEAPPROF_PEAK", "yes or no", |text, to| {
        to.triggers.peak = yes(text)?;
        Some(())
    }),
    variable("HEAPPROF_FOLLOW", "yes or no", |text, to| {
        to.follow_children = yes(text)?;
        Some(())
    }),
];

fn yes(text: &str) -> Option<bool> {
    match text {
        "yes" | "1" | "true" | "on" => Some(true),
        "no" | "0" | "false" | "off" => Some(false),
        _ => None,
    }
}

/// The leading number of `text`, and the unit behind it.
fn number_and_unit(text: &str) -> (&str, &str) {
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let unit = text.trim_start_matches(is_number);
    (&text[..text.len() - unit.len()], unit.trim())
}

/// Bytes with a unit: `512KiB`, `1m`, `4096`.
fn bytes(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Time with a unit: `500ms`, `10s`, `2m`, `30`.
fn time(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text);
    let unit = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    let seconds = number.parse::<f64>().ok()? * unit;
    (0.001..1e9)
        .contains(&seconds)
        .then(|| Duration::from_secs_f64(seconds))
}

/// The options that the variables give; `None` when they ask for nothing, or ask the preloaded library.
pub(crate) fn read(
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<Options>, Misunderstood> {
    let get = |name| get(name).filter(|value| !value.is_empty());
    let Some(pattern) = get("HEAPPROF_OUTPUT") else {
        return Ok(None);
    };
    let preloaded = get("LD_PRELOAD").map(OsStringExt::into_vec);
    let by_library = preloaded.is_some_and(|list| contains(&list, b"libheapprof"));
    if by_library || get("HEAPPROF_RECORD").is_some() {
        return Ok(None);
    }
    let mut options = Options::default();
    options.output.pattern = pattern.into_vec();
    for variable in VARIABLES {
        let Some(value) = get(variable.name) else {
            continue;
        };
        let understood = value.to_str().map(str::trim);
        understood
            .and_then(|text| (variable.read)(text, &mut options))
            .ok_or(Misunderstood {
                name: variable.name,
                expected: variable.expected,
            })?;
    }
    Ok(Some(options))
}

fn contains(list: &[u8], name: &[u8]) -> bool {
    list.windows(name.len()).any(|part| part == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Option<Options>, Misunderstood> {
        read(|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn variables_become_options() {
        assert_eq!(with(&[("HEAPPROF_MODE", "exact")]), Ok(None));
        let all = [
            ("HEAPPROF_OUTPUT", "heap.%p.pb.gz"),
            ("HEAPPROF_MODE", "exact"),
            ("HEAPPROF_PERIOD", "64 KiB"),
            ("HEAPPROF_FORMAT", "text"),
            ("HEAPPROF_INTERVAL", "1.5s"),
            ("HEAPPROF_GROWTH", "1m"),
            ("HEAPPROF_PEAK", "yes"),
            ("HEAPPROF_FOLLOW", "no"),
        ];
        let options = with(&all).unwrap().unwrap();
        assert_eq!(options.output.pattern, b"heap.%p.pb.gz");
        assert_eq!((options.mode, options.period), (Mode::Exact, 64 << 10));
        assert_eq!(options.format, Format::Text);
        assert_eq!(options.triggers.interval, Some(Duration::from_millis(1500)));
        assert_eq!(options.triggers.growth, Some(1 << 20));
        assert!(options.triggers.peak && !options.follow_children);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        for variable in VARIABLES {
            for wrong in ["x", "-1", "1.2.3", "99999999999999999999g", "é"] {
                let found = with(&[("HEAPPROF_OUTPUT", "o"), (variable.name, wrong)]);
                assert_eq!(found.unwrap_err().name, variable.name);
            }
            // Set to nothing is not set.
            let found = with(&[("HEAPPROF_OUTPUT", "o"), (variable.name, "")]);
            assert!(found.unwrap().is_some());
        }
    }

    #[test]
    fn the_preloaded_library_goes_first() {
        for other in [
            ("LD_PRELOAD", "/lib/a.so:/lib/libheapprof.so"),
            ("HEAPPROF_RECORD", "1"),
        ] {
            assert_eq!(with(&[("HEAPPROF_OUTPUT", "o"), other]), Ok(None));
        }
    }
}
