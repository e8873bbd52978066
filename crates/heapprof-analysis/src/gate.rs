//! Rules of `--fail-if`: when a difference is too much.
//!
//! `TYPE > +10%` and `TYPE > +5MiB` speak of a total's growth, `TYPE > 1GiB` of the total after;
//! `flat(REGEX)` and `cum(REGEX)` of each function that matches; `new > 1MiB` of functions that were
//! not there. `>=` may stand for `>`. Of one profile (`leaks`) only rules on values can be judged.

use heapprof_profile::{Family, Unit, find_sample_type};
use regex::Regex;

use crate::diff::{Change, Diff, Status};
use crate::error::Error;
use crate::leaks::Leaks;
use crate::query::Sort;
use crate::session::Session;

/// A rule as read.
#[derive(Debug)]
pub struct Rule {
    text: String,
    subject: Subject,
    or_equal: bool,
    bound: Bound,
}

#[derive(Debug)]
enum Subject {
    Total(String),
    Each(Sort, Regex),
    New,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Bound {
    /// Growth in percent of what was there before.
    Percent(f64),
    /// Growth in the unit given, or the sample type's.
    Growth(Amount),
    /// The value after.
    Value(Amount),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Amount {
    number: f64,
    unit: Option<Unit>,
}

/// A rule that broke.
#[derive(Clone, Debug, PartialEq)]
pub struct Broken {
    /// The rule as it was written.
    pub rule: String,
    /// What it broke on: a sample type or a function.
    pub subject: String,
    /// Its values.
    pub change: Change,
}

impl Rule {
    /// Reads a rule.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let error = |why: String| Error::Rule {
            rule: text.to_string(),
            why,
        };
        // The comparison stands behind the closing parenthesis: expressions may hold a `>`.
        let from = text.rfind(')').unwrap_or(0);
        let at = text[from..].find('>').map(|at| at + from).ok_or_else(|| {
            error(
                "needs a >, as in 'inuse_space > +10%', 'flat(REGEX) > +1MiB' or 'new > 1MiB'"
                    .to_string(),
            )
        })?;
        let (left, right) = (text[..at].trim(), &text[at + 1..]);
        let (or_equal, right) = match right.strip_prefix('=') {
            Some(right) => (true, right.trim()),
            None => (false, right.trim()),
        };
        let inside = |name: &str| {
            let rest = left.strip_prefix(name)?.trim_start();
            rest.strip_prefix('(')?.strip_suffix(')')
        };
        let regex = |sort, text: &str| {
            let regex = Regex::new(text).map_err(|e| error(crate::pattern::regex_error(&e)))?;
            Ok::<_, Error>(Subject::Each(sort, regex))
        };
        let subject = match (inside("flat"), inside("cum")) {
            (Some(inner), _) => regex(Sort::Flat, inner)?,
            (_, Some(inner)) => regex(Sort::Cum, inner)?,
            _ if left == "new" => Subject::New,
            _ if !left.is_empty()
                && left.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') =>
            {
                Subject::Total(left.to_string())
            }
            _ => {
                return Err(error(format!(
                    "{left:?} is neither a sample type nor flat(REGEX), cum(REGEX) or new"
                )));
            }
        };
        let bound = bound(right).map_err(error)?;
        if matches!((&subject, bound), (Subject::New, Bound::Percent(_))) {
            return Err(error(
                "what is new has no growth in percent; give a size".to_string(),
            ));
        }
        Ok(Self {
            text: text.to_string(),
            subject,
            or_equal,
            bound,
        })
    }

    /// The sample type it speaks of, if it speaks of a total.
    pub fn sample_type(&self) -> Option<&str> {
        match &self.subject {
            Subject::Total(name) => Some(name),
            _ => None,
        }
    }

    /// Whether there is anything that it could judge: a rule on functions may match none.
    pub fn speaks_of_something(&self, diff: &Diff) -> bool {
        match &self.subject {
            Subject::Each(_, regex) => diff
                .rows
                .iter()
                .any(|row| regex.is_match(&row.place.function)),
            Subject::Total(_) | Subject::New => true,
        }
    }

