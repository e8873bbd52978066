//! `--fail-if`: judges rules, reports the broken ones once, and returns the exit code.

use std::process::ExitCode;

use anyhow::Result;
use heapprof_analysis::gate::{GateRule, RuleVerdict, RuleViolation};
use heapprof_report::{ReportFormat, ReportStyle};

use crate::args::{GateArgs, ReportArgs};
use crate::{messages, output};

/// The rules of a command line, and the verdict so far.
pub(super) struct GateRules {
    rules: Vec<(GateRule, String)>,
    verdict: RuleVerdict,
    /// Number of rules that matched no function.
    unmatched: usize,
}

impl GateRules {
    /// Parses the rules. Callers do this first, so that an invalid rule is reported before a
    /// profile is read.
    pub(super) fn new(args: &GateArgs) -> Result<Self> {
        let read = |text: &String| {
            let rule = GateRule::parse(text).map_err(messages::rule_error)?;
            let rule = rule.ignoring_spread(args.ignore_spread);
            Ok((rule, text.clone()))
        };
        // A rule that is given twice, word for word, counts once.
        let is_first = |(n, text): &(usize, &String)| !args.fail_if[..*n].contains(text);
        let rules = args.fail_if.iter().enumerate().filter(is_first);
        Ok(Self {
            rules: rules.map(|(_, text)| read(text)).collect::<Result<_>>()?,
            verdict: RuleVerdict::default(),
            unmatched: 0,
        })
    }

    /// Parses the rules as [`new`](Self::new) does, but fails for a rule that one profile can't
    /// break.
    pub(super) fn for_one_profile(args: &GateArgs) -> Result<Self> {
        let gate = Self::new(args)?;
        for (rule, _) in &gate.rules {
            rule.refuse_comparison().map_err(messages::rule_error)?;
        }
        Ok(gate)
    }

    /// Returns the rules with their texts.
    pub(super) fn rules(&self) -> impl Iterator<Item = (&GateRule, &str)> {
        self.rules.iter().map(|(rule, text)| (rule, text.as_str()))
    }

    /// Whether any rule is about a total of a profile.
    pub(super) fn names_a_type(&self) -> bool {
        self.rules().any(|(rule, _)| rule.sample_type().is_some())
    }

    /// Judges each rule. A rule that matches nothing is reported.
    pub(super) fn judge(
        &mut self,
        where_to: &str,
        mut judge: impl FnMut(&GateRule) -> Result<Option<RuleVerdict>>,
    ) -> Result<()> {
        for (rule, text) in &self.rules {
            let judged = judge(rule).map_err(|error| match error.downcast() {
                Ok(error) => messages::rule_error(error),
                Err(error) => error,
            });
            match judged? {
                Some(found) => {
                    self.verdict.violations.extend(found.violations);
                    self.verdict.unsure.extend(found.unsure);
                }
                None => {
                    self.unmatched += 1;
                    messages::note(&format!(
                        "--fail-if {text:?} matches no function {where_to}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Returns the broken rules that a report includes. A report on a terminal includes none,
    /// because the broken rules are printed below it. That is also true if a pager shows the
    /// report.
    pub(super) fn in_report(&self, report: &ReportArgs, style: &ReportStyle) -> &[RuleViolation] {
        let is_text = matches!(style.format, ReportFormat::Text | ReportFormat::Markdown);
        match is_text && output::is_terminal(report.output.file()) {
            true => &[],
            false => &self.verdict.violations,
        }
    }

    /// Prints the broken rules and the undecided ones, or that all rules passed. Returns the exit
    /// code. `line` formats a violation.
    pub(super) fn end(
        self,
        written: Result<()>,
        line: impl Fn(&RuleViolation) -> String,
    ) -> Result<ExitCode> {
        match written {
            // A user who stops reading the report still gets the verdict.
            Err(error) if output::is_broken_pipe(&error) => {}
            written => written?,
        }
        for (rule, _) in &self.rules {
            self.say_unsure(rule, &line);
        }
        for broken in &self.verdict.violations {
            messages::note(&format!("failed: {}", line(broken)));
        }
        if !self.verdict.violations.is_empty() {
            return Ok(ExitCode::from(1));
        }
        let open = self.verdict.unsure_rules() + self.unmatched;
        let line = heapprof_report::passed_line(self.rules.len(), open);
        line.iter().for_each(|line| messages::note(line));
        Ok(ExitCode::SUCCESS)
    }

    /// Prints that a rule did not fail, because the estimates beyond its limit are too uncertain.
    /// Shows the first of these estimates, and the number of the others.
    fn say_unsure(&self, rule: &GateRule, line: &impl Fn(&RuleViolation) -> String) {
        let mut unsure = self.verdict.unsure.iter().filter(|b| b.rule == rule.text());
        let Some(first) = unsure.next() else {
            return;
        };
        let more = match unsure.count() {
            0 => String::new(),
            more => format!("; so are {more} more"),
        };
        messages::note(&format!("within noise, not failed: {}{more}", line(first)));
    }
}
