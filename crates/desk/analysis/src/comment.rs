//! The comments that a collector writes into a profile, with one `key: value` in each line.

use heapprof_profile::Profile;

use crate::error::AnalysisError;
use crate::session::AnalysisSession;

/// The moment when a profile was dumped, according to its comments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DumpTime {
    /// The profile was dumped when the program ended. Memory that was in use at that moment was
    /// never freed.
    AtExit,
    /// The profile was dumped before the program ended; the text names the moment.
    BeforeExit(String),
    /// The profile does not name the moment.
    #[default]
    Unknown,
}

/// Returns the comments of the session's only profile.
pub(crate) fn comments(session: &AnalysisSession) -> Result<Vec<String>, AnalysisError> {
    comments_of(session, 1)
}

/// Returns the comments of the session's profile with this number.
pub(crate) fn comments_of(
    session: &AnalysisSession,
    profile: i64,
) -> Result<Vec<String>, AnalysisError> {
    session.rows(
        "SELECT text FROM comment WHERE profile = ?1 ORDER BY position",
        [profile],
        |row| row.get(0),
    )
}

/// Returns the program that was profiled, according to the comments; `None` if they do not name it.
pub(crate) fn program_name(comments: &[String]) -> Option<String> {
    let program = values(comments, "program").next()?;
    Some(program.to_string())
}

/// Returns the script that a process runs, or the title that it has set, according to the comments.
/// The text distinguishes the process from other processes of the program.
pub(crate) fn script_or_title(comments: &[String]) -> Option<String> {
    find_single_value(comments, "script").or_else(|| find_single_value(comments, "title"))
}

/// Returns the program that was profiled, followed by its script or title, according to the
/// comments.
pub fn program_and_title(comments: &[String]) -> Option<String> {
    let program = program_name(comments)?;
    Some(match script_or_title(comments) {
        // A title often begins with the name.
        Some(called) if called.starts_with(&program) => called,
        Some(called) => format!("{program} {called}"),
        None => program,
    })
}

/// Returns the value of a key in the comments; `None` if no comment has the key. Returns `None`,
/// too, if several comments have the key, because the profile is then a sum of several processes.
/// For example, the comment `pid: 7` has the key `pid` and the value `7`.
pub fn find_single_value(comments: &[String], key: &str) -> Option<String> {
    let mut found = values(comments, key);
    let value = found.next().map(str::to_string);
    value.filter(|_| found.next().is_none())
}

/// Returns the moment when a profile was dumped. For a sum of several profiles, returns the first
/// moment that was not an exit.
pub fn dump_time(comments: &[String]) -> DumpTime {
    let mut dumped = DumpTime::Unknown;
    for value in values(comments, "dump") {
        if value.split_whitespace().next() != Some("exit") {
            return DumpTime::BeforeExit(value.to_string());
        }
        dumped = DumpTime::AtExit;
    }
    dumped
}

/// Returns the number of bytes in the comment with this key; `None` if there is no such comment, or
/// if the number is not above 0. Returns `None`, too, if several comments have the key, because
/// they come from several processes.
pub(crate) fn find_single_bytes(comments: &[String], key: &str) -> Option<i64> {
    let mut found = values(comments, key);
    let number = found.next()?.strip_suffix("bytes")?.trim_end();
    match found.next() {
        None => number.parse().ok().filter(|n| *n > 0),
        Some(_) => None,
    }
}

/// The parts of a program's data, according to the comments of heapprof's collector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataBreakdown {
    /// The bytes that the kernel counts as the program's data (VmData), without the collector's own
    /// data.
    pub all: i64,
    /// The bytes of the collector's own data.
    pub own: i64,
    /// The parts of the data, each with its purpose and its bytes. The parts add up to `all`.
    pub parts: Vec<(String, i64)>,
}

/// Removes the lines about a program's data from the comments, and returns the parts of the data.
/// If there are no such lines, or if they come from several programs or contradict each other,
/// returns `None` and leaves the comments unchanged.
pub(crate) fn take_data_breakdown(comments: &mut Vec<String>) -> Option<DataBreakdown> {
    let mut account = DataBreakdown::default();
    let mut wholes = 0;
    for value in values(comments, "memory") {
        let (bytes, what) = value.split_once(" bytes ")?;
        let bytes: i64 = bytes.parse().ok()?;
        match what.strip_prefix("of ") {
            Some(part) => account.parts.push((part.to_string(), bytes)),
            None if what.starts_with("more ") => account.own = bytes,
            None => (account.all, wholes) = (bytes, wholes + 1),
        }
    }
    let sum = account
        .parts
        .iter()
        .try_fold(0i64, |sum, (_, bytes)| sum.checked_add(*bytes));
    if wholes != 1 || sum != Some(account.all) {
        return None;
    }
    comments.retain(|comment| !comment.trim_start().starts_with("memory:"));
    Some(account)
}

/// The process that was profiled, according to the comments of heapprof's collector and the
/// profile's times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfiledProcess {
    program: String,
    pid: String,
    host: String,
    /// The time when the recording began, in nanoseconds since 1970.
    start: i64,
}

