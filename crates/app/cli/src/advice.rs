//! The words of the advice that reports give: which command or option does what is advised.

use heapprof_report::{AdviceWords, ReportAdvice};

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
            "heapprof fork-audit --perl-install, or heapprof perl-install, builds for the next audit"
        }
    }
    .to_string()
}

/// Returns an argument quoted for a shell.
fn quote(text: &str) -> String {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
    match text.bytes().all(is_plain) {
        true => text.to_string(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}
