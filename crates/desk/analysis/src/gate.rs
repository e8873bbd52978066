//! The rules of `--fail-if`: which differences and values are too large.
//!
//! `TYPE > +10%` and `TYPE > +5MiB` judge the growth of a total, `TYPE > 1GiB` judges the total in
//! the later profile. `flat(REGEX)` and `cum(REGEX)` judge each function that matches. `new > 1MiB`
//! judges each function that is only in the later profile. `>=` may be written instead of `>`. On a
//! single profile (`leaks`, `top`, `info`) only rules on values can be judged.
//!
//! An estimate breaks a rule only if it exceeds the bound by more than its own spread. A rule about
//! many functions divides the 5 % chance of error among them.

use std::collections::BTreeSet;

use heapprof_profile::{IN_USE, PEAK, Unit, UnitFamily, find_sample_type};
use regex::Regex;

use crate::diff::{ChangeSpread, DiffReport, ValueChange};
use crate::error::AnalysisError;
use crate::header::{SampleType, period, sample_type};
use crate::leaks::LeaksReport;
use crate::place::{self, CodePlace};
use crate::question::is_peak;
use crate::session::{AnalysisSession, read_value_with_spread};
use heapprof_totals::estimate::{
    ConfidenceLevel, SampleStep, SumSpread, ValueEstimate, ValueWithSpread, difference,
};
use heapprof_totals::query::{Query, SortKey};

/// A parsed rule of `--fail-if`.
#[derive(Debug)]
pub struct GateRule {
    text: String,
    subject: RuleSubject,
    or_equal: bool,
    bound: RuleBound,
    ignores_spread: bool,
}

#[derive(Debug)]
enum RuleSubject {
    Total(String),
    Each(SortKey, Regex),
    New,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum RuleBound {
    /// Growth in percent of the value in the earlier profile.
    Percent(f64),
    /// Growth in the given unit, or in the unit of the sample type.
    Growth(BoundAmount),
    /// The value in the later profile.
    Value(BoundAmount),
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct BoundAmount {
    number: f64,
    unit: Option<Unit>,
}

/// A total or a function that violates a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleViolation {
    /// The rule as the user wrote it.
    pub rule: String,
    /// The sample type or the function that broke the rule.
    pub subject: String,
    /// The unit of the values.
    pub unit: String,
    /// The values in both profiles.
    pub change: ValueChange,
    /// Whether the rule is about the value in the later profile. If false, the rule is about
    /// growth.
    pub is_about_value: bool,
    /// The range of the growth or value that the rule judges; `None` if it is exact.
    pub estimate: Option<ValueEstimate>,
}

/// The result of judging a rule.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RuleVerdict {
    /// The totals and functions that break the rule.
    pub violations: Vec<RuleViolation>,
    /// The totals and functions that may break the rule: their estimates exceed the bound, but by
    /// less than the spread.
    pub unsure: Vec<RuleViolation>,
}

impl RuleVerdict {
    /// Returns the number of rules that something may break.
    pub fn unsure_rules(&self) -> usize {
        let rules = self.unsure.iter().map(|of| of.rule.as_str());
        rules.collect::<BTreeSet<_>>().len()
    }
}

