//! Options from environment variables. `libheapprof.so` reads the same variables, in the same
//! forms.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use heapprof_abi::environment as variable;
use heapprof_engine::RecordingOptions;
use heapprof_engine::setting::{self, SettingError};

/// Returns the options that the environment variables set; `None` if there are none, or if the
/// variables are meant for the preloaded library.
pub(crate) fn read(
    get: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<RecordingOptions>, SettingError> {
    let get = |name| get(name).filter(|value| !value.is_empty());
    let Some(pattern) = get(variable::OUTPUT.name) else {
        return Ok(None);
    };
    let preloaded = get("LD_PRELOAD").map(OsStringExt::into_vec);
    let by_library = preloaded.is_some_and(|list| contains(&list, b"libheapprof"));
    if by_library || get(variable::RECORD.name).is_some() {
        return Ok(None);
    }
    let mut options = RecordingOptions::default();
    options.output.pattern = pattern.into_vec();
    setting::apply_variables(|name| get(name).map(OsString::into_vec), &mut options)?;
    Ok(Some(options))
}

fn contains(list: &[u8], name: &[u8]) -> bool {
    list.windows(name.len()).any(|part| part == name)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use heapprof_engine::setting::SETTINGS;
    use heapprof_engine::{DumpFormat, RecordingMode};

    use super::*;

    fn with(variables: &[(&str, &str)]) -> Result<Option<RecordingOptions>, SettingError> {
        read(|name| {
            let found = variables.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn variables_become_options() {
        assert_eq!(with(&[(variable::MODE.name, "exact")]), Ok(None));
        let all = [
            (variable::OUTPUT.name, "heap.%p.pb.gz"),
            (variable::MODE.name, "exact"),
            (variable::PERIOD.name, "64 KiB"),
            (variable::FORMAT.name, "text"),
            (variable::INTERVAL.name, "1.5s"),
            (variable::GROWTH.name, "1m"),
            (variable::PEAK.name, "yes"),
            (variable::FOLLOW.name, "no"),
        ];
        let options = with(&all).unwrap().unwrap();
        assert_eq!(options.output.pattern, b"heap.%p.pb.gz");
        assert_eq!(
            (options.mode, options.period),
            (RecordingMode::Exact, 64 << 10)
        );
        assert_eq!(options.format, DumpFormat::Text);
        assert_eq!(options.triggers.interval, Some(Duration::from_millis(1500)));
        assert_eq!(options.triggers.growth, Some(1 << 20));
        assert!(options.triggers.peak && !options.follow_children);
    }

    #[test]
    fn what_is_not_understood_is_named() {
        // Any text may be a regular expression.
        let forms = SETTINGS
            .iter()
            .filter(|row| row.variable.name != variable::WRAPPERS.name);
        for row in forms {
            for wrong in ["x", "-1", "1.2.3", "99999999999999999999g", "é"] {
                let found = with(&[(variable::OUTPUT.name, "o"), (row.variable.name, wrong)]);
                assert_eq!(found.unwrap_err().name, row.variable.name);
            }
            // A variable that is set to nothing counts as not set.
            let found = with(&[(variable::OUTPUT.name, "o"), (row.variable.name, "")]);
            assert!(found.unwrap().is_some());
        }
    }

    #[test]
    fn the_preloaded_library_goes_first() {
        for other in [
            ("LD_PRELOAD", "/lib/a.so:/lib/libheapprof.so"),
            (variable::RECORD.name, "1"),
        ] {
            assert_eq!(with(&[(variable::OUTPUT.name, "o"), other]), Ok(None));
        }
    }
}
