//! Reads the attributes at the beginning of a contention profile, and converts the values of its
//! samples by them.

use std::borrow::Cow;

use heapprof_profile::{Profile, ProfileBuilder};

use crate::error::{FormatError, shortened};
use crate::figures::decimal;
use crate::lines::LineReader;

const EXPECTED_ATTRIBUTE: &str = "`cycles/second = N`, `sampling period = N`, `ms since reset = N`, \
                                  `discarded samples = N`, `format = java` or `resolution = UNIT`";

/// The attributes of a contention profile.
#[derive(Default)]
pub(super) struct ContentionHeader {
    /// Frequency of the clock that measures delays; 0 if the unit of delays is not known.
    cycles_per_second: i64,
    /// Number of contentions of which one is sampled. `None` if the file does not have it.
    period: Option<i64>,
    duration_millis: i64,
    /// Whether the Java agent wrote the file. Its frames are numbers.
    pub(super) is_java: bool,
    /// The unit of delays in a file of the Java agent.
    resolution: Option<String>,
}

impl ContentionHeader {
    /// Reads the attributes after the first line. `lines` then stays on the line after them.
    pub(super) fn read(lines: &mut LineReader<'_>) -> Result<Self, FormatError> {
        let mut header = Self::default();
        while lines.advance()? {
            let line = lines.trimmed();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let Some(at) = memchr::memchr(b'=', line).filter(|_| !line.starts_with(b"---")) else {
                lines.stay();
                break;
            };
            let (key, value) = (line[..at].trim_ascii(), line[at + 1..].trim_ascii());
            let number = || {
                let number = decimal(value).and_then(|number| i64::try_from(number).ok());
                number.ok_or_else(|| lines.wrong_part("a number below 2^63", shortened(value)))
            };
            match key {
                b"cycles/second" => header.cycles_per_second = number()?,
                b"sampling period" => header.period = Some(number()?),
                b"ms since reset" => header.duration_millis = number()?,
                b"discarded samples" => {}
                b"format" if value == b"java" => header.is_java = true,
                b"resolution" if !value.is_empty() => {
                    header.is_java = true;
                    header.resolution = Some(String::from_utf8_lossy(value).into_owned());
                }
                _ => return Err(lines.wrong(EXPECTED_ATTRIBUTE)),
            }
        }
        if header.is_java && header.resolution.is_none() {
            return Err(lines.wrong("`resolution = UNIT`"));
        }
        Ok(header)
    }

    /// Makes an empty profile with the sample types and times of this header.
    pub(super) fn profile(&self) -> Profile {
        let unit = self.resolution.as_deref().unwrap_or("nanoseconds");
        let mut builder = ProfileBuilder::new(&[("contentions", "count"), ("delay", unit)]);
        if self.period.is_some() || !self.is_java {
            builder.profile.period_type = Some(builder.value_type("contentions", "count"));
        }
        let unknown = if self.is_java { 0 } else { 1 };
        builder.profile.period = self.period.unwrap_or(unknown);
        builder.profile.duration_nanos = self.duration_millis.saturating_mul(1_000_000);
        builder.finish()
    }

    /// Returns the contentions and the delay of a sample: all that the sample stands for, in the
    /// unit of the profile. The result is `None` if they do not fit in 64 bits.
    pub(super) fn values(&self, delay: i64, contentions: i64) -> Option<[i64; 2]> {
        let period = match self.period {
            Some(0) => return Some([contentions, delay]),
            period => period.unwrap_or(1),
        };
        let all = contentions.checked_mul(period)?;
        if self.is_java || self.cycles_per_second == 0 {
            let delay = match self.is_java {
                true => delay.checked_mul(period)?,
                // Without a frequency, pprof does not scale delays.
                false => delay,
            };
            return Some([all, delay]);
        }
        let cycles_per_nanosecond = self.cycles_per_second as f64 / 1e9;
        let nanoseconds = delay as f64 * period as f64 / cycles_per_nanosecond;
        // 2^63 is the first number that does not fit.
        const LIMIT: f64 = 9_223_372_036_854_775_808.0;
        (nanoseconds < LIMIT).then_some([all, nanoseconds as i64])
    }

    /// Returns a description, for people, of how values are converted.
    pub(super) fn rule(&self) -> Cow<'static, str> {
        let period = match self.period {
            None | Some(0 | 1) => "none, every contention was counted".to_string(),
            // As in pprof, delays in unknown units are not multiplied.
            Some(period) if !self.is_java && self.cycles_per_second == 0 => format!(
                "contentions times {period}; the file does not say how long a cycle is, so delays \
                 are cycles of the processor, each as a nanosecond"
            ),
            Some(period) => format!("contentions and delays times {period}"),
        };
        match (self.is_java, self.cycles_per_second) {
            (false, 1..) => {
                let hertz = self.cycles_per_second;
                format!("{period}; a second has {hertz} cycles").into()
            }
            _ => period.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_for_all_contentions() {
        let header = |cycles_per_second, period, is_java| ContentionHeader {
            cycles_per_second,
            period,
            is_java,
            ..ContentionHeader::default()
        };
        let most = i64::MAX;
        for (header, delay, count, expected) in [
            // pprof prints these values for the same numbers.
            (
                header(3_201_000_000, Some(100), false),
                19_490_304,
                27,
                Some([2700, 608_881_724]),
            ),
            (header(3_201_000_000, Some(0), false), 7, 2, Some([2, 7])),
            (header(2_000_000_000, None, false), 7, 2, Some([2, 3])),
            (header(0, Some(100), false), 7, 2, Some([200, 7])),
            (header(0, Some(100), true), 7, 2, Some([200, 700])),
            (header(0, None, true), 7, 2, Some([2, 7])),
            (header(0, Some(2), false), 1, most, None),
            (header(1, Some(1), false), most, 1, None),
            (header(0, Some(2), true), most, 1, None),
        ] {
            assert_eq!(header.values(delay, count), expected, "{delay} {count}");
        }
        for (header, says) in [
            (header(0, None, false), "none, every contention was counted"),
            (
                header(0, Some(100), false),
                "contentions times 100; the file",
            ),
            (
                header(0, Some(100), true),
                "contentions and delays times 100",
            ),
            (
                header(7, Some(100), false),
                "contentions and delays times 100; a second has 7 cycles",
            ),
        ] {
            assert!(header.rule().starts_with(says), "{}", header.rule());
        }
    }
}