impl GateRule {
    /// Parses a rule.
    pub fn parse(text: &str) -> Result<Self, AnalysisError> {
        let error = |why: String| AnalysisError::Rule {
            rule: text.to_string(),
            why,
        };
        // The comparison is after the closing parenthesis, because expressions may contain a `>`.
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
            let regex =
                Regex::new(text).map_err(|e| error(heapprof_totals::pattern::regex_error(&e)))?;
            Ok::<_, AnalysisError>(RuleSubject::Each(sort, regex))
        };
        let subject = match (inside("flat"), inside("cum")) {
            (Some(inner), _) => regex(SortKey::Flat, inner)?,
            (_, Some(inner)) => regex(SortKey::Cum, inner)?,
            _ if left == "new" => RuleSubject::New,
            _ if !left.is_empty()
                && left.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') =>
            {
                RuleSubject::Total(left.to_string())
            }
            _ => {
                return Err(error(format!(
                    "{left:?} is neither a sample type nor flat(REGEX), cum(REGEX) or new"
                )));
            }
        };
        let bound = parse_bound(right).map_err(error)?;
        if matches!((&subject, bound), (RuleSubject::New, RuleBound::Percent(_))) {
            return Err(error(
                "new functions have no growth in percent; give a size".to_string(),
            ));
        }
        Ok(Self {
            text: text.to_string(),
            subject,
            or_equal,
            bound,
            ignores_spread: false,
        })
    }

    /// Sets whether the rule takes estimates as exact values, and returns the rule.
    pub fn ignoring_spread(mut self, ignores: bool) -> Self {
        self.ignores_spread = ignores;
        self
    }

    /// Returns the rule as the user wrote it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the sample type of the rule, if the rule is about a total.
    pub fn sample_type(&self) -> Option<&str> {
        match &self.subject {
            RuleSubject::Total(name) => Some(name),
            _ => None,
        }
    }

    /// Whether the rule judges a sample type whose values were taken when the heap was largest.
    pub fn is_about_peak(&self, diff: &DiffReport) -> bool {
        is_peak(self.sample_type().unwrap_or(&diff.after.sample_type.r#type))
    }

    /// Returns the same rule about peaks, if one side has freed most of what this one judges.
    pub fn for_peaks(&self, diff: &DiffReport) -> Option<String> {
        let total = |name: &str| {
            let mut all = diff.types.iter();
            all.find(|(of, _)| of.r#type == name)
                .map(|(_, change)| *change)
        };
        let (end, peak) = (total(IN_USE)?, total(PEAK)?);
        let subject = self.sample_type().unwrap_or(&diff.after.sample_type.r#type);
        let shown = heapprof_profile::default_of_finished_program;
        let (before, after) = (shown(end.before, peak.before), shown(end.after, peak.after));
        (subject == IN_USE && [before, after].contains(&PEAK))
            .then(|| self.text.replacen(IN_USE, PEAK, 1))
    }

    /// Whether the rule can judge anything in a comparison. A rule about functions may match no
    /// function.
    pub fn has_subject(&self, diff: &DiffReport) -> bool {
        match &self.subject {
            RuleSubject::Each(_, regex) => diff
                .rows
                .iter()
                .any(|row| regex.is_match(&row.place.function)),
            RuleSubject::Total(_) | RuleSubject::New => true,
        }
    }

    /// Judges a comparison of two profiles. Returns everything that breaks the rule.
    pub fn judge_diff(&self, diff: &DiffReport) -> Result<RuleVerdict, AnalysisError> {
        let error = |why: String| self.error(why);
        let shown = &diff.after.sample_type;
        let mut verdict = RuleVerdict::default();
        match &self.subject {
            RuleSubject::Total(name) if *name == shown.r#type => {
                let one = (name.clone(), diff.total, diff.total_spread);
                self.judge(&shown.unit, vec![one], &mut verdict)?;
            }
            RuleSubject::Total(name) => {
                let names: Vec<_> = diff.types.iter().map(|(t, _)| t.r#type.as_str()).collect();
                let Ok(at) = find_sample_type(&names, name) else {
                    return Err(error(format!(
                        "{name} is not a sample type of both profiles; they share {}",
                        names.join(", ")
                    )));
                };
                let (sample_type, change) = &diff.types[at];
                let one = (sample_type.r#type.clone(), *change, diff.type_spreads[at]);
                self.judge(&sample_type.unit, vec![one], &mut verdict)?;
            }
            RuleSubject::Each(sort, regex) => {
                let rows = diff.rows.iter();
                let rows = rows.filter(|row| regex.is_match(&row.place.function));
                let all = rows.map(|r| (r.place.label(), r.change(*sort), r.change_spread(*sort)));
                self.judge(&shown.unit, all.collect(), &mut verdict)?;
            }
            RuleSubject::New => {
                let rows = diff.rows.iter();
                let rows = rows.filter(|row| !row.existed_before && row.flat.delta() != 0);
                let all = rows.map(|r| (r.place.label(), r.flat, r.change_spread(SortKey::Flat)));
                self.judge(&shown.unit, all.collect(), &mut verdict)?;
            }
        }
        Ok(verdict)
    }

    fn error(&self, why: String) -> AnalysisError {
        AnalysisError::Rule {
            rule: self.text.clone(),
            why,
        }
    }

    /// Judges all subjects of the rule. Each subject has a name, a change and the spread of the
    /// change. The chance of error is divided among the subjects.
    fn judge(
        &self,
        unit: &str,
        all: Vec<(String, ValueChange, ChangeSpread)>,
        verdict: &mut RuleVerdict,
    ) -> Result<(), AnalysisError> {
        let confidence = ConfidenceLevel::shared_by(all.len());
        for (subject, change, sides) in all {
            if !self.breaks(unit, change).map_err(|why| self.error(why))? {
                continue;
            }
            let judged = match sides.spread {
                [None, None] => None,
                _ => Some(self.judge_estimate(unit, change, &sides, confidence)),
            };
            let (sure, estimate) = match judged.transpose().map_err(|why| self.error(why))? {
                None => (true, None),
                Some((sure, estimate)) => (sure || self.ignores_spread, Some(estimate)),
            };
            let broken = RuleViolation {
                rule: self.text.clone(),
                subject,
                unit: unit.to_string(),
                change,
                is_about_value: matches!(self.bound, RuleBound::Value(_)),
                estimate,
            };
            match sure {
                true => verdict.violations.push(broken),
                false => verdict.unsure.push(broken),
            }
        }
        Ok(())
    }

    /// Returns whether the judged value breaks the rule by more than its spread, and the range of
    /// that value.
    fn judge_estimate(
        &self,
        unit: &str,
        change: ValueChange,
        sides: &ChangeSpread,
        confidence: ConfidenceLevel,
    ) -> Result<(bool, ValueEstimate), String> {
        // `after - factor * before` must be beyond the bound. `shown` is the factor for the number
        // that the report shows, which is the growth or the value.
        let (factor, shown, bound) = match self.bound {
            RuleBound::Percent(percent) if change.before < 0 => (1.0 - percent / 100.0, 1.0, 0.0),
            RuleBound::Percent(percent) => (1.0 + percent / 100.0, 1.0, 0.0),
            RuleBound::Growth(amount) => (1.0, 1.0, amount.in_unit(unit)?),
            // A new function was not there before, so all of its value is growth.
            RuleBound::Value(amount) if matches!(self.subject, RuleSubject::New) => {
                (1.0, 1.0, amount.in_unit(unit)?)
            }
            RuleBound::Value(amount) => (0.0, 0.0, amount.in_unit(unit)?),
        };
        let [before, after] = sides.sides_of(change);
        let (least, _) = difference(before, after, factor, confidence);
        let (low, high) = difference(before, after, shown, confidence);
        let samples = |at: usize| sides.spread[at].map_or(0, |spread: SumSpread| spread.samples);
        let estimate = ValueEstimate {
            low: low.floor() as i64,
            high: high.ceil() as i64,
            samples: samples(1) + if shown == 0.0 { 0 } else { samples(0) },
        };
        let sure = match self.or_equal {
            true => least >= bound,
            false => least > bound,
        };
        Ok((sure, estimate))
    }

    /// Returns an error if the rule needs two profiles. A single profile can't break such a rule.
    pub fn refuse_comparison(&self) -> Result<(), AnalysisError> {
        let compares = matches!(self.subject, RuleSubject::New)
            || matches!(self.bound, RuleBound::Percent(_) | RuleBound::Growth(_));
        match compares {
            false => Ok(()),
            true => Err(AnalysisError::Rule {
                rule: self.text.clone(),
                why: "is about growth, but there is only one profile; give a value, as in \
                      'inuse_space > 1MiB', or compare two with heapprof diff"
                    .to_string(),
            }),
        }
    }

    /// Judges the blocks in use that are not suppressed. Returns `None` if nothing in the report is
    /// a subject of the rule, or if the rule is not about memory in use.
    pub fn judge_leaks(
        &self,
        session: &AnalysisSession,
        leaks: &LeaksReport,
    ) -> Result<Option<RuleVerdict>, AnalysisError> {
        self.refuse_comparison()?;
        let (unit, values) = match &self.subject {
            RuleSubject::Total(name) => {
                let sums = leaks.kept_values().into_iter().zip(&leaks.types);
                let sums: Vec<(ValueWithSpread, &SampleType)> = sums.collect();
                let names: Vec<_> = sums.iter().map(|(_, t)| t.r#type.as_str()).collect();
                let Ok(at) = find_sample_type(&names, name) else {
                    return Ok(None);
                };
                let (known, sample_type) = sums[at];
                (sample_type.unit.as_str(), vec![(name.clone(), known)])
            }
            RuleSubject::Each(sort, regex) => {
                let functions = leaks.by_function(session, *sort)?.into_iter();
                let matching = functions.filter(|(place, _)| regex.is_match(&place.function));
                let values = matching.map(|(place, known)| (place.label(), known));
                (leaks.header.sample_type.unit.as_str(), values.collect())
            }
            RuleSubject::New => Default::default(),
        };
        self.judge_values(unit, leaks.header.sampled, values)
    }

    /// Judges one profile. Returns `None` if nothing in it is a subject of the rule.
    pub fn judge_profile(
        &self,
        session: &AnalysisSession,
        profile: i64,
        query: &Query,
    ) -> Result<Option<RuleVerdict>, AnalysisError> {
        self.refuse_comparison()?;
        let (unit, values) = match &self.subject {
            RuleSubject::Total(name) => {
                let known = AnalysisSession::spread_columns("t", "kept_");
                let sums = session.rows(
                    &format!(
                        "SELECT s.type, s.unit, t.kept_net, {known} FROM profile_total t \
                         JOIN sample_type s ON s.id = t.type WHERE t.profile = ?1 \
                         ORDER BY t.position"
                    ),
                    [profile],
                    |row| Ok((row.get(0)?, row.get(1)?, read_value_with_spread(row, 2)?)),
                )?;
                let names: Vec<&str> = sums.iter().map(|t: &(String, _, _)| &t.0[..]).collect();
                let at = find_sample_type(&names, name).map_err(|_| {
                    let present = names.join(", ");
                    self.error(format!(
                        "{name} is not one of its sample types; it has {present}"
                    ))
                })?;
                let (_, unit, known): &(String, String, ValueWithSpread) = &sums[at];
                (unit.clone(), vec![(name.clone(), *known)])
            }
            RuleSubject::Each(sort, regex) => {
                let (r#type, sample_type) = sample_type(session, profile)?;
                let (value, prefix) = match sort {
                    SortKey::Flat => ("flat", ""),
                    SortKey::Cum => ("cum", "cum_"),
                };
                let known = AnalysisSession::spread_columns("t", prefix);
                let places = place::columns(query.granularity, "t");
                let rows = session.rows(
                    &format!(
                        "SELECT {places}, t.{value}, {known} FROM function_total t \
                         JOIN function f ON f.id = t.function \
                         WHERE t.profile = ?1 AND t.type = ?2"
                    ),
                    [profile, r#type],
                    |row| {
                        Ok((
                            CodePlace::read(row, 0)?,
                            read_value_with_spread(row, place::PLACE_COLUMN_COUNT)?,
                        ))
                    },
                )?;
                let rows = rows.into_iter();
                let matching = rows.filter(|(place, _)| regex.is_match(&place.function));
                let values = matching.map(|(place, known)| (place.label(), known));
                (sample_type.unit, values.collect())
            }
            RuleSubject::New => Default::default(),
        };
        self.judge_values(&unit, period(session, profile)?, values)
    }

    /// Judges values of one profile, each with its name.
    fn judge_values(
        &self,
        unit: &str,
        period: Option<i64>,
        values: Vec<(String, ValueWithSpread)>,
    ) -> Result<Option<RuleVerdict>, AnalysisError> {
        let step = SampleStep::for_bytes(period, unit);
        if values.is_empty() {
            return Ok(None);
        }
        let all = values.into_iter().map(|(subject, known)| {
            let change = ValueChange {
                before: 0,
                after: known.value,
            };
            let sides = ChangeSpread {
                spread: [None, known.spread],
                step: [step; 2],
            };
            (subject, change, sides)
        });
        let mut verdict = RuleVerdict::default();
        self.judge(unit, all.collect(), &mut verdict)?;
        Ok(Some(verdict))
    }

    fn breaks(&self, unit: &str, change: ValueChange) -> Result<bool, String> {
        let delta = change.delta() as f64;
        let (value, bound) = match self.bound {
            // Both sides are multiplied by 100, because percentages are whole numbers more often
            // than shares are: 7 % of 100 is 7.
            RuleBound::Percent(percent) => (delta * 100.0, percent * (change.before as f64).abs()),
            RuleBound::Growth(amount) => (delta, amount.in_unit(unit)?),
            RuleBound::Value(amount) => (change.after as f64, amount.in_unit(unit)?),
        };
        // If the value before was 0, any growth breaks a rule in percent, and a value that did not
        // grow does not break it.
        let none =
            matches!(self.bound, RuleBound::Percent(_)) && change.before == 0 && delta <= 0.0;
        Ok(!none
            && if self.or_equal {
                value >= bound
            } else {
                value > bound
            })
    }
}

impl BoundAmount {
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
                    UnitFamily::Bytes => "bytes",
                    UnitFamily::Time => "time",
                };
                Err(format!("compares {what} with a value in {unit}"))
            }
        }
    }
}

fn parse_bound(text: &str) -> Result<RuleBound, String> {
    let wrong = || {
        format!("{text:?} is not a bound; write +10% or +5MiB for growth, 1GiB for the value after")
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
        "%" if grown => Ok(RuleBound::Percent(number)),
        "%" => Err(format!("write +{number}% for growth of {number} percent")),
        unit => {
            let unit = match unit {
                "" => None,
                unit => Some(Unit::parse(unit).ok_or_else(wrong)?),
            };
            let amount = BoundAmount { number, unit };
            Ok(if grown {
                RuleBound::Growth(amount)
            } else {
                RuleBound::Value(amount)
            })
        }
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let mib = Unit::parse("MiB");
        let amount = |number, unit| BoundAmount { number, unit };
        assert_eq!(parse_bound("+10%"), Ok(RuleBound::Percent(10.0)));
        assert_eq!(
            parse_bound("+5MiB"),
            Ok(RuleBound::Growth(amount(5.0, mib)))
        );
        assert_eq!(
            parse_bound("1.5 MiB"),
            Ok(RuleBound::Value(amount(1.5, mib)))
        );
        assert_eq!(
            parse_bound("+1000"),
            Ok(RuleBound::Growth(amount(1000.0, None)))
        );
        for wrong in ["", "10%", "+", "-5", "5 bananas", "+5MiB!"] {
            assert!(parse_bound(wrong).is_err(), "{wrong}");
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
            assert!(GateRule::parse(wrong).is_err(), "{wrong}");
        }
        for right in [
            "inuse_space > +10%",
            "flat(a>b) > +5MiB",
            "cum (x)>=1",
            "new > 1MiB",
        ] {
            GateRule::parse(right).unwrap();
        }
    }

    #[test]
    fn growth_from_nothing_is_beyond_every_percentage() {
        let rule = GateRule::parse("inuse_space > +10%").unwrap();
        let breaks = |before, after| rule.breaks("bytes", ValueChange { before, after }).unwrap();
        assert!(breaks(0, 1));
        assert!(!breaks(0, 0));
        assert!(!breaks(100, 110));
        assert!(breaks(100, 111));
        let rule = GateRule::parse("inuse_space >= +7%").unwrap();
        let change = ValueChange {
            before: 100,
            after: 107,
        };
        assert!(rule.breaks("bytes", change).unwrap());
        assert!(!breaks(100, 50));
    }
}
