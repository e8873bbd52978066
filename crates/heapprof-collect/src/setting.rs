//! Values of settings as text: the same forms wherever a recording is set up by text.

use std::time::Duration;

use crate::mode::Mode;
use crate::options::{Format, LONGEST_PERIOD};

/// A setting's form: what to say is expected, and how to read it.
pub struct Form<T> {
    /// E.g. `yes or no`.
    pub expected: &'static str,
    /// The value of a text, if it has the form.
    pub read: fn(&str) -> Option<T>,
}

/// `yes` or `no`, and what else people write for them.
pub const ANSWER: Form<bool> = Form {
    expected: "yes or no",
    read: |text| match text {
        "yes" | "1" | "true" | "on" => Some(true),
        "no" | "0" | "false" | "off" => Some(false),
        _ => None,
    },
};

/// What is recorded.
pub const MODE: Form<Mode> = Form {
    expected: "sampled or exact",
    read: |text| match text {
        "sampled" => Some(Mode::Sampled),
        "exact" => Some(Mode::Exact),
        _ => None,
    },
};

/// How dumps are written.
pub const FORMAT: Form<Format> = Form {
    expected: "pprof or text",
    read: |text| match text {
        "pprof" => Some(Format::Pprof),
        "text" => Some(Format::Text),
        _ => None,
    },
};

/// Bytes, with a unit or without: `512KiB`, `1m`, `4096`.
pub const SIZE: Form<u64> = Form {
    expected: "a size such as 1048576 or 1MiB",
    read: bytes,
};

/// Average bytes between samples.
pub const PERIOD: Form<u64> = Form {
    expected: "a size from 2 bytes to 1 TiB, such as 512KiB",
    read: |text| bytes(text).filter(|b| (2..=LONGEST_PERIOD).contains(b)),
};

/// A time with a unit, or in seconds: `500ms`, `10s`, `2m`, `30`.
pub const TIME: Form<Duration> = Form {
    expected: "a time such as 10, 500ms or 2m",
    read: time,
};

/// The leading number of `text`, and the unit behind it.
fn number_and_unit(text: &str) -> (&str, &str) {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    (&text[..text.len() - unit.len()], unit.trim())
}

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
