//! The words of the advice that libraries give: the names of the commands and options that help.

use heapprof_analysis::FilterNote;
use heapprof_page::QuestionNote;
use heapprof_report::{AdviceWords, ReportAdvice};

use crate::messages;

/// The names of commands and options that libraries put into their advice.
pub(crate) const ADVICE_WORDS: AdviceWords = AdviceWords(word_advice);

fn word_advice(advice: ReportAdvice<'_>) -> String {
    match advice {
        ReportAdvice::AllRows => "-n 0 shows all",
        ReportAdvice::AllColumns => "--width 0 shows all",
        ReportAdvice::OtherType(name) => return format!("try -t {}", short_type_name(name)),
        ReportAdvice::EndOfProgram => "-t inuse shows that",
        ReportAdvice::Symbolize => "heapprof convert symbolize looks for them",
        ReportAdvice::DebugFiles => {
            "heapprof convert symbolize --debug-dir DIR takes them from debug files in DIR"
        }
        ReportAdvice::CountForCallers(pattern) => {
            return format!("--wrappers {} adds its memory to theirs", quote(pattern));
        }
        ReportAdvice::SortByCum => "--sort cum shows them",
        ReportAdvice::AllCode => "--all-code shows them",
        ReportAdvice::SampleMore => "Record with --exact, or a shorter --period",
        ReportAdvice::RecordAll => {
            "heapprof record --exact, or attach --exact, counts every allocation"
        }
        ReportAdvice::RecordPythonObjects => "record --python-objects=yes",
        ReportAdvice::RecordMappings => "record --mmap",
        ReportAdvice::RecordMoments => "record --interval 1s",
        ReportAdvice::LookBeforeEnd => {
            "heapprof dump shows the heap while the program runs, and top -t peak shows the heap \
             at its peak"
        }
        ReportAdvice::AuditForks => {
            "heapprof fork-audit -- CMD, or record --fork-audit, records them"
        }
        ReportAdvice::BuildPerlModule => {
            "can be built for the next audit with heapprof fork-audit --perl-install or heapprof \
             setup perl-install"
        }
    }
    .to_string()
}

/// Returns the shortest name that `-t` takes for a sample type.
pub(crate) fn short_type_name(name: &str) -> &str {
    name.strip_suffix("_space").unwrap_or(name)
}

/// Prints a note about the answer to a question.
pub(crate) fn note_question(note: QuestionNote<'_>) {
    messages::note(&question_note_text(&note));
}

/// Returns the text of a note about the answer to a question.
pub(crate) fn question_note_text(note: &QuestionNote<'_>) -> String {
    match note {
        QuestionNote::Filter(note) => filter_note_text(note),
        QuestionNote::Incomparable(found) => {
            let rows = match found.rows {
                1 => "1 row".to_string(),
                rows => format!("{rows} rows"),
            };
            let file = &found.file;
            match found.is_rebuilt {
                true => format!(
                    "{rows} of {file} may only look new or gone, because the two sides have \
                     different builds of it, and its code has no names: heapprof convert symbolize \
                     adds names to both"
                ),
                false => format!(
                    "{rows} of {file} may only look new or gone, because its code has names on \
                     only one side: heapprof convert symbolize adds names to the other"
                ),
            }
        }
    }
}

/// Returns the text of a note about filters. The text names a filter by its option.
fn filter_note_text(note: &FilterNote) -> String {
    match note {
        FilterNote::NoFrame { reason, .. } => {
            format!("--{note}{}", messages::mismatch_advice(reason.as_ref()))
        }
        FilterNote::NoWrapper(_) => format!("--{note}"),
        FilterNote::NoSample | FilterNote::WrongExpression { .. } => note.to_string(),
    }
}

/// Returns an argument quoted for a shell.
fn quote(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
    match text.bytes().all(is_plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
