//! Options from environment variables, by the names and in the forms that `libheapprof.so` reads.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use heapprof_collect::Options;
use heapprof_collect::setting::{self, Misunderstood};

/// Returns the options that the variables ask for. `None` if they ask for nothing, or if they are
/// meant for the preloaded library.
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
    setting::obey(|name| get(name).map(OsString::into_vec), &mut options)?;
    Ok(Some(options))
}

fn contains(list: &[u8], name: &[u8]) -> bool {
    list.windows(name.len()).any(|part| part == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heapprof_collect::setting::VARIABLES;
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
        // Any text may be a regular expression.
        let forms = VARIABLES.iter().filter(|v| v.name != "HEAPPROF_WRAPPERS");
        for variable in forms {
            for wrong in ["x", "-1", "1.2.3", "99999999999999999999g", "é"] {
                let found = with(&[("HEAPPROF_OUTPUT", "o"), (variable.name, wrong)]);
                assert_eq!(found.unwrap_err().name, variable.name);
            }
            // A variable that is set to nothing counts as not set.
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
