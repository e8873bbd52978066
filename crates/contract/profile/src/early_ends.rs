//! Stacks that end before their outermost frame. A profile's comments state the number of these
//! stacks, the files in which they end, and the reasons.
//!
//! Such a stack lacks its outer callers. So reports show its allocations under a wrong root, and
//! the names of its frames do not reveal this.

use std::fmt;

use heapprof_abi::{FrameWord, MappingGeneration, stack_end};

use crate::recording::RecordedCode;

/// Reason why a stack walk ended at a frame that has a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EarlyEndReason {
    /// The file has no unwind tables.
    NoTables,
    /// The unwind tables of the file do not cover the code of the frame.
    NotCovered,
    /// The unwind tables cover the code of the frame, but did not lead to a caller.
    NoCaller,
    /// The code belongs to no file, because a program generated it at run time.
    NoFile,
}

/// All reasons with their texts. The collector's number of a reason is its index here plus one.
const REASONS: [(EarlyEndReason, &str); 4] = [
    (EarlyEndReason::NoTables, "no unwind tables"),
    (
        EarlyEndReason::NotCovered,
        "unwind tables that do not reach that code",
    ),
    (
        EarlyEndReason::NoCaller,
        "unwind tables that lead to no caller",
    ),
    (EarlyEndReason::NoFile, "code of no file"),
];

/// Beginning of each comment about stacks that end early.
const COMMENT_PREFIX: &str = "stacks end early: ";
/// Maximum number of files that comments name. The counts of further files are added up.
const MAX_FILES: usize = 10;

/// The stacks that end early in one file for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyEnds {
    /// File of the outermost frame that was found. Empty for code that belongs to no file, and for
    /// a sum over several files.
    pub file: String,
    /// Reason why the stacks end early; `None` for a sum over several files.
    pub reason: Option<EarlyEndReason>,
    /// Number of stacks.
    pub stacks: u64,
    /// Number of blocks that these stacks allocated.
    pub objects: i64,
    /// Number of bytes that these stacks allocated.
    pub bytes: i64,
}

impl EarlyEndReason {
    /// Returns the reason with the collector's number `number`; `None` if no reason has this
    /// number. The number 0 marks a complete stack.
    pub fn from_number(number: u32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        REASONS.get(index).map(|(reason, _)| *reason)
    }

    /// Returns the reason as text that can follow "has" or "is".
    pub fn text(self) -> &'static str {
        let found = REASONS.iter().find(|(reason, _)| *reason == self);
        found.map_or("", |(_, text)| text)
    }
}

impl fmt::Display for EarlyEnds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stacks, objects, bytes) = (self.stacks, self.objects, self.bytes);
        let why = self.reason.map_or("other files", EarlyEndReason::text);
        write!(
            f,
            "{COMMENT_PREFIX}{stacks} stacks, {objects} allocations, {bytes} bytes: {why}"
        )?;
        match self.file.is_empty() {
            true => Ok(()),
            false => write!(f, ": {}", self.file),
        }
    }
}

impl EarlyEnds {
    /// Reads a comment about stacks that end early; `None` for any other comment.
    pub fn parse(comment: &str) -> Option<Self> {
        let (counts, why) = comment.strip_prefix(COMMENT_PREFIX)?.split_once(": ")?;
        let mut counts = counts.split(", ");
        let mut number = |unit: &str| -> Option<i64> {
            let number = counts.next()?.strip_suffix(unit)?;
            number.parse().ok().filter(|&number| number >= 0)
        };
        let stacks = number(" stacks")?.unsigned_abs();
        let (objects, bytes) = (number(" allocations")?, number(" bytes")?);
        let (why, file) = why.split_once(": ").unwrap_or((why, ""));
        let found = REASONS.iter().find(|(_, text)| *text == why);
        Some(Self {
            file: file.to_string(),
            reason: found.map(|(reason, _)| *reason),
            stacks,
            objects,
            bytes,
        })
    }

    /// Reads the comments about stacks that end early, and skips all other comments.
    pub fn from_comments<'a>(comments: impl IntoIterator<Item = &'a str>) -> Vec<Self> {
        comments.into_iter().filter_map(Self::parse).collect()
    }

    /// Returns these stacks with the counts of `other` added.
    fn and(self, other: &Self) -> Self {
        Self {
            stacks: self.stacks.saturating_add(other.stacks),
            objects: self.objects.saturating_add(other.objects),
            bytes: self.bytes.saturating_add(other.bytes),
            ..self
        }
    }
}

/// Counts the stacks that end early while a profile is made.
#[derive(Debug, Default)]
pub struct EarlyEndCounts {
    /// Counts by mapping and reason. The caller numbers the mappings.
    counts: Vec<((Option<usize>, EarlyEndReason), EarlyEnds)>,
}

