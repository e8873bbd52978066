//! What an audit notes of a forked child: its place among the processes, how much memory it shares
//! and has alone, what it loaded and what it mapped. All of it travels as comments.
//!
//! Format: `#heapprof.fork.1`, `#heapprof.load.1` and `#heapprof.mapped.1`, each followed by fields
//! `key=value` with a tab before each. In a value, `%` and control characters are written as `%`
//! and two hexadecimal digits. Times are microseconds, sizes are bytes. The page
//! docs/formats/fork.md of the project describes the fields. pprof hides comments that begin with
//! `#`.

use crate::model::Profile;

/// The sample types of inherited memory that a child has copied, because it or its parent wrote
/// there: `objects` are allocations that lie there, `space` is the bytes of them that do.
pub const COW_TYPES: [(&str, &str); 2] = [
    ("cow_unshared_objects", "count"),
    ("cow_unshared_space", "bytes"),
];

/// The label that says what lies in such memory, such as `SV heads`.
pub const KIND_LABEL: &str = "kind";

/// What comments begin with.
const FORK_PREFIX: &str = "#heapprof.fork.1";
const LOAD_PREFIX: &str = "#heapprof.load.1";
const MAPPED_PREFIX: &str = "#heapprof.mapped.1";

/// Whether a comment is one of these.
pub(crate) fn is_ours(comment: &str) -> bool {
    [FORK_PREFIX, LOAD_PREFIX, MAPPED_PREFIX]
        .iter()
        .any(|head| {
            let rest = comment.strip_prefix(head);
            rest.is_some_and(|rest| rest.starts_with('\t'))
        })
}

/// How the last look at a child came about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChildEnding {
    /// The child was about to end.
    #[default]
    Ended,
    /// It was about to become another program.
    Exec,
    /// It was killed, some time after the look.
    Killed,
    /// It ran on when the recording was over.
    Running,
}

impl ChildEnding {
    const NAMES: [(Self, &'static str); 4] = [
        (Self::Ended, "ended"),
        (Self::Exec, "exec"),
        (Self::Killed, "killed"),
        (Self::Running, "running"),
    ];

    /// What it is called.
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

/// Defines a structure of numbers, and how each is called in a comment.
macro_rules! figures {
    ($($(#[$doc:meta])* $field:ident $key:literal,)*) => {
        /// Bytes of a child at the last look.
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
    /// In memory.
    rss "rss",
    /// Its part of that, as the kernel divides shared pages.
    pss "pss",
    /// What it has alone and has written.
    private_dirty "private_dirty",
    /// What it has alone and has not written.
    private_clean "private_clean",
    /// What others have, too, and somebody has written.
    shared_dirty "shared_dirty",
    /// What others have, too, and nobody has written.
    shared_clean "shared_clean",
    /// What is swapped out.
    swap "swap",
    /// What lies in huge pages.
    huge "huge",
    /// Pages of memory that is no file's: of those that were not there when it was forked.
    new "new",
    /// Those that it has inherited and shares.
    shared "shared",
    /// Those that it has inherited and has alone.
    unshared "unshared",
    /// heapprof's own, which the three before have not.
    own "own",
    /// What of that no other process has.
    own_private "own_private",
    /// What its parent had when it was forked, without heapprof's own.
    inherited "inherited",
}

/// A forked child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForkedChild {
    /// How many forks lie between the first process and it.
    pub generation: u32,
    /// Its process id.
    pub pid: u32,
    /// Its parent's.
    pub parent: u32,
    /// The file name of its program.
    pub program: String,
    /// What it says that it is: its command line, which daemons change.
    pub title: String,
    /// When it was forked, in microseconds since 1970.
    pub forked_at: i64,
    /// How old it was at the last look, in microseconds.
    pub audited_age: i64,
    /// How old it was when it ended, in microseconds; the same as `audited_age` if it ran on.
    pub age: i64,
    /// How the last look came about.
    pub ending: ChildEnding,
    /// What it had then.
    pub figures: Figures,
    /// Mean bytes between samples, if its blocks are a sample; 1 if all are known.
    pub period: i64,
    /// Why something is not known, if that is so.
    pub missing: String,
}

/// How an attempt to load something went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoadOutcome {
    /// It is loaded.
    #[default]
    Loaded,
    /// It was found, and could not be compiled or linked.
    Failed,
    /// It was looked for, and is not there.
    NotFound,
}

impl LoadOutcome {
    const NAMES: [(Self, &'static str); 3] = [
        (Self::Loaded, "loaded"),
        (Self::Failed, "failed"),
        (Self::NotFound, "not found"),
    ];

    /// What it is called.
    #[must_use]
    pub fn name(self) -> &'static str {
        let found = Self::NAMES.iter().find(|(outcome, _)| *outcome == self);
        found.map_or("", |(_, name)| name)
    }

    /// The outcome of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let found = Self::NAMES.iter().find(|(_, known)| *known == name);
        found.map(|(outcome, _)| *outcome)
    }
}

/// An attempt of a child to load something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadAttempt {
    /// What was asked for, such as `TextLookup/Balanced.pm`.
    pub name: String,
    /// How it was asked for: `require`, `do`, `XS`.
    pub kind: String,
    /// How it went.
    pub outcome: LoadOutcome,
    /// How long it took, in microseconds.
    pub micros: i64,
    /// The frames that asked for it, newest first, each as `FILE:LINE`, with ` < ` between them.
    pub site: String,
    /// How many system calls the search took: those that ask about a file, and those that open one.
    pub stats: i64,
    /// See [`stats`](Self::stats).
    pub opens: i64,
}

/// A file that a child has mapped and its parent had not when it was forked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildMapping {
    /// Its name.
    pub name: String,
    /// How many bytes of it are in memory.
    pub resident: i64,
    /// How many of these the child has alone.
    pub private: i64,
}

/// All that an audit noted of a child.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChildAudit {
    /// The child.
    pub fork: ForkedChild,
    /// What it tried to load, in the order of the attempts.
    pub loads: Vec<LoadAttempt>,
    /// What it mapped.
    pub mapped: Vec<ChildMapping>,
}

impl ChildAudit {
    /// The comments that hold it.
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

    /// What an audit noted of the child whose profile this is; `None` if it noted nothing.
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
    /// The comment that holds it.
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

    /// The attempt in a comment; `None` if it has none.
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

/// No process has more bytes, and no wait took longer: what says more is damaged.
const MAX_NUMBER: i64 = 1 << 50;

/// A number that is no debt; 0 if it is none, or none that can be.
fn number(text: &str) -> i64 {
    let number = text.parse().unwrap_or(0);
    if (0..=MAX_NUMBER).contains(&number) {
        number
    } else {
        0
    }
}

/// The fields of a comment that begins so.
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

/// A value as it was before it was written.
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
