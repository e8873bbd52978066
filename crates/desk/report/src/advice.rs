//! Advice to the reader of a report, for rows that do not help: which other report to ask for, or
//! what to record. The program chooses the words, because only the program has commands and
//! options.

use std::fmt;

/// A piece of advice for a sentence of the report. Its words are a clause (`-n 0 shows all`), an
/// imperative (`try --sample-type space`), or the name of an option, as the variant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportAdvice<'a> {
    /// All rows can be shown, instead of the first ones. The words are a clause.
    AllRows,
    /// All columns can be shown, instead of those that fit. The words are a clause.
    AllColumns,
    /// Another sample type, of this name, has values. The words are an imperative.
    OtherType(&'a str),
    /// Code gets names from symbols on this machine. The words are a clause.
    Symbolize,
    /// Code gets names from debug files in another folder. The words are a clause.
    DebugFiles,
    /// The memory of the functions that this expression matches can count for their callers. The
    /// words are a clause.
    CountForCallers(&'a str),
    /// The memory of libraries can count for the program's own code. The words name the option that
    /// does so.
    OwnCode {
        /// Whether wrappers have to count for their callers, too.
        with_wrappers: bool,
    },
    /// Samples can be taken more often. The words are an imperative.
    SampleMore,
    /// Every allocation can be recorded. The words are a clause.
    RecordAll,
    /// Python's small objects can be recorded. The words name the option that does so.
    RecordPythonObjects,
    /// Mappings that the program itself makes can be recorded. The words name the option that does
    /// so.
    RecordMappings,
    /// Moments of a process can be recorded. The words name the option that does so.
    RecordMoments,
    /// Memory that an interpreter frees when it ends can be reported before. The words are a
    /// clause.
    LookBeforeEnd,
    /// Forked children can be audited. The words are a clause.
    AuditForks,
    /// The module that reports what a Perl program loads can be built. The words are a clause whose
    /// subject, the module, is in the sentence already.
    BuildPerlModule,
}

/// A function that returns the words for a piece of advice.
#[derive(Clone, Copy)]
pub struct AdviceWords(pub fn(ReportAdvice<'_>) -> String);

impl fmt::Debug for AdviceWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdviceWords")
    }
}

impl Default for AdviceWords {
    /// Returns the words for a program without options.
    fn default() -> Self {
        Self(|advice| {
            match advice {
                ReportAdvice::AllRows => "a larger limit shows more",
                ReportAdvice::AllColumns => "a larger width shows more",
                ReportAdvice::OtherType(name) => return format!("ask for {name}"),
                ReportAdvice::Symbolize => "symbols name it",
                ReportAdvice::DebugFiles => "debug files name it",
                ReportAdvice::CountForCallers(_) => "its memory can count as theirs",
                ReportAdvice::OwnCode { .. } => "own code only",
                ReportAdvice::SampleMore => "Record every allocation, or with a shorter period",
                ReportAdvice::RecordAll => "an exact recording counts every allocation",
                ReportAdvice::RecordPythonObjects => "a recording of Python's objects",
                ReportAdvice::RecordMappings => "a recording of mappings",
                ReportAdvice::RecordMoments => "a recording of moments",
                ReportAdvice::LookBeforeEnd => "a dump looks while it runs",
                ReportAdvice::AuditForks => "an audit notes them",
                ReportAdvice::BuildPerlModule => "has to be built for the next audit",
            }
            .to_string()
        })
    }
}