    /// What breaks it.
    pub fn broken(&self, diff: &Diff) -> Result<Vec<Broken>, Error> {
        let error = |why: String| Error::Rule {
            rule: self.text.clone(),
            why,
        };
        let shown = &diff.after.sample_type;
        let mut found = Vec::new();
        let mut check = |subject: &str, unit: &str, change: Change| -> Result<(), Error> {
            if self.breaks(unit, change).map_err(error)? {
                found.push(Broken {
                    rule: self.text.clone(),
                    subject: subject.to_string(),
                    change,
                });
            }
            Ok(())
        };
        match &self.subject {
            Subject::Total(name) if *name == shown.r#type => {
                check(name, &shown.unit, diff.total)?;
            }
            Subject::Total(name) => {
                let names: Vec<_> = diff.types.iter().map(|(t, _)| t.r#type.as_str()).collect();
                let Ok(at) = find_sample_type(&names, name) else {
                    return Err(error(format!(
                        "{name} is not a sample type of both profiles; they share {}",
                        names.join(", ")
                    )));
                };
                let (sample_type, change) = &diff.types[at];
                check(&sample_type.r#type, &sample_type.unit, *change)?;
            }
            Subject::Each(sort, regex) => {
                for row in &diff.rows {
                    if regex.is_match(&row.place.function) {
                        check(&row.place.label(), &shown.unit, row.change(*sort))?;
                    }
                }
            }
            Subject::New => {
                for row in &diff.rows {
                    if row.status(Sort::Flat) == Status::New {
                        check(&row.place.label(), &shown.unit, row.flat)?;
                    }
                }
            }
        }
        Ok(found)
    }

    /// Errors when it compares: one profile alone can't break it.
    pub fn of_one_profile(&self) -> Result<(), Error> {
        let compares = matches!(self.subject, Subject::New)
            || matches!(self.bound, Bound::Percent(_) | Bound::Growth(_));
        match compares {
            false => Ok(()),
            true => Err(Error::Rule {
                rule: self.text.clone(),
                why: "speaks of growth, and this is one profile; write a value, as in \
                      'inuse_space > 1MiB', or compare two with heapprof diff"
                    .to_string(),
            }),
        }
    }

    /// What of the blocks in use breaks it, suppressed ones aside; `None` where it speaks of nothing
    /// that is there.
    pub fn broken_by(
        &self,
        session: &Session,
        leaks: &Leaks,
    ) -> Result<Option<Vec<Broken>>, Error> {
        self.of_one_profile()?;
        let error = |why: String| Error::Rule {
            rule: self.text.clone(),
            why,
        };
        let in_use = leaks.in_use();
        let values: Vec<(String, &str, i64)> = match &self.subject {
            Subject::Total(name) => {
                let sums = leaks.types.iter().zip([in_use.objects, in_use.space]);
                let sums: Vec<(&crate::SampleType, i64)> = sums.collect();
                let names: Vec<_> = sums.iter().map(|(t, _)| t.r#type.as_str()).collect();
                let at = find_sample_type(&names, name).map_err(|_| {
                    error(format!(
                        "{name} is not judged here; inuse_space and inuse_objects are"
                    ))
                })?;
                let (sample_type, value) = sums[at];
                vec![(name.clone(), sample_type.unit.as_str(), value)]
            }
            Subject::Each(sort, regex) => {
                let unit = &leaks.header.sample_type.unit;
                let functions = leaks.by_function(session, *sort)?.into_iter();
                let matching = functions.filter(|(name, _)| regex.is_match(name));
                matching.map(|(name, v)| (name, unit.as_str(), v)).collect()
            }
            Subject::New => Vec::new(),
        };
        if values.is_empty() {
            return Ok(None);
        }
        let mut broken = Vec::new();
        for (subject, unit, after) in values {
            let change = Change { before: 0, after };
            if self.breaks(unit, change).map_err(error)? {
                broken.push(Broken {
                    rule: self.text.clone(),
                    subject,
                    change,
                });
            }
        }
        Ok(Some(broken))
    }

    fn breaks(&self, unit: &str, change: Change) -> Result<bool, String> {
        let delta = change.delta() as f64;
        let (value, bound) = match self.bound {
            // Percent are whole numbers more often than shares are: 7 % of 100 is 7.
            Bound::Percent(percent) => (delta * 100.0, percent * (change.before as f64).abs()),
            Bound::Growth(amount) => (delta, amount.in_unit(unit)?),
            Bound::Value(amount) => (change.after as f64, amount.in_unit(unit)?),
        };
        // From nothing any growth is beyond every percentage; without growth none is.
        let none = matches!(self.bound, Bound::Percent(_)) && change.before == 0 && delta <= 0.0;
        Ok(!none
            && if self.or_equal {
                value >= bound
            } else {
                value > bound
            })
    }
}

impl Amount {
    fn in_unit(self, unit: &str) -> Result<f64, String> {
        let Some(given) = self.unit else {
            return Ok(self.number);
        };
        match Unit::parse(unit) {
            Some(of) if of.family == given.family => {
                Ok(self.number * given.factor as f64 / of.factor as f64)
            }
            _ => {
                let what = match given.family {
                    Family::Bytes => "bytes",
                    Family::Time => "time",
                };
                Err(format!("compares {what} with a value in {unit}"))
            }
        }
    }
}

fn bound(text: &str) -> Result<Bound, String> {
    let wrong = || {
        format!("{text:?} is no bound; write +10% or +5MiB for growth, 1GiB for the value after")
    };
    let (grown, rest) = match text.strip_prefix('+') {
        Some(rest) => (true, rest.trim()),
        None => (false, text),
    };
    let split = rest
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(rest.len());
    let (digits, unit) = rest.split_at(split);
    let number: f64 = digits.parse().map_err(|_| wrong())?;
    match unit.trim() {
        "%" if grown => Ok(Bound::Percent(number)),
        "%" => Err(format!("write +{number}% for growth of {number} percent")),
        unit => {
            let unit = match unit {
                "" => None,
                unit => Some(Unit::parse(unit).ok_or_else(wrong)?),
            };
            let amount = Amount { number, unit };
            Ok(if grown {
                Bound::Growth(amount)
            } else {
                Bound::Value(amount)
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let mib = Unit::parse("MiB");
        let amount = |number, unit| Amount { number, unit };
        assert_eq!(bound("+10%"), Ok(Bound::Percent(10.0)));
        assert_eq!(bound("+5MiB"), Ok(Bound::Growth(amount(5.0, mib))));
        assert_eq!(bound("1.5 MiB"), Ok(Bound::Value(amount(1.5, mib))));
        assert_eq!(bound("+1000"), Ok(Bound::Growth(amount(1000.0, None))));
        for wrong in ["", "10%", "+", "-5", "5 bananas", "+5MiB!"] {
            assert!(bound(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn rules_that_cannot_be_read() {
        for wrong in [
            "",
            "inuse_space",
            "inuse_space < 5",
            "flat(( > 5",
            "new > +10%",
            "a b > 5",
        ] {
            assert!(Rule::parse(wrong).is_err(), "{wrong}");
        }
        for right in [
            "inuse_space > +10%",
            "flat(a>b) > +5MiB",
            "cum (x)>=1",
            "new > 1MiB",
        ] {
            Rule::parse(right).unwrap();
        }
    }

    #[test]
    fn growth_from_nothing_is_beyond_every_percentage() {
        let rule = Rule::parse("inuse_space > +10%").unwrap();
        let breaks = |before, after| rule.breaks("bytes", Change { before, after }).unwrap();
        assert!(breaks(0, 1));
        assert!(!breaks(0, 0));
        assert!(!breaks(100, 110));
        assert!(breaks(100, 111));
        let rule = Rule::parse("inuse_space >= +7%").unwrap();
        let change = Change {
            before: 100,
            after: 107,
        };
        assert!(rule.breaks("bytes", change).unwrap());
        assert!(!breaks(100, 50));
    }
}
