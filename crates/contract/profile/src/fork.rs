//! Comments of a profile that describe a forked child: its parent, its shared and private memory,
//! the code that it loaded and the files that it mapped. An audit writes these comments.
//!
//! Format: `#heapprof.fork.1`, `#heapprof.load.1` and `#heapprof.mapped.1`, each followed by fields
//! `key=value` with a tab before each. In a value, `%` and control characters are written as `%`
//! and two hexadecimal digits. Times are microseconds, sizes are bytes. The page
//! docs/formats/fork.md of the project describes the fields. pprof hides comments that begin with
//! `#`.

use crate::model::Profile;

/// Sample types of inherited memory that was copied for a child, because the child or its parent
/// wrote to it. One type counts the allocations in the copied memory, the other type counts the
/// bytes of the copied memory that belong to allocations.
pub const COW_TYPES: [(&str, &str); 2] = [
    ("cow_unshared_objects", "count"),
    ("cow_unshared_space", "bytes"),
];

/// Key of the label for the kind of content of copied memory, such as `SV heads`.
pub const KIND_LABEL: &str = "kind";

/// Beginning of the comment about a forked child.
const FORK_PREFIX: &str = "#heapprof.fork.1";
const LOAD_PREFIX: &str = "#heapprof.load.1";
const MAPPED_PREFIX: &str = "#heapprof.mapped.1";

/// Whether a comment was written by an audit of a forked child.
pub(crate) fn is_ours(comment: &str) -> bool {
    [FORK_PREFIX, LOAD_PREFIX, MAPPED_PREFIX]
        .iter()
        .any(|head| {
            let rest = comment.strip_prefix(head);
            rest.is_some_and(|rest| rest.starts_with('\t'))
        })
}

/// How a child ended, or that it was still running.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildEnding {
    /// The child was about to end.
    #[default]
    Ended,
    /// The child was about to become another program.
    Exec,
    /// The child was killed, some time after its last inspection.
    Killed,
    /// The child was still running when the recording ended.
    Running,
}

impl ChildEnding {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Ended, "ended"),
        (Self::Exec, "exec"),
        (Self::Killed, "killed"),
        (Self::Running, "running"),
    ];

    /// Returns the text that stands for this ending in comments.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(ending, _)| *ending == self);
        found.map_or("", |(_, name)| name)
    }

    fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(ending, _)| *ending)
    }
}