impl EarlyEndCounts {
    /// Adds a stack, if it ends before its outermost frame. `end` is the reason for the stack's
    /// end, encoded as in [`stack_end`]. `words` are the frames and labels of the stack, newest
    /// first. `allocated` are the numbers of blocks and bytes that the stack has allocated.
    pub fn add_stack(
        &mut self,
        code: &RecordedCode<'_>,
        end: u32,
        generation: MappingGeneration,
        words: &[u64],
        allocated: [i64; 2],
    ) {
        let Some(reason) = EarlyEndReason::from_number(end & stack_end::REASON_MASK) else {
            return;
        };
        let mut oldest = words
            .iter()
            .rev()
            .filter_map(|&word| match FrameWord::from_word(word) {
                FrameWord::Address(frame) => Some(frame),
                _ => None,
            });
        let frame = match (reason, end & stack_end::CALLEE_FLAG) {
            (EarlyEndReason::NoFile, _) => None,
            (_, 0) => oldest.next(),
            _ => oldest.nth(1),
        };
        let mapping = frame.and_then(|frame| code.find(frame.lookup_address(), generation));
        self.add(mapping, reason, allocated, || {
            mapping.map_or_else(String::new, |i| code.mappings[i].file_name())
        });
    }

    /// Adds a stack that ends early in the mapping with the number `mapping`. The stack has
    /// allocated `objects` blocks, with `bytes` bytes in total. `file` returns the name of the
    /// mapping's file.
    fn add(
        &mut self,
        mapping: Option<usize>,
        reason: EarlyEndReason,
        [objects, bytes]: [i64; 2],
        file: impl FnOnce() -> String,
    ) {
        let one = EarlyEnds {
            file: String::new(),
            reason: Some(reason),
            stacks: 1,
            objects,
            bytes,
        };
        let key = (mapping, reason);
        match self.counts.iter_mut().find(|(known, _)| *known == key) {
            Some((_, known)) => *known = known.clone().and(&one),
            None => {
                let file = file();
                self.counts.push((key, EarlyEnds { file, ..one }));
            }
        }
    }

    /// Makes a comment for each file and reason, in descending order of bytes.
    pub fn comments(self) -> Vec<String> {
        let mut all: Vec<EarlyEnds> = Vec::new();
        for (_, one) in self.counts {
            // A file may be mapped in several places.
            let is_same =
                |known: &&mut EarlyEnds| known.file == one.file && known.reason == one.reason;
            match all.iter_mut().find(is_same) {
                Some(known) => *known = known.clone().and(&one),
                None => all.push(one),
            }
        }
        all.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.file.cmp(&b.file)));
        if all.len() > MAX_FILES {
            let others = EarlyEnds {
                file: String::new(),
                reason: None,
                stacks: 0,
                objects: 0,
                bytes: 0,
            };
            let rest = all.split_off(MAX_FILES);
            all.push(rest.iter().fold(others, EarlyEnds::and));
        }
        all.iter().map(ToString::to_string).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read_again() {
        let mut counts = EarlyEndCounts::default();
        let mut add = |mapping, reason, bytes, file: &str| {
            counts.add(mapping, reason, [1, bytes], || file.to_string());
        };
        add(Some(0), EarlyEndReason::NoTables, 10, "/a: b\nc");
        add(Some(3), EarlyEndReason::NoTables, 5, "/a: b\nc");
        add(Some(0), EarlyEndReason::NoTables, 1, "not asked again");
        add(Some(0), EarlyEndReason::NoCaller, 7, "/a: b\nc");
        add(None, EarlyEndReason::NoFile, 99, "");
        let comments = counts.comments();
        let read = EarlyEnds::from_comments(comments.iter().map(String::as_str));
        let read = read
            .iter()
            .map(|of| (of.file.as_str(), of.reason, of.stacks, of.objects, of.bytes));
        assert_eq!(
            read.collect::<Vec<_>>(),
            [
                ("", Some(EarlyEndReason::NoFile), 1, 1, 99),
                ("/a: b\nc", Some(EarlyEndReason::NoTables), 3, 3, 16),
                ("/a: b\nc", Some(EarlyEndReason::NoCaller), 1, 1, 7),
            ]
        );
    }

    #[test]
    fn many_files_are_added_up() {
        let mut counts = EarlyEndCounts::default();
        for file in 0..MAX_FILES + 5 {
            counts.add(Some(file), EarlyEndReason::NotCovered, [2, 3], || {
                format!("/{file:02}")
            });
        }
        let comments = counts.comments();
        assert_eq!(comments.len(), MAX_FILES + 1);
        assert_eq!(
            comments.last().map(String::as_str),
            Some("stacks end early: 5 stacks, 10 allocations, 15 bytes: other files")
        );
    }

    #[test]
    fn other_comments_say_nothing() {
        for text in [
            "",
            "stacks end early: ",
            "stacks end early: x stacks, 1 allocations, 1 bytes: no unwind tables",
            "stacks end early: 1 stacks, -1 allocations, 1 bytes: no unwind tables",
            "stacks end early: 1 stacks: no unwind tables",
        ] {
            assert_eq!(EarlyEnds::parse(text), None, "{text}");
        }
        assert_eq!(EarlyEndReason::from_number(0), None);
        assert_eq!(EarlyEndReason::from_number(4), Some(EarlyEndReason::NoFile));
        assert_eq!(EarlyEndReason::from_number(5), None);
    }
}
