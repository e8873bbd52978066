//! Parses settings from text. A value has the same form wherever a recording is configured by text.

use std::time::Duration;

use heapprof_abi::environment::EnvironmentVariable;

use crate::mode::RecordingMode;
use crate::options::{DumpFormat, FrameChoice, MAX_PERIOD, RecordingOptions};

/// The form of a setting's text: a description of the form, and a function that parses the text.
pub struct SettingForm<T> {
    /// Description of the expected text, such as `yes or no`.
    pub expected: &'static str,
    /// Returns the value of a text, if the text has the form.
    pub read: fn(&str) -> Option<T>,
}

/// The form of an answer: `yes` or `no`, or other words that people write for them.
pub const ANSWER: SettingForm<bool> = SettingForm {
    expected: "yes or no",
    read: |text| match text {
        "yes" | "1" | "true" | "on" => Some(true),
        "no" | "0" | "false" | "off" => Some(false),
        _ => None,
    },
};

/// The form of the recording's mode.
pub const MODE: SettingForm<RecordingMode> = SettingForm {
    expected: "sampled or exact",
    read: |text| match text {
        "sampled" => Some(RecordingMode::Sampled),
        "exact" => Some(RecordingMode::Exact),
        _ => None,
    },
};

/// The form of the dumps' format.
pub const FORMAT: SettingForm<DumpFormat> = SettingForm {
    expected: "pprof or text",
    read: |text| match text {
        "pprof" => Some(DumpFormat::Pprof),
        "text" => Some(DumpFormat::Text),
        _ => None,
    },
};

/// The form of the choice between native frames and an interpreter's frames.
pub const FRAMES: SettingForm<FrameChoice> = SettingForm {
    expected: "script, native or both",
    read: |text| match text {
        "script" => Some(FrameChoice::Script),
        "native" => Some(FrameChoice::Native),
        "both" => Some(FrameChoice::Both),
        _ => None,
    },
};

/// The form of a number of bytes, with a unit or without: `512KiB`, `1m`, `4096`.
pub const SIZE: SettingForm<u64> = SettingForm {
    expected: "a size such as 1048576 or 1MiB",
    read: parse_bytes,
};

/// The form of the average number of bytes between samples.
pub const PERIOD: SettingForm<u64> = SettingForm {
    expected: "a size from 2 bytes to 1 TiB, such as 512KiB",
    read: |text| parse_bytes(text).filter(|b| (2..=MAX_PERIOD).contains(b)),
};

/// The form of a time, with a unit or in seconds: `500ms`, `10s`, `2m`, `30`.
pub const TIME: SettingForm<Duration> = SettingForm {
    expected: "a time such as 10, 500ms or 2m",
    read: parse_time,
};

/// The form of the rights of new files. The files' owner must at least have the rights to read and
/// write them.
pub const FILE_MODE: SettingForm<u32> = SettingForm {
    expected: "a file mode in octal, from 600 to 666",
    read: |text| {
        let mode = u32::from_str_radix(text, 8).ok()?;
        (mode & 0o600 == 0o600 && mode & !0o666 == 0).then_some(mode)
    },
};

/// The form of a regular expression. The expression is not parsed here. If it is wrong, the reader
/// of the profile reports this.
pub const REGEX: SettingForm<String> = SettingForm {
    expected: "a regular expression",
    read: |text| (!text.is_empty()).then(|| text.to_string()),
};

/// A setting of a recording, with its environment variable. The variable applies to every
/// collector, preloaded or linked.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// The setting's environment variable.
    pub variable: EnvironmentVariable,
    /// The values that the variable may have, in words.
    pub expected: &'static str,
    read: fn(&str, &mut RecordingOptions) -> Option<()>,
}

/// The error of a variable whose value does not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The variable's name.
    pub name: &'static str,
    /// The values that the variable may have, in words.
    pub expected: &'static str,
}

impl std::fmt::Display for SettingError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: expected {}", self.name, self.expected)
    }
}

impl std::error::Error for SettingError {}

/// Makes the `Setting` of a variable whose value has the form `$form`. The last argument assigns
/// the value to the options.
macro_rules! setting {
    ($variable:ident, $form:ident, |$to:ident, $value:ident| $set:expr) => {
        Setting {
            variable: heapprof_abi::environment::$variable,
            expected: $form.expected,
            read: |text, $to| {
                let $value = ($form.read)(text)?;
                $set;
                Some(())
            },
        }
    };
}

/// All settings except HEAPPROF_OUTPUT. They have an effect only if HEAPPROF_OUTPUT, a path
/// pattern, is set.
pub const SETTINGS: &[Setting] = &[
    setting!(MODE, MODE, |to, mode| to.mode = mode),
    setting!(PERIOD, PERIOD, |to, period| to.period = period),
    setting!(FORMAT, FORMAT, |to, format| to.format = format),
    setting!(INTERVAL, TIME, |to, time| to.triggers.interval = Some(time)),
    setting!(GROWTH, SIZE, |to, size| to.triggers.growth =
        Some(size).filter(|&b| b > 0)),
    setting!(PEAK, ANSWER, |to, yes| to.triggers.peak = yes),
    setting!(FILE_MODE, FILE_MODE, |to, mode| to.file_mode = mode),
    setting!(WRAPPERS, REGEX, |to, names| to.wrappers = names),
    setting!(FRAMES, FRAMES, |to, frames| to.frames = frames),
    setting!(THREADS, ANSWER, |to, yes| to.by_thread = yes),
    setting!(COMMAND_LINE, ANSWER, |to, yes| to.command_line = yes),
    setting!(FOLLOW, ANSWER, |to, yes| to.follow_children = yes),
];

/// Applies the values of all settings' variables to `options`. `get` returns the value of a
/// variable, as bytes.
///
/// # Errors
/// Returns an error for the first variable whose value does not have the expected form.
pub fn apply_variables<T: AsRef<[u8]>>(
    get: impl Fn(&'static str) -> Option<T>,
    options: &mut RecordingOptions,
) -> Result<(), SettingError> {
    for setting in SETTINGS {
        let name = setting.variable.name;
        if let Some(value) = get(name) {
            let set = |text: &str| (setting.read)(text, options);
            read_value(name, setting.expected, value.as_ref(), set)?;
        }
    }
    Ok(())
}

/// Parses the value of a variable, if the variable is set. The value must have the form `form`.
///
/// # Errors
/// Returns an error if the value does not have this form.
pub fn parse<T>(
    name: &'static str,
    value: Option<&[u8]>,
    form: &SettingForm<T>,
) -> Result<Option<T>, SettingError> {
    let read = |value| read_value(name, form.expected, value, form.read);
    value.map(read).transpose()
}

/// Applies `read` to a variable's value, without the blanks around it.
fn read_value<T>(
    name: &'static str,
    expected: &'static str,
    value: &[u8],
    read: impl FnOnce(&str) -> Option<T>,
) -> Result<T, SettingError> {
    let text = std::str::from_utf8(value).ok().map(str::trim);
    text.and_then(read).ok_or(SettingError { name, expected })
}

/// Splits `text` into its leading number and the unit behind it.
fn number_and_unit(text: &str) -> (&str, &str) {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    (&text[..text.len() - unit.len()], unit.trim())
}

fn parse_bytes(text: &str) -> Option<u64> {
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

fn parse_time(text: &str) -> Option<Duration> {
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