/// Largest difference, in nanoseconds, between the start times of two profiles of one process.
const MAX_CLOCK_SKEW_NANOS: u64 = 10_000_000;

impl ProfiledProcess {
    /// Returns the process of a profile; `None` if the profile does not name it, or is a sum of
    /// several profiles.
    pub fn from_profile(profile: &Profile) -> Option<Self> {
        let comments = profile.comment.iter().map(|&text| profile.text(text));
        let comments: Vec<String> = comments.map(str::to_string).collect();
        Self::new(&comments, profile.time_nanos, profile.duration_nanos)
    }

    /// Returns the process that these comments and times of a profile describe; `None` if they do
    /// not identify one process that heapprof recorded.
    pub(crate) fn new(comments: &[String], time: i64, duration: i64) -> Option<Self> {
        let one = |key| find_single_value(comments, key);
        if !one("collector")?.starts_with("heapprof") || time == 0 {
            return None;
        }
        Some(Self {
            program: one("program").unwrap_or_default(),
            pid: one("pid")?,
            host: one("host").unwrap_or_default(),
            start: time.saturating_sub(duration),
        })
    }

    /// Returns the time when the recording began, in nanoseconds since 1970.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// Returns the process id as it is in the profile.
    pub(crate) fn pid(&self) -> &str {
        &self.pid
    }

    /// Returns a text that is the same for all profiles of one process.
    pub(crate) fn key(&self) -> String {
        format!("{:?} {:?} {:?}", self.program, self.pid, self.host)
    }

    /// Whether `self` and `other` are the same process.
    pub fn is_same_process(&self, other: &Self) -> bool {
        self.pid == other.pid
            && self.program == other.program
            && self.host == other.host
            && self.start.abs_diff(other.start) <= MAX_CLOCK_SKEW_NANOS
    }
}

impl std::fmt::Display for ProfiledProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.program.as_str() {
            "" => write!(f, "pid {}", self.pid),
            program => write!(f, "{program}, pid {}", self.pid),
        }
    }
}

fn values<'a>(comments: &'a [String], key: &str) -> impl Iterator<Item = &'a str> {
    comments.iter().filter_map(move |comment| {
        let value = comment.trim().strip_prefix(key)?.strip_prefix(':')?;
        Some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(comments: &[&str]) -> Vec<String> {
        comments.iter().map(|c| c.to_string()).collect()
    }

    #[test]
    fn moments_of_one_process_have_its_names_and_its_start() {
        let process = |comments: &[&str], time, duration| {
            ProfiledProcess::new(&texts(comments), time, duration)
        };
        let own = ["collector: heapprof 0.1.0", "program: app", "pid: 7"];
        let known = process(&own, 5_000_000_000, 1_000_000_000).unwrap();
        assert_eq!(known.to_string(), "app, pid 7");
        let table = [
            (&own[..], 6_000_000_000, 2_000_000_001, Some(true)),
            (&own, 6_000_000_000, 1_000_000_000, Some(false)),
            (
                &["collector: heapprof 0.1.0", "program: app", "pid: 8"],
                5_000_000_000,
                1_000_000_000,
                Some(false),
            ),
            (
                &["collector: heapprof 0.1.0", "program: b", "pid: 7"],
                5_000_000_000,
                1_000_000_000,
                Some(false),
            ),
            // These are the comments of a sum of two, of a profile of another collector, and of one
            // without a time.
            (
                &["collector: heapprof 0.1.0", "pid: 7", "pid: 8"],
                5_000_000_000,
                1_000_000_000,
                None,
            ),
            (
                &["collector: other", "pid: 7"],
                5_000_000_000,
                1_000_000_000,
                None,
            ),
            (&own, 0, 0, None),
        ];
        for (comments, time, duration, expected) in table {
            let found =
                process(comments, time, duration).map(|other| other.is_same_process(&known));
            assert_eq!(found, expected, "{comments:?} {time} {duration}");
        }
    }

    #[test]
    fn what_comments_say() {
        let table = [
            (&["rss: 12 bytes"][..], Some(12)),
            (&["peak rss: 12 bytes"], None),
            (&["rss: 12 bytes", "rss: 13 bytes"], None),
            (&["rss: many"], None),
            (&["rss: 0 bytes"], None),
            (&["the rss: 5 bytes"], None),
            (&[], None),
        ];
        for (comments, expected) in table {
            assert_eq!(
                find_single_bytes(&texts(comments), "rss"),
                expected,
                "{comments:?}"
            );
        }
        let before = |reason: &str| DumpTime::BeforeExit(reason.to_string());
        let table = [
            (&["dump: exit"][..], DumpTime::AtExit),
            (&["pid: 3"], DumpTime::Unknown),
            (&["dump: interval"], before("interval")),
            (&["dump: exit", "dump: new peak"], before("new peak")),
            (&["dumps: none"], DumpTime::Unknown),
        ];
        for (comments, expected) in table {
            assert_eq!(dump_time(&texts(comments)), expected, "{comments:?}");
        }
    }
}
