//! Caches the lines that were found for addresses in files, so that several profiles can use them.
//! The processes of one recording map the same libraries, and their stacks mostly contain the same
//! addresses of these libraries.

use std::collections::HashMap;

use heapprof_profile::{Profile, StringTable};

use crate::answers::{LocationLines, RawLine};
use crate::resolve::LocationQuestion;
use crate::summary::SymbolSource;

/// The position of an address in a file, regardless of where the file was mapped. It consists of
/// the distance from the mapping's start, the mapping's offset in the file, and whether the mapping
/// starts at 0. If the mapping starts at 0, the profile does not describe it, and addresses are the
/// file's own virtual addresses.
type FilePosition = (u64, u64, bool);

fn position(question: &LocationQuestion) -> FilePosition {
    let place = question.place;
    let address = question.address.wrapping_sub(place.memory_start);
    (address, place.file_offset, place.memory_start == 0)
}

/// The known lines for the addresses of one file. `None` is stored for an address without lines, so
/// that it is not looked up again.
#[derive(Default)]
pub(crate) struct FileAnswers {
    lines: HashMap<FilePosition, Option<Box<[RawLine]>>>,
    pub(crate) source: Option<SymbolSource>,
}

/// The known lines for the addresses of all files, with the texts of these lines.
#[derive(Default)]
pub(crate) struct AnswerCache {
    strings: StringTable,
    files: HashMap<(String, String), FileAnswers>,
    /// Approximate size of the cache in bytes.
    bytes: usize,
}

/// Maximum size of the cache in bytes.
const MAX_CACHED_BYTES: usize = 256 << 20;
/// Approximate memory in bytes for the lines of one address, without their texts.
const BYTES_PER_ANSWER: usize = 96;

impl AnswerCache {
    /// Clears the cache if it is too large.
    pub(crate) fn keep_within_limits(&mut self) {
        if self.bytes > MAX_CACHED_BYTES {
            *self = Self::default();
        }
    }

    /// Copies the known lines of a file's locations to `answers`. Returns the questions for which
    /// no lines are known yet. `file` is the name and the build id of the file.
    pub(crate) fn recall(
        &self,
        file: &(String, String),
        questions: &[LocationQuestion],
        profile: &mut Profile,
        answers: &mut LocationLines,
    ) -> Vec<LocationQuestion> {
        let Some(known) = self.files.get(file) else {
            return questions.to_vec();
        };
        let mut left = questions.to_vec();
        left.retain(|question| {
            let found = known.lines.get(&position(question));
            if let Some(Some(lines)) = found {
                let lines = lines.iter().map(|line| {
                    line.with_texts(|text| profile.strings.intern(self.strings.get(text)))
                });
                answers.set(question.location, lines.collect());
            }
            found.is_none()
        });
        left
    }

    /// Returns the best source that gave lines for a file.
    pub(crate) fn source(&self, file: &(String, String)) -> Option<SymbolSource> {
        self.files.get(file)?.source
    }

    /// Stores the lines that `answers` has for the locations of `questions`, which are all in one
    /// file.
    pub(crate) fn keep(
        &mut self,
        file: (String, String),
        questions: &[LocationQuestion],
        profile: &Profile,
        answers: &LocationLines,
        source: Option<SymbolSource>,
    ) {
        self.bytes += file.0.len() + file.1.len() + BYTES_PER_ANSWER * (1 + questions.len());
        let known = self.files.entry(file).or_default();
        known.source = [known.source, source].into_iter().flatten().min();
        for question in questions {
            let lines = answers.get(question.location).map(|lines| {
                let lines = lines.iter().map(|line| {
                    line.with_texts(|text| {
                        let (text, before) = (profile.text(text), self.strings.len());
                        let kept = self.strings.intern(text);
                        if self.strings.len() != before {
                            self.bytes += BYTES_PER_ANSWER + text.len();
                        }
                        kept
                    })
                });
                lines.collect()
            });
            let lines: Option<Box<[RawLine]>> = lines;
            self.bytes += lines.as_ref().map_or(0, |lines| size_of_val(&**lines));
            known.lines.insert(position(question), lines);
        }
    }
}