/// Defines a structure of numbers, and the key of each number in a comment.
macro_rules! figures {
    ($($(#[$doc:meta])* $field:ident $key:literal,)*) => {
        /// Memory of a child at the last inspection, in bytes.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Figures {
            $($(#[$doc])* pub $field: i64,)*
        }

        impl Figures {
            fn each(&self, mut each: impl FnMut(&str, i64)) {
                $(each($key, self.$field);)*
            }

            fn set(&mut self, key: &str, value: i64) {
                match key {
                    $($key => self.$field = value,)*
                    _ => {}
                }
            }
        }
    };
}

figures! {
    /// Resident memory.
    rss "rss",
    /// Proportional share of the resident memory: each shared page is divided by the number of
    /// processes that share it.
    pss "pss",
    /// Written memory that only this process has.
    private_dirty "private_dirty",
    /// Unwritten memory that only this process has.
    private_clean "private_clean",
    /// Written memory that other processes have, too.
    shared_dirty "shared_dirty",
    /// Unwritten memory that other processes have, too.
    shared_clean "shared_clean",
    /// Memory that is swapped out.
    swap "swap",
    /// Memory in huge pages.
    huge "huge",
    /// Private memory that did not exist at the fork, without heapprof's own memory.
    new "new",
    /// Memory of private mappings that was inherited and is still shared, without heapprof's own
    /// memory.
    shared "shared",
    /// Memory of private mappings that was inherited and that only the child has now, without
    /// heapprof's own memory.
    unshared "unshared",
    /// Memory of heapprof itself, which `new`, `shared` and `unshared` exclude.
    own "own",
    /// Part of `own` that no other process has.
    own_private "own_private",
    /// Memory of the parent at the fork, without heapprof's own memory.
    inherited "inherited",
}

/// Description of a forked child by an audit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkedChild {
    /// Number of forks between the first process and this child.
    pub generation: u32,
    /// Process id of the child.
    pub pid: u32,
    /// Process id of the parent.
    pub parent: u32,
    /// File name of the child's program.
    pub program: String,
    /// Command line of the child, which daemons change to describe themselves.
    pub title: String,
    /// Time of the fork, in microseconds since 1970.
    pub forked_at: i64,
    /// Age of the child at the last inspection, in microseconds.
    pub audited_age: i64,
    /// Age of the child when it ended, in microseconds; equal to `audited_age` if the child was
    /// still running.
    pub age: i64,
    /// How the child ended, or that it was still running.
    pub ending: ChildEnding,
    /// Memory of the child at the last inspection.
    pub figures: Figures,
    /// Mean number of bytes between samples of the child's blocks; 1 if all blocks are known.
    pub period: i64,
    /// Reason why some data is missing; empty if the data is complete.
    pub missing: String,
}

/// Outcome of an attempt to load a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadOutcome {
    /// The file is loaded.
    #[default]
    Loaded,
    /// The file was found, but could not be compiled or linked.
    Failed,
    /// The file was searched for, but does not exist.
    NotFound,
}

impl LoadOutcome {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::Loaded, "loaded"),
        (Self::Failed, "failed"),
        (Self::NotFound, "not found"),
    ];

    /// Returns the text that stands for this outcome in comments.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(outcome, _)| *outcome == self);
        found.map_or("", |(_, name)| name)
    }

    /// Returns the outcome with this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(outcome, _)| *outcome)
    }
}

/// A child's attempt to load a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadAttempt {
    /// Requested name, such as `TextLookup/Balanced.pm`.
    pub name: String,
    /// Kind of load: `require`, `do` or `XS`.
    pub kind: String,
    /// Outcome of the attempt.
    pub outcome: LoadOutcome,
    /// Duration of the attempt, in microseconds.
    pub micros: i64,
    /// Frames that led to the attempt, newest first, each as `FILE:LINE`, with ` < ` between them.
    pub site: String,
    /// Number of system calls that query a file's status while the requested file is searched for.
    pub stats: i64,
    /// Number of system calls that open a file while the requested file is searched for.
    pub opens: i64,
}

/// A file that a child has mapped, and that its parent had not mapped at the time of the fork.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildMapping {
    /// Name of the file.
    pub name: String,
    /// Number of bytes of the file that are in memory.
    pub resident: i64,
    /// Number of the resident bytes that only the child has.
    pub private: i64,
}

/// All that an audit recorded about a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildAudit {
    /// The child, and its memory.
    pub fork: ForkedChild,
    /// Attempts of the child to load files, in their order.
    pub loads: Vec<LoadAttempt>,
    /// Files that the child mapped after the fork.
    pub mapped: Vec<ChildMapping>,
}

impl ChildAudit {
    /// Returns the comments that represent this audit.
    #[must_use]
    pub fn comments(&self) -> Vec<String> {
        let fork = &self.fork;
        let mut line = CommentWriter::new(FORK_PREFIX);
        line.number("generation", fork.generation.into());
        line.number("pid", fork.pid.into());
        line.number("parent", fork.parent.into());
        line.text("program", &fork.program);
        line.text("title", &fork.title);
        line.number("at", fork.forked_at);
        line.number("looked", fork.audited_age);
        line.number("age", fork.age);
        line.text("ending", fork.ending.name());
        fork.figures.each(|key, value| line.number(key, value));
        line.number("period", fork.period);
        line.text("lacks", &fork.missing);
        let mut all = vec![line.0];
        all.extend(self.loads.iter().map(LoadAttempt::comment));
        for mapped in &self.mapped {
            let mut line = CommentWriter::new(MAPPED_PREFIX);
            line.text("name", &mapped.name);
            line.number("resident", mapped.resident);
            line.number("private", mapped.private);
            all.push(line.0);
        }
        all
    }

