//! Selectors such as `service=shop,host~web,since=2h,last=60`, which choose the stored moments of a
//! question.

use regex::Regex;

use crate::stored_moment::StoredMoment;

/// Conditions on the labels and times of moments. A moment is chosen only if it satisfies all of
/// them.
#[derive(Clone, Debug, Default)]
pub struct MomentSelector {
    conditions: Vec<LabelCondition>,
    /// The earliest time of a moment, in nanoseconds since 1970 UTC.
    since: Option<i64>,
    /// The latest time of a moment, in nanoseconds since 1970 UTC.
    until: Option<i64>,
    /// The largest number of moments that are chosen for each process. The newest moments are
    /// chosen.
    last: Option<usize>,
}

/// A condition on a label.
#[derive(Clone, Debug)]
struct LabelCondition {
    key: String,
    test: LabelTest,
    /// Whether the condition is negated, so that the test must fail.
    is_not: bool,
}

#[derive(Clone, Debug)]
enum LabelTest {
    Is(String),
    Matches(Regex),
}

/// The error for a selector that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part:?} in {whole:?}: {why}")]
pub struct SelectorError {
    /// The whole selector.
    whole: String,
    /// The wrong part of the selector.
    part: String,
    /// What is wrong with that part.
    why: String,
}

/// Whether a text has the form of a selector: a key before the first `=` or `~`. Most file paths do
/// not have this form: they have no such sign, or they have `/` or a space before the sign.
pub fn is_selector(text: &str) -> bool {
    let key = text.split_once(['=', '~']).map(|(key, _)| key);
    key.is_some_and(|key| !key.is_empty() && !key.contains(['/', ' ']))
}

/// Parses a time, and returns it in nanoseconds since 1970 UTC. `now` has this unit, too. The text
/// is a duration before `now` (`90s`, `2h`, `7d`), a date or a date with a time (`2026-11-20`,
/// `2026-11-20T14:00:00Z`), or seconds since 1970 (`@1795183786`). A date is in UTC if it names no
/// zone.
///
/// # Errors
/// The text is no time; the error says how a time is written.
pub fn parse_time(text: &str, now: i64) -> Result<i64, String> {
    let wrong = || {
        format!(
            "{text:?} is not a time; write for example 2h, 7d, 2026-11-20, 2026-11-20T14:00:00Z or \
             @1795183786"
        )
    };
    if let Some(seconds) = text.strip_prefix('@') {
        let seconds: i64 = seconds.parse().map_err(|_| wrong())?;
        return seconds.checked_mul(1_000_000_000).ok_or_else(wrong);
    }
    if let Ok(time) = text.parse::<jiff::Timestamp>() {
        return i64::try_from(time.as_nanosecond()).map_err(|_| wrong());
    }
    // A date stands for its midnight.
    if let Ok(time) = text.parse::<jiff::civil::DateTime>() {
        let time = time
            .to_zoned(jiff::tz::TimeZone::UTC)
            .map_err(|_| wrong())?;
        return i64::try_from(time.timestamp().as_nanosecond()).map_err(|_| wrong());
    }
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.');
    let (number, unit) = text.split_at(split.ok_or_else(wrong)?);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        "w" => 604_800.0,
        _ => return Err(wrong()),
    };
    Ok(now.saturating_sub((number * seconds * 1e9) as i64))
}

impl MomentSelector {
    /// Parses a selector. `now` is the time that `since=2h` counts from.
    ///
    /// # Errors
    /// The selector can't be read; the error names the wrong part.
    pub fn parse(text: &str, now: i64) -> Result<Self, SelectorError> {
        let mut selector = Self::default();
        for part in split_at_commas(text) {
            let wrong = |why: &str| SelectorError {
                whole: text.to_string(),
                part: part.clone(),
                why: why.to_string(),
            };
            let split = part.find(['=', '~']);
            let split = split.ok_or_else(|| wrong("a condition is KEY=VALUE or KEY~REGEX"))?;
            let (key, value) = (&part[..split], &part[split + 1..]);
            let is_regex = part.as_bytes()[split] == b'~';
            let (key, is_not) = match key.strip_suffix('!') {
                Some(key) => (key.trim(), true),
                None => (key.trim(), false),
            };
            if key.is_empty() {
                return Err(wrong(
                    "a key must come before = or ~, such as service or host",
                ));
            }
            let is_plain = !is_regex && !is_not;
            match key {
                "since" | "until" if is_plain => {
                    let time = parse_time(value, now).map_err(|why| wrong(&why))?;
                    let place = match key {
                        "since" => &mut selector.since,
                        _ => &mut selector.until,
                    };
                    if place.replace(time).is_some() {
                        return Err(wrong("it is given twice"));
                    }
                }
                "last" if is_plain => {
                    let count = value.parse().ok().filter(|&count| count > 0);
                    let why = "last needs a number of moments of each process, such as last=60";
                    let count = count.ok_or_else(|| wrong(why))?;
                    if selector.last.replace(count).is_some() {
                        return Err(wrong("it is given twice"));
                    }
                }
                "since" | "until" | "last" => {
                    return Err(wrong("since, until and last can only be used with ="));
                }
                _ => {
                    let test = match is_regex {
                        true => LabelTest::Matches(
                            Regex::new(value)
                                .map_err(|error| wrong(&crate::regex_error(&error)))?,
                        ),
                        false => LabelTest::Is(value.to_string()),
                    };
                    selector.conditions.push(LabelCondition {
                        key: key.to_string(),
                        test,
                        is_not,
                    });
                }
            }
        }
        Ok(selector)
    }

