//! Filters on labels: `[key=]value`, where the value is a range of numbers or regular expressions,
//! as in pprof.
//!
//! There are two differences from pprof: each label is compared in its own unit, and a number that
//! is too large is an error instead of a crash. [`LabelFilter::as_pprof`] takes a function for the
//! comparison, so that a caller can compare as pprof does.

use heapprof_profile::{Label, Profile, Unit};
use regex::Regex;

use crate::error::TotalsError;
use crate::pattern::go_regex;

/// A compiled label filter (`tag_focus` or `tag_ignore`).
#[derive(Debug)]
pub struct LabelFilter {
    key: Option<String>,
    value: LabelMatcher,
}

#[derive(Debug)]
enum LabelMatcher {
    Range {
        low: Option<NumberBound>,
        high: Option<NumberBound>,
    },
    Text(Vec<Regex>),
    Number(NumberTest),
}

/// A test of labels with numbers. It gets a label's key and number.
pub struct NumberTest(pub Box<NumberTestFn>);

/// A function that returns whether a label's key and number match.
type NumberTestFn = dyn Fn(&str, i64) -> bool;

impl std::fmt::Debug for NumberTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NumberTest")
    }
}

#[derive(Debug, Clone, Copy)]
struct NumberBound {
    number: i128,
    unit: Option<Unit>,
}

impl LabelFilter {
    /// Parses the text of a label filter. `filter` is the filter's name, which errors contain.
    /// Fails if the text is neither a range nor a regular expression.
    pub fn parse(filter: &'static str, text: &str) -> Result<Self, TotalsError> {
        let error = |why: String| TotalsError::Filter {
            filter,
            text: text.to_string(),
            why,
        };
        let (key, value) = split_key(text);
        if let Some((low, high)) = parse_range(value).map_err(error)? {
            let value = LabelMatcher::Range { low, high };
            return Ok(Self { key, value });
        }
        let regexes = value
            .split(',')
            .map(|part| Regex::new(part).map_err(|e| error(crate::pattern::regex_error(&e))))
            .collect::<Result<Vec<_>, _>>()?;
        let value = LabelMatcher::Text(regexes);
        Ok(Self { key, value })
    }

    /// Parses the text of a label filter as pprof does, with regular expressions in Go's syntax.
    /// `range` parses ranges.
    pub fn as_pprof(
        text: &str,
        range: impl FnOnce(&str) -> Result<Option<NumberTest>, String>,
    ) -> Result<Self, String> {
        let (key, value) = split_key(text);
        let value = match range(value)? {
            Some(test) => LabelMatcher::Number(test),
            None => LabelMatcher::Text(value.split(',').map(go_regex).collect::<Result<_, _>>()?),
        };
        Ok(Self { key, value })
    }

    /// Whether a sample with these labels matches.
    pub fn matches(&self, profile: &Profile, labels: &[Label]) -> bool {
        let mut of_key = labels.iter().filter(|label| match &self.key {
            Some(key) => profile.text(label.key) == key,
            None => true,
        });
        match &self.value {
            LabelMatcher::Range { low, high } => of_key
                .filter(|label| label.str.is_empty())
                .any(|label| in_range(profile, label, *low, *high)),
            LabelMatcher::Number(NumberTest(test)) => of_key
                .filter(|label| label.str.is_empty())
                .any(|label| test(profile.text(label.key), label.num)),
            // With a key, one matching expression is enough. Without a key, each expression must
            // match a label.
            LabelMatcher::Text(regexes) if self.key.is_some() => of_key.any(|label| {
                let text = profile.text(label.str);
                !label.str.is_empty() && regexes.iter().any(|r| r.is_match(text))
            }),
            LabelMatcher::Text(regexes) => regexes.iter().all(|r| {
                labels
                    .iter()
                    .filter(|label| !label.str.is_empty())
                    .any(|label| {
                        r.is_match(&format!(
                            "{}:{}",
                            profile.text(label.key),
                            profile.text(label.str)
                        ))
                    })
            }),
        }
    }
}

