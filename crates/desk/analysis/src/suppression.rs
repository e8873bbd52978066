//! Suppressions: stacks that `leaks` counts but does not list, in the syntax of LeakSanitizer.
//!
//! Files are read and patterns are matched exactly as in LeakSanitizer, including odd cases, so
//! that one file serves both tools.

use foldhash::{HashMap, HashMapExt};
use heapprof_profile::{Profile, StringId};

use crate::error::AnalysisError;

/// A rule, `leak:PATTERN`, with the file and the line that it was read from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuppressionRule {
    /// The pattern, which matches any part of a text. `*` stands for any text, `^` for the
    /// beginning, and `$` for the end.
    pub pattern: String,
    /// The file that the rule was read from.
    pub file: String,
    /// The line of the rule in the file, from 1.
    pub line: usize,
}

/// The rules, in the order in which they are tried.
#[derive(Clone, Debug, Default)]
pub struct SuppressionSet {
    rules: Vec<SuppressionRule>,
}

impl SuppressionSet {
    /// Adds the rules in the text of a file.
    pub fn read(&mut self, file: &str, text: &str) -> Result<(), AnalysisError> {
        for (at, line) in text.split('\n').enumerate() {
            // LeakSanitizer keeps blanks after the colon: they are part of the pattern.
            let line = line.trim_matches([' ', '\t', '\r']);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let pattern = line
                .strip_prefix("leak:")
                .ok_or_else(|| AnalysisError::Suppression {
                    file: file.to_string(),
                    line: at + 1,
                    why: match line.split_once(':') {
                        Some((kind, _)) => {
                            format!("{kind:?} rules are not supported; only leak:PATTERN is")
                        }
                        None => format!("{line:?} is not a rule; write leak:PATTERN"),
                    },
                })?;
            self.rules.push(SuppressionRule {
                pattern: pattern.to_string(),
                file: file.to_string(),
                line: at + 1,
            });
        }
        Ok(())
    }

    /// Returns the rules.
    pub fn rules(&self) -> &[SuppressionRule] {
        &self.rules
    }

    /// Returns the rule that suppresses each location of a profile: the first rule that matches the
    /// module, otherwise the first rule that matches the function or the file of a line, innermost
    /// line first.
    pub(crate) fn rules_by_location(&self, profile: &Profile) -> Vec<Option<u32>> {
        // Many locations share few texts, so the answer for each text is remembered.
        let mut known: HashMap<StringId, Option<u32>> = HashMap::new();
        let mut first = |id: StringId| {
            *known
                .entry(id)
                .or_insert_with(|| self.first_match(profile.text(id)))
        };
        let unmapped = self.first_match("<unknown module>");
        let of = |location: &heapprof_profile::Location| {
            let module = location
                .mapping
                .map(|m| profile.mapping[m.index()].filename);
            let by_module = match module.filter(|m| *m != StringId::EMPTY) {
                Some(module) => first(module),
                None => unmapped,
            };
            let lines = &profile.line[location.line.start as usize..location.line.end as usize];
            by_module.or_else(|| {
                lines.iter().find_map(|line| {
                    let function = &profile.function[line.function.index()];
                    first(function.name).or_else(|| first(function.filename))
                })
            })
        };
        profile.location.iter().map(of).collect()
    }

    fn first_match(&self, text: &str) -> Option<u32> {
        let found = self.rules.iter().position(|r| r.matches(text));
        found.map(|at| at as u32)
    }
}

impl SuppressionRule {
    /// Whether the pattern matches. Only the first occurrence of each part between stars is tried:
    /// `oo$` does not match `oodoo`.
    pub fn matches(&self, text: &str) -> bool {
        // No pattern matches an unknown name, not even an empty one.
        if text.is_empty() {
            return false;
        }
        let (mut at_start, mut pattern) = match self.pattern.strip_prefix('^') {
            Some(rest) => (true, rest),
            None => (false, self.pattern.as_str()),
        };
        let (mut text, mut after_star) = (text, false);
        loop {
            if pattern.is_empty() {
                return true;
            }
            if let Some(rest) = pattern.strip_prefix('*') {
                (pattern, at_start, after_star) = (rest, false, true);
                continue;
            }
            // A `$` ends the pattern, wherever it is. The text after it is never read.
            if pattern.starts_with('$') {
                return after_star || text.is_empty();
            }
            let end = pattern.find(['*', '$']).unwrap_or(pattern.len());
            let part = &pattern[..end];
            match text.find(part) {
                Some(at) if at == 0 || !at_start => text = &text[at + part.len()..],
                _ => return false,
            }
            (pattern, at_start, after_star) = (&pattern[end..], false, false);
        }
    }
}
