//! Options from environment variables, by the names and in the forms that `libheapprof.so` reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use heapprof_collect::{Options, setting};

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

/// A variable of the form `$form`, and where its value goes.
macro_rules! variable {
    ($name:literal, $form:ident, |$to:ident, $value:ident| $set:expr) => {
        Variable {
            name: $name,
            expected: setting::$form.expected,
            read: |text, $to| {
                let $value = (setting::$form.read)(text)?;
                $set;
                Some(())
            },
        }
    };
}

/// The variables besides `HEAPPROF_OUTPUT`, which is a path pattern and must be set for the others to matter.
pub const VARIABLES: &[Variable] = &[
    variable!("HEAPPROF_MODE", MODE, |to, mode| to.mode = mode),
    variable!("HEAPPROF_PERIOD", PERIOD, |to, period| to.period = period),
    variable!("HEAPPROF_FORMAT", FORMAT, |to, format| to.format = format),
    variable!("HEAPPROF_INTERVAL", TIME, |to, time| to.triggers.interval =
        Some(time)),
    variable!("HEAPPROF_GROWTH", SIZE, |to, size| to.triggers.growth =
        Some(size).filter(|&b| b > 0)),
    variable!("HEAPPROF_PEAK", ANSWER, |to, yes| to.triggers.peak = yes),
    variable!("HEAPPROF_FOLLOW", ANSWER, |to, yes| to.follow_children =
        yes),
];

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
    use std::time::Duration;

    use heapprof_collect::{Format, Mode};

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
