//! Advice for the reader of a report whose rows do not help: which other report to request, or what
//! to record. The program chooses the words, because only the program has commands and options.

use std::fmt;

/// A piece of advice for a sentence of the report. Its words are a clause (`-n 0 shows all`), an
/// imperative (`try --sample-type space`), or the name of an option, as the variant says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportAdvice<'a> {
    /// Show all rows instead of the first ones. The words of this advice are a clause.
    AllRows,
    /// Show all columns instead of those that fit. The words of this advice are a clause.
    AllColumns,
    /// Choose another sample type, of this name, because it has values. The words of this advice
    /// are an imperative.
    OtherType(&'a str),
    /// Choose what was in use at the end, instead of the peak. The words of this advice are a
    /// clause.
    EndOfProgram,
    /// Name code by symbols on this machine. The words of this advice are a clause.
    Symbolize,
    /// Name code by debug files in another folder. The words of this advice are a clause.
    DebugFiles,
    /// Count the memory of wrappers for the functions that call them. The expression matches the
    /// wrappers. The words of this advice are a clause.
    CountForCallers(&'a str),
    /// Order rows by what they and their callees hold. The words of this advice are a clause.
    SortByCum,
    /// Show the code of libraries. The words of this advice are a clause.
    AllCode,
    /// Take samples more often. The words of this advice are an imperative.
    SampleMore,
    /// Record every allocation. The words of this advice are a clause.
    RecordAll,
    /// Record Python's small objects. The words of this advice name the option for that.
    RecordPythonObjects,
    /// Record mappings that the program itself makes. The words of this advice name the option for
    /// that.
    RecordMappings,
    /// Record moments of a process. The words of this advice name the option for that.
    RecordMoments,
    /// Report memory before the interpreter ends and frees it. The words of this advice are a
    /// clause.
    LookBeforeEnd,
    /// Audit forked children. The words of this advice are a clause.
    AuditForks,
    /// Build the module that reports what a Perl program loads. The words of this advice are the
    /// rest of a clause whose subject is the module.
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
                ReportAdvice::EndOfProgram => "inuse_space shows that",
                ReportAdvice::Symbolize => "symbols name it",
                ReportAdvice::DebugFiles => "debug files name it",
                ReportAdvice::CountForCallers(_) => "its memory can be attributed to them",
                ReportAdvice::SortByCum => "sorting by cum shows them",
                ReportAdvice::AllCode => "a report of all code shows them",
                ReportAdvice::SampleMore => "Record every allocation, or with a shorter period",
                ReportAdvice::RecordAll => "an exact recording counts every allocation",
                ReportAdvice::RecordPythonObjects => "a recording of Python's objects",
                ReportAdvice::RecordMappings => "a recording of mappings",
                ReportAdvice::RecordMoments => "a recording of moments",
                ReportAdvice::LookBeforeEnd => "a dump shows it while it runs",
                ReportAdvice::AuditForks => "an audit records them",
                ReportAdvice::BuildPerlModule => "has to be built for the next audit",
            }
            .to_string()
        })
    }
}