    /// Reads the audit of the child from its profile; `None` if the profile has none.
    #[must_use]
    pub fn from_profile(profile: &Profile) -> Option<Self> {
        let mut found = None;
        let (mut loads, mut mapped) = (Vec::new(), Vec::new());
        for &comment in &profile.comment {
            let text = profile.text(comment);
            if let Some(fields) = fields(text, FORK_PREFIX) {
                let mut fork = ForkedChild::default();
                fields.for_each(|(key, value)| fork.set(key, value));
                found = Some(fork);
            } else if let Some(load) = LoadAttempt::from_comment(text) {
                loads.push(load);
            } else if let Some(fields) = fields(text, MAPPED_PREFIX) {
                let mut file = ChildMapping::default();
                fields.for_each(|(key, value)| file.set(key, value));
                mapped.push(file);
            }
        }
        found.map(|fork| Self {
            fork,
            loads,
            mapped,
        })
    }
}

impl ForkedChild {
    fn set(&mut self, key: &str, value: String) {
        match key {
            "generation" => self.generation = value.parse().unwrap_or(0),
            "pid" => self.pid = value.parse().unwrap_or(0),
            "parent" => self.parent = value.parse().unwrap_or(0),
            "program" => self.program = value,
            "title" => self.title = value,
            "at" => self.forked_at = value.parse().unwrap_or(0).clamp(0, 4 * MAX_NUMBER),
            "looked" => self.audited_age = number(&value),
            "age" => self.age = number(&value),
            "ending" => self.ending = ChildEnding::from_name(&value).unwrap_or_default(),
            "period" => self.period = number(&value),
            "lacks" => self.missing = value,
            key => self.figures.set(key, number(&value)),
        }
    }
}

impl LoadAttempt {
    /// Returns the comment that represents this attempt.
    #[must_use]
    pub fn comment(&self) -> String {
        let mut line = CommentWriter::new(LOAD_PREFIX);
        line.text("name", &self.name);
        line.text("kind", &self.kind);
        line.text("outcome", self.outcome.name());
        line.number("micros", self.micros);
        line.text("site", &self.site);
        line.number("stats", self.stats);
        line.number("opens", self.opens);
        line.0
    }

    /// Reads the attempt that a comment describes; `None` if the comment describes no attempt.
    #[must_use]
    pub fn from_comment(comment: &str) -> Option<Self> {
        let mut load = Self::default();
        fields(comment, LOAD_PREFIX)?.for_each(|(key, value)| load.set(key, value));
        Some(load)
    }

    fn set(&mut self, key: &str, value: String) {
        match key {
            "name" => self.name = value,
            "kind" => self.kind = value,
            "outcome" => self.outcome = LoadOutcome::from_name(&value).unwrap_or_default(),
            "micros" => self.micros = number(&value),
            "site" => self.site = value,
            "stats" => self.stats = number(&value),
            "opens" => self.opens = number(&value),
            _ => {}
        }
    }
}

impl ChildMapping {
    fn set(&mut self, key: &str, value: String) {
        match key {
            "name" => self.name = value,
            "resident" => self.resident = number(&value),
            "private" => self.private = number(&value),
            _ => {}
        }
    }
}

/// Largest number of bytes or microseconds that is accepted. Real numbers are smaller, so a larger
/// number comes from damaged data.
const MAX_NUMBER: i64 = 1 << 50;

/// Reads a number that is not negative. Returns 0 for any other text and for numbers beyond
/// [`MAX_NUMBER`].
fn number(text: &str) -> i64 {
    let number = text.parse().unwrap_or(0);
    if (0..=MAX_NUMBER).contains(&number) {
        number
    } else {
        0
    }
}