    /// Returns the moments that satisfy all conditions, in the order of their times.
    pub fn choose(&self, moments: &[StoredMoment]) -> Vec<StoredMoment> {
        let is_in = |m: &&StoredMoment| {
            self.since.is_none_or(|since| m.time_nanos >= since)
                && self.until.is_none_or(|until| m.time_nanos <= until)
                && self.conditions.iter().all(|condition| condition.holds(m))
        };
        let mut chosen: Vec<StoredMoment> = moments.iter().filter(is_in).cloned().collect();
        chosen.sort_by_key(|m| (m.time_nanos, m.id));
        if let Some(last) = self.last {
            let mut seen = foldhash::HashMap::<usize, usize>::default();
            let mut keep: Vec<bool> = Vec::with_capacity(chosen.len());
            for moment in chosen.iter().rev() {
                let count = seen.entry(moment.process).or_default();
                *count += 1;
                keep.push(*count <= last);
            }
            let mut keep = keep.into_iter().rev();
            chosen.retain(|_| keep.next() == Some(true));
        }
        chosen
    }

    /// Returns the earliest time of the moments that the selector chooses, if it has one.
    pub(crate) fn since(&self) -> Option<i64> {
        self.since
    }
}

impl LabelCondition {
    fn holds(&self, moment: &StoredMoment) -> bool {
        let value = match self.key.as_str() {
            "name" => Some(&*moment.name),
            "pid" => moment.pid.as_deref(),
            key => moment.labels.get(key).map(String::as_str),
        };
        // A label that a moment does not have counts as empty.
        let value = value.unwrap_or_default();
        let holds = match &self.test {
            LabelTest::Is(wanted) => value == wanted,
            LabelTest::Matches(regex) => regex.is_match(value),
        };
        holds != self.is_not
    }
}

/// Splits a text at its commas, except commas after a backslash.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&',') => {
                chars.next();
                parts.last_mut().expect("there is a part").push(',');
            }
            ',' => parts.push(String::new()),
            c => parts.last_mut().expect("there is a part").push(c),
        }
    }
    parts
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a moment of a host and a process at a time in seconds.
    pub(in crate::series) fn moment(
        id: i64,
        host: &str,
        process: usize,
        time: i64,
    ) -> StoredMoment {
        let labels = [("host", host), ("service", "shop")];
        StoredMoment {
            id,
            name: format!("m{id}"),
            time_nanos: time * 1_000_000_000,
            start_nanos: None,
            labels: labels.map(|(k, v)| (k.to_string(), v.to_string())).into(),
            process,
            pid: Some(process.to_string()),
            types: [("inuse_space".to_string(), "bytes".to_string())].into(),
            totals: vec![1],
            samples: 1,
            default_type: 0,
        }
    }

    #[test]
    fn moments_are_chosen_by_labels_time_and_number() {
        let moments: Vec<StoredMoment> = (0..4)
            .flat_map(|n| [("web1", 0), ("web2", 1), ("db,1", 2)].map(move |(h, p)| (n, h, p)))
            .enumerate()
            .map(|(id, (n, host, process))| moment(id as i64, host, process, 100 * n))
            .collect();
        let now = 400_000_000_000;
        let table = [
            ("service=shop", 12),
            ("service=shop,host=web1", 4),
            ("host~^web", 8),
            ("host!~web", 4),
            ("host!=web1", 8),
            (r"host=db\,1", 4),
            ("host~web,last=1", 2),
            ("since=150s", 3),
            ("since=@100,until=@200", 6),
            ("zone=", 12),
            ("zone=a", 0),
            ("name=m3", 1),
            ("pid=2,last=3", 3),
        ];
        for (text, expected) in table {
            let selector = MomentSelector::parse(text, now).unwrap();
            assert_eq!(selector.choose(&moments).len(), expected, "{text}");
        }
        for (text, expected) in [
            ("shop", "is KEY=VALUE or KEY~REGEX"),
            ("=shop", "a key must come before"),
            ("host~(", "unclosed group"),
            ("since=soon", "not a time"),
            ("last=0", "a number of moments"),
            ("last~1", "only be used with ="),
            ("service=a,,last=1", "is KEY=VALUE"),
        ] {
            let error = MomentSelector::parse(text, now).unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn times_are_read() {
        let now = 1_000_000_000_000_000_000;
        let hour = 3_600_000_000_000;
        let table = [
            ("2h", now - 2 * hour),
            ("1.5h", now - hour - hour / 2),
            ("1d", now - 24 * hour),
            ("@5", 5_000_000_000),
            ("2026-11-20", 1_795_132_800_000_000_000),
            ("2026-11-20T01:00:00Z", 1_795_132_800_000_000_000 + hour),
            ("2026-11-20T01:00", 1_795_132_800_000_000_000 + hour),
            ("2026-11-20 01:00:00", 1_795_132_800_000_000_000 + hour),
            ("2026-11-20T02:00+01:00", 1_795_132_800_000_000_000 + hour),
        ];
        for (text, expected) in table {
            assert_eq!(parse_time(text, now), Ok(expected), "{text}");
        }
        for text in ["", "h", "2", "2x", "@x", "2026-13-01", "99999999-01-01"] {
            assert!(parse_time(text, now).is_err(), "{text}");
        }
    }
}
