//! Advice that a report gives to its reader: what to ask for, or to record, if the rows do not
//! help. The program words it, because only the program has commands and options.

use std::fmt;

/// A piece of advice, which is a part of a sentence of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportAdvice<'a> {
    /// All rows can be shown, instead of the first ones. A clause.
    AllRows,
    /// All columns can be shown, instead of those that fit. A clause.
    AllColumns,
    /// Another sample type, of this name, has values. An imperative.
    OtherType(&'a str),
    /// Code gets names from symbols on this machine. A clause.
    Symbolize,
    /// Code gets names from debug files that are elsewhere. A clause.
    DebugFiles,
    /// The memory of the functions that this expression matches can count for their callers. A
    /// clause.
    CountForCallers(&'a str),
    /// The memory of libraries can count for the program's own code. A name of what does that.
    OwnCode {
        /// Whether wrappers have to count for their callers, too.
        with_wrappers: bool,
    },
    /// Samples can be taken more often. An imperative.
    SampleMore,
    /// Every allocation can be recorded. A clause.
    RecordAll,
    /// Python's small objects can be recorded. A name of what does that.
    RecordPythonObjects,
    /// What a program maps itself can be recorded. A name of what does that.
    RecordMappings,
    /// Moments of a process can be recorded. A name of what does that.
    RecordMoments,
    /// What an interpreter forgets at its end can be seen before. A clause.
    LookBeforeEnd,
    /// Forked children can be audited. A clause.
    AuditForks,
    /// The module that says what a Perl program loads can be built. A clause without its object.
    BuildPerlModule,
}

/// Words pieces of advice.
#[derive(Clone, Copy)]
pub struct AdviceWords(pub fn(ReportAdvice<'_>) -> String);

impl fmt::Debug for AdviceWords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AdviceWords")
    }
}

impl Default for AdviceWords {
    /// Returns words for a program without options.
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
