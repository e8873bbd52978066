//! The condition for which a watch can wait: a limit for a value, such as the resident set, of one
//! process or of all processes together.

use heapprof_process::{MemoryUsage, StatmSizes};

/// The value of a process that a rule compares with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RuleNumber {
    Rss,
    Pss,
    Uss,
    Swap,
    Size,
    Data,
    Threads,
}

const RULE_NUMBERS: [(&str, RuleNumber); 7] = [
    ("rss", RuleNumber::Rss),
    ("pss", RuleNumber::Pss),
    ("uss", RuleNumber::Uss),
    ("swap", RuleNumber::Swap),
    ("size", RuleNumber::Size),
    ("data", RuleNumber::Data),
    ("threads", RuleNumber::Threads),
];

/// The values of a process that one scan has read.
#[derive(Clone, Copy, Debug)]
pub struct ProcessReading<'a> {
    /// Process id.
    pub pid: u32,
    /// The memory sizes that cost little to read.
    pub statm: &'a StatmSizes,
    /// The sums over all mappings, if this scan read them.
    pub usage: Option<&'a MemoryUsage>,
    /// Number of threads.
    pub threads: i64,
}

/// A rule, such as `rss > 2GiB`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchRule {
    number: RuleNumber,
    /// Whether the rule compares the sum over all processes.
    is_total: bool,
    /// Whether the rule holds for values above the limit. Otherwise it holds for values below it.
    is_above: bool,
    /// Whether the rule also holds at the limit itself.
    with_limit: bool,
    limit: u64,
}

impl WatchRule {
    /// Parses a rule. `size` parses the limit if the limit is a number of bytes.
    pub fn parse(text: &str, size: impl Fn(&str) -> Result<u64, String>) -> Result<Self, String> {
        let wrong = || {
            let names: Vec<&str> = RULE_NUMBERS.iter().map(|(name, _)| *name).collect();
            format!(
                "expected a name, > or < or >= or <=, and a size (a number for threads), such as \
                 'rss > 2GiB'; the names are {}, each also with the prefix total_",
                names.join(", ")
            )
        };
        let at = text.find(['<', '>']).ok_or_else(wrong)?;
        let (name, rest) = text.split_at(at);
        let is_above = rest.starts_with('>');
        let rest = &rest[1..];
        let (with_limit, limit) = match rest.strip_prefix('=') {
            Some(limit) => (true, limit),
            None => (false, rest),
        };
        let name = name.trim();
        let (is_total, name) = match name.strip_prefix("total_") {
            Some(name) => (true, name),
            None => (false, name),
        };
        let found = RULE_NUMBERS.iter().find(|(one, _)| *one == name);
        let (_, number) = found.ok_or_else(wrong)?;
        let limit = limit.trim();
        let limit = match number {
            RuleNumber::Threads => limit.parse().map_err(|_| "it is not a number".to_string()),
            _ => size(limit),
        };
        Ok(Self {
            number: *number,
            is_total,
            is_above,
            with_limit,
            limit: limit?,
        })
    }

    /// Whether the rule needs the sums over all mappings, which cost more to read.
    pub fn needs_usage(&self) -> bool {
        matches!(
            self.number,
            RuleNumber::Pss | RuleNumber::Uss | RuleNumber::Swap
        )
    }

    /// Whether the rule compares numbers of bytes.
    pub fn is_of_bytes(&self) -> bool {
        self.number != RuleNumber::Threads
    }

    /// Returns the id and the value of the first process for which the rule holds. For a rule about
    /// the sum over all processes, returns the id of the process with the largest value, and the
    /// sum.
    pub fn holds(&self, all: &[ProcessReading<'_>]) -> Option<(u32, u64)> {
        let known = || {
            all.iter()
                .filter_map(|now| Some((now.pid, self.number_in(now)?)))
        };
        if self.is_total {
            let sum = known().fold(0u64, |sum, (_, value)| sum.saturating_add(value));
            let (most, _) = known().max_by_key(|(_, value)| *value)?;
            return self.is_true(sum).then_some((most, sum));
        }
        known().find(|(_, value)| self.is_true(*value))
    }

    fn is_true(&self, value: u64) -> bool {
        let is_limit = value == self.limit && self.with_limit;
        is_limit
            || match self.is_above {
                true => value > self.limit,
                false => value < self.limit,
            }
    }

    fn number_in(&self, now: &ProcessReading<'_>) -> Option<u64> {
        Some(match self.number {
            RuleNumber::Rss => now.statm.rss,
            RuleNumber::Size => now.statm.size,
            RuleNumber::Data => now.statm.data,
            RuleNumber::Threads => u64::try_from(now.threads).unwrap_or(0),
            RuleNumber::Pss => now.usage?.pss,
            RuleNumber::Uss => now.usage?.uss(),
            RuleNumber::Swap => now.usage?.swap,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<WatchRule, String> {
        WatchRule::parse(text, |size| {
            let (digits, factor) = match size.strip_suffix("KiB") {
                Some(digits) => (digits, 1024),
                None => (size.trim_end_matches('B'), 1),
            };
            let number: u64 = digits.parse().map_err(|_| "no size".to_string())?;
            Ok(number * factor)
        })
    }

    #[test]
    fn rules_hold_for_processes_and_for_all() {
        let statm = [(1, 100), (2, 300)].map(|(size, rss)| StatmSizes {
            size,
            rss,
            ..StatmSizes::default()
        });
        let usage = MemoryUsage {
            pss: 50,
            private_clean: 7,
            swap: 9,
            ..MemoryUsage::default()
        };
        let now = |pid, i: usize| ProcessReading {
            pid,
            statm: &statm[i],
            usage: (i == 1).then_some(&usage),
            threads: 4,
        };
        let all = [now(8, 0), now(9, 1)];
        for (text, expected) in [
            ("rss > 99", Some((8, 100))),
            ("rss>100", Some((9, 300))),
            ("rss >= 100", Some((8, 100))),
            ("rss > 300", None),
            ("rss < 100", None),
            ("rss <= 100B", Some((8, 100))),
            ("total_rss > 399", Some((9, 400))),
            ("total_rss > 400", None),
            ("pss >= 50", Some((9, 50))),
            ("uss > 6", Some((9, 7))),
            ("swap > 8", Some((9, 9))),
            ("threads > 3", Some((8, 4))),
            ("size > 1", Some((9, 2))),
        ] {
            assert_eq!(parse(text).unwrap().holds(&all), expected, "{text}");
        }
        assert_eq!(parse("rss < 1KiB").unwrap().holds(&[]), None);
        for wrong in [
            "",
            "rss",
            "rss = 5",
            "rss > ",
            "rss > x",
            "threads > 2GiB",
            "heap > 5",
            "> 5",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        assert!(parse("uss > 5").unwrap().needs_usage());
    }
}