/// Splits `key=value` into key and value. The key may be missing.
fn split_key(text: &str) -> (Option<String>, &str) {
    match text.split_once('=') {
        Some((key, value)) => (Some(key.to_string()), value),
        None => (None, text),
    }
}

fn in_range(
    profile: &Profile,
    label: &Label,
    low: Option<NumberBound>,
    high: Option<NumberBound>,
) -> bool {
    let unit = profile.text(label.num_unit);
    // Some tools leave the unit out of the label if the key implies it.
    let unit = match (unit, profile.text(label.key)) {
        ("", "bytes" | "request" | "alignment") => Unit::parse("bytes"),
        (unit, _) => Unit::parse(unit),
    };
    let compare = |bound: NumberBound| match (bound.unit, unit) {
        // A bare number is in the label's own unit.
        (None, _) => Some(i128::from(label.num).cmp(&bound.number)),
        (Some(b), Some(l)) if b.family == l.family => {
            let value = i128::from(label.num) * i128::from(l.factor);
            Some(value.cmp(&(bound.number * i128::from(b.factor))))
        }
        _ => None,
    };
    low.is_none_or(|bound| compare(bound).is_some_and(|o| o.is_ge()))
        && high.is_none_or(|bound| compare(bound).is_some_and(|o| o.is_le()))
}

type NumberBounds = (Option<NumberBound>, Option<NumberBound>);

/// Parses `32kb`, `:64kb`, `4mb:` or `12kb:64mb`; `None` if the text is not a range.
fn parse_range(text: &str) -> Result<Option<NumberBounds>, String> {
    let sides: Vec<&str> = text.split(':').collect();
    Ok(match sides[..] {
        [one] => parse_bound(one)?.map(|b| (Some(b), Some(b))),
        ["", high] => parse_bound(high)?.map(|b| (None, Some(b))),
        [low, ""] => parse_bound(low)?.map(|b| (Some(b), None)),
        [low, high] => match (parse_bound(low)?, parse_bound(high)?) {
            (Some(low), Some(high)) => Some((Some(low), Some(high))),
            _ => None,
        },
        _ => None,
    })
}

fn parse_bound(text: &str) -> Result<Option<NumberBound>, String> {
    let digits = text.trim_start_matches(['+', '-']);
    let split = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    let (number, unit) = text.split_at(text.len() - digits.len() + split);
    if split == 0 || !unit.chars().all(|c| c.is_ascii_alphabetic()) {
        return Ok(None);
    }
    let number: i64 = number.parse().map_err(|_| {
        format!(
            "{number} is beyond what a 64-bit number holds; give a smaller one or a larger unit"
        )
    })?;
    let unit = match unit {
        "" => None,
        unit => match Unit::parse(unit) {
            Some(unit) => Some(unit),
            None => return Ok(None),
        },
    };
    Ok(Some(NumberBound {
        number: i128::from(number),
        unit,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use heapprof_profile::ProfileBuilder;

    #[test]
    fn labels_match_as_written() {
        let mut builder = ProfileBuilder::new(&[("space", "bytes")]);
        let labels = [
            builder.number_label("bytes", 2, "kilobytes"),
            builder.text_label("thread", "worker-1"),
        ];
        let profile = builder.finish();
        let table = [
            ("2kb", true),
            ("2048", false),
            ("2", true),
            ("2048b", true),
            (":2kb", true),
            (":2047b", false),
            ("1kb:1mb", true),
            ("3kb:", false),
            ("bytes=2kb", true),
            ("size=2kb", false),
            ("2s", false),
            ("thread=worker", true),
            ("thread=main,worker", true),
            ("thread:worker", true),
            ("worker,main", false),
            ("worker,thread", true),
        ];
        for (text, expected) in table {
            let filter = LabelFilter::parse("tag-focus", text).unwrap();
            assert_eq!(filter.matches(&profile, &labels), expected, "{text}");
        }
        for text in ["99999999999999999999", "worker("] {
            assert!(LabelFilter::parse("tag-focus", text).is_err(), "{text}");
        }
    }
}
