//! The datagram of a mark, and its answer.

use heapprof_process::StatmSizes;

/// Longest text of a mark that is stored, in bytes.
const MAX_TEXT_BYTES: usize = 1000;
/// The answer of a watch that has accepted a mark. Any other answer is the reason for a refusal.
pub const ACCEPTED_ANSWER: &str = "taken";

/// Suffix in the head of a mark that is only for the watch of its process.
const STRICT_SUFFIX: &str = " only";

/// Separator in the head of a mark for all watched processes but the sender, whose process id
/// follows.
const ALL_BUT_SEPARATOR: &str = " all but ";

/// Separator before the number of marks that could not be sent.
const LOST_SEPARATOR: &str = " lost ";

/// A mark, which gives a name to a moment in a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchMark {
    /// The process to which the mark belongs, if it belongs to one.
    pub pid: Option<u32>,
    /// Whether only the watch of the mark's process accepts the mark.
    pub is_strict: bool,
    /// Process id of the sender, if the mark belongs to all watched processes except the sender.
    pub of_all_but: Option<u32>,
    /// Number of marks that the process could not send since its previous mark.
    pub lost: u32,
    /// When the mark was set, in milliseconds since 1970 UTC.
    pub time_ms: i64,
    /// The memory sizes of the process when the mark was set.
    pub statm: Option<StatmSizes>,
    /// The user's text, which says what begins at the moment.
    pub text: String,
}

impl WatchMark {
    /// Parses a datagram: a head with the process and the time, the kernel's line of the process's
    /// memory (statm), and the text.
    pub fn parse(datagram: &[u8]) -> Option<Self> {
        let datagram = String::from_utf8_lossy(datagram);
        let (head, rest) = datagram.split_once('\n')?;
        let (statm, text) = rest.split_once('\n')?;
        let (pid, time) = head.strip_prefix("heapprof mark 1 ")?.split_once(' ')?;
        let (time, is_strict) = match time.strip_suffix(STRICT_SUFFIX) {
            Some(time) => (time, true),
            None => (time, false),
        };
        let (time, of_all_but) = match time.split_once(ALL_BUT_SEPARATOR) {
            Some((time, sender)) => (time, Some(sender.parse().ok()?)),
            None => (time, None),
        };
        let (time, lost) = time.split_once(LOST_SEPARATOR).unwrap_or((time, "0"));
        let mut text = text.to_string();
        if let Some(end) = (0..=MAX_TEXT_BYTES.min(text.len()))
            .rev()
            .find(|&i| text.is_char_boundary(i))
        {
            text.truncate(end);
        }
        Some(Self {
            pid: Some(pid.parse().ok()?).filter(|pid| *pid != 0),
            is_strict,
            of_all_but,
            lost: lost.parse().ok()?,
            time_ms: time.parse().ok()?,
            statm: StatmSizes::parse(statm),
            text,
        })
    }
}

/// The processes to which a mark belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkScope {
    /// The sender names no process.
    UnknownProcess,
    /// Only the process with this id. Only its own watch accepts the mark.
    Process(u32),
    /// All watched processes but the sender.
    AllOthers,
}

/// Makes the datagram of a mark that is set at `now`, in milliseconds since 1970 UTC, with the
/// memory sizes of its process.
pub fn make_mark(of: MarkScope, text: &str, now: i64) -> Vec<u8> {
    let pid = match of {
        MarkScope::Process(pid) => Some(pid),
        MarkScope::UnknownProcess | MarkScope::AllOthers => None,
    };
    let statm = pid.map(|pid| std::fs::read_to_string(format!("/proc/{pid}/statm")));
    let statm = statm.and_then(Result::ok).unwrap_or_default();
    let end = match of {
        MarkScope::UnknownProcess | MarkScope::Process(_) => STRICT_SUFFIX.to_string(),
        MarkScope::AllOthers => format!("{ALL_BUT_SEPARATOR}{}", std::process::id()),
    };
    let head = format!(
        "heapprof mark 1 {} {now}{end}\n{}\n",
        pid.unwrap_or(0),
        statm.trim_end()
    );
    [head.as_bytes(), text.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_marks_or_nothing() {
        let mark = WatchMark::parse(b"heapprof mark 1 7 99\n9 5 3 2 0 4 0\nwarm\nnow").unwrap();
        assert_eq!(
            (mark.pid, mark.time_ms, mark.text.as_str()),
            (Some(7), 99, "warm\nnow")
        );
        assert!(mark.statm.is_some() && !mark.is_strict);
        let mark = WatchMark::parse(b"heapprof mark 1 7 99 only\n\nx").unwrap();
        assert_eq!((mark.is_strict, mark.time_ms, mark.lost), (true, 99, 0));
        let mark = WatchMark::parse(b"heapprof mark 1 7 99 lost 3\n\nx").unwrap();
        assert_eq!((mark.is_strict, mark.time_ms, mark.lost), (false, 99, 3));
        let mark = WatchMark::parse(b"heapprof mark 1 0 99\n\n\xff").unwrap();
        assert_eq!(
            (mark.pid, mark.statm, mark.text.as_str()),
            (None, None, "\u{fffd}")
        );
        let long = format!("heapprof mark 1 0 9\n\n{}", "\u{e9}".repeat(1500));
        assert_eq!(
            WatchMark::parse(long.as_bytes()).unwrap().text.len(),
            MAX_TEXT_BYTES
        );
        for wrong in [
            &b""[..],
            b"heapprof mark 1 7 99",
            b"heapprof mark 2 7 99\n\nx",
            b"heapprof mark 1 -7 99\n\nx",
            b"heapprof mark 1 7\n\nx",
            b"heapprof mark 1 0 99 all but x\n\nx",
        ] {
            assert_eq!(WatchMark::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_mark_is_read_as_it_was_sent() {
        let own = std::process::id();
        let mark = WatchMark::parse(&make_mark(MarkScope::Process(own), "a\nb", 9)).unwrap();
        assert_eq!((mark.pid, mark.text.as_str()), (Some(own), "a\nb"));
        assert!(mark.statm.is_some_and(|statm| statm.rss > 0));
        let mark = WatchMark::parse(&make_mark(MarkScope::AllOthers, "x", 9)).unwrap();
        assert_eq!((mark.pid, mark.statm), (None, None));
        assert_eq!((mark.of_all_but, mark.is_strict), (Some(own), false));
    }
}
