//! The words of the advice that libraries give: which command or option does what is advised.

use heapprof_analysis::FilterNote;
use heapprof_report::{AdviceWords, ReportAdvice};
use heapprof_text::MismatchReason;

/// The words of advice.
pub(crate) const ADVICE_WORDS: AdviceWords = AdviceWords(word_advice);

fn word_advice(advice: ReportAdvice<'_>) -> String {
    match advice {
        ReportAdvice::AllRows => "-n 0 shows all",
        ReportAdvice::AllColumns => "--width 0 shows all",
        ReportAdvice::OtherType(name) => return format!("try --sample-type {name}"),
        ReportAdvice::Symbolize => "heapprof symbolize looks for them",
        ReportAdvice::DebugFiles => {
            "heapprof symbolize --debug-dir DIR takes them from debug files in DIR"
        }
        ReportAdvice::CountForCallers(pattern) => {
            return format!("--wrappers {} counts its memory as theirs", quote(pattern));
        }
        ReportAdvice::OwnCode {
            with_wrappers: true,
        } => "--own-code and --wrappers",
        ReportAdvice::OwnCode {
            with_wrappers: false,
        } => "--own-code",
        ReportAdvice::SampleMore => "Record with --exact, or a shorter --period",
        ReportAdvice::RecordAll => "heapprof record --exact counts every allocation",
        ReportAdvice::RecordPythonObjects => "record --python-objects=yes",
        ReportAdvice::RecordMappings => "record --mmap",
        ReportAdvice::RecordMoments => "record --interval 1s",
        ReportAdvice::LookBeforeEnd => {
            "heapprof dump looks while it runs, and top -t peak_space at the peak"
        }
        ReportAdvice::AuditForks => {
            "heapprof fork-audit -- CMD, or record --fork-audit, notes them"
        }
        ReportAdvice::BuildPerlModule => {
            "heapprof fork-audit --perl-install, or heapprof perl-install, builds for the next \
             audit"
        }
    }
    .to_string()
}

/// Returns the text of a note about filters, in which a filter has the name of its option.
pub(crate) fn note_text(note: &FilterNote) -> String {
    match note {
        FilterNote::NoFrame { reason, .. } => {
            format!("--{note}{}", reason_advice(reason.as_ref()))
        }
        FilterNote::NoWrapper(_) => format!("--{note}"),
        FilterNote::NoSample | FilterNote::WrongExpression { .. } => note.to_string(),
    }
}

/// Returns the end of a sentence that says that an expression matches nothing: the likely reason
/// and what to do, or nothing.
pub(crate) fn mismatch_text(reason: Option<MismatchReason>) -> String {
    let advice = reason_advice(reason.as_ref());
    reason.map_or_else(String::new, |reason| format!("{reason}{advice}"))
}

fn reason_advice(reason: Option<&MismatchReason>) -> &'static str {
    match reason {
        Some(MismatchReason::Ellipsis) => ", and --full-names shows it",
        Some(MismatchReason::Unescaped(_) | MismatchReason::ShortName { .. }) | None => "",
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