/// Splits a comment that begins with `head` into its fields; `None` for other comments.
fn fields<'c>(comment: &'c str, head: &str) -> Option<impl Iterator<Item = (&'c str, String)>> {
    let rest = comment.strip_prefix(head)?.strip_prefix('\t')?;
    let fields = rest.split('\t');
    Some(fields.filter_map(|field| {
        let (key, value) = field.split_once('=')?;
        Some((key, unescape(value)))
    }))
}

/// A comment that is being written.
struct CommentWriter(String);

impl CommentWriter {
    fn new(head: &str) -> Self {
        Self(head.to_string())
    }

    fn number(&mut self, key: &str, value: i64) {
        self.text(key, &value.to_string());
    }

    fn text(&mut self, key: &str, value: &str) {
        let Self(to) = self;
        to.push('\t');
        to.push_str(key);
        to.push('=');
        for character in value.chars() {
            match character {
                '%' | '\0'..=' ' | '\x7f' if character != ' ' => {
                    to.push_str(&format!("%{:02x}", u32::from(character)));
                }
                other => to.push(other),
            }
        }
    }
}

/// Restores a value from its escaped form in a comment.
fn unescape(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    let mut rest = value;
    while let Some((before, behind)) = rest.split_once('%') {
        text.push_str(before);
        let code = behind
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        rest = match code.filter(u8::is_ascii) {
            Some(code) => {
                text.push(code.into());
                &behind[2..]
            }
            None => {
                text.push('%');
                behind
            }
        };
    }
    text.push_str(rest);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some() -> ChildAudit {
        ChildAudit {
            fork: ForkedChild {
                generation: 2,
                pid: 77,
                parent: 76,
                program: "perl".to_string(),
                title: "a%b\tc d".to_string(),
                forked_at: 1_764_150_000_000_000,
                audited_age: 5,
                age: 9,
                ending: ChildEnding::Killed,
                figures: Figures {
                    rss: 4096,
                    unshared: 40_960,
                    ..Figures::default()
                },
                period: 4096,
                missing: "pages: not ours\n".to_string(),
            },
            loads: vec![LoadAttempt {
                name: "Text/Balanced.pm".to_string(),
                kind: "require".to_string(),
                outcome: LoadOutcome::NotFound,
                micros: 12,
                site: "é.pl:3 < b.pl:4".to_string(),
                stats: 18,
                opens: 0,
            }],
            mapped: vec![ChildMapping {
                name: "/lib/x=y.so".to_string(),
                resident: 8192,
                private: 4096,
            }],
        }
    }

    fn with(comments: &[String]) -> Profile {
        let mut profile = Profile::default();
        for comment in comments {
            let id = profile.strings.intern(comment);
            profile.comment.push(id);
        }
        profile
    }

    #[test]
    fn what_was_written_is_read() {
        let comments = some().comments();
        assert!(comments.iter().all(|comment| is_ours(comment)));
        assert!(comments.iter().all(|comment| !comment.contains('\n')));
        assert_eq!(ChildAudit::from_profile(&with(&comments)), Some(some()));
        assert_eq!(
            ChildAudit::from_profile(&with(&["pid: 7".to_string()])),
            None
        );
    }

    #[test]
    fn what_is_damaged_is_no_panic() {
        for text in [
            "#heapprof.fork.1",
            "#heapprof.fork.1\t",
            "#heapprof.fork.1\tpid=-1\tat=x\trss=-5\tending=\tprogram=%",
            "#heapprof.fork.1\tprogram=%é%4\tpid=99999999999\tunknown=7",
            "#heapprof.fork.1\trss=9223372036854775807\tat=9223372036854775807",
        ] {
            let read = ChildAudit::from_profile(&with(&[text.to_string()])).unwrap_or_default();
            assert_eq!((read.fork.pid, read.fork.figures.rss), (0, 0), "{text}");
        }
    }
}
