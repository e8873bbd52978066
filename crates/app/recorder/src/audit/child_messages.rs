//! The messages that a process under an audit sends about itself.

use heapprof_profile::fork::LoadAttempt;

/// The beginning of every message. It is followed by the event's name, the version of the format,
/// the generation of the process, the number of messages that the process could not send, and the
/// rest of the message.
const MESSAGE_PREFIX: &str = "heapprof's ";

/// A message of a process under an audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChildMessage {
    /// Number of forks between the first process and the sender.
    pub(super) generation: u8,
    /// Number of the sender's earlier messages that could not be sent.
    pub(super) unheard_count: u32,
    pub(super) what: ChildEvent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChildEvent {
    /// The sender has been forked from the process with this id.
    Forked(u32),
    /// The sender is about to end.
    End,
    /// The sender is about to become another program.
    Exec,
    /// The sender asks to be inspected.
    InspectionRequest,
    /// The sender has tried to load something.
    Load(LoadAttempt),
}

impl ChildMessage {
    /// Parses a message. Returns `None` if the text is no message about an audit.
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let rest = text.strip_prefix(MESSAGE_PREFIX)?.strip_suffix('\n')?;
        let (first, more) = rest.split_once('\n').unwrap_or((rest, ""));
        let words: Vec<&str> = first.split(' ').collect();
        let (word, generation, unheard, rest) = match words[..] {
            [word, "1", generation, unheard] => (word, generation, unheard, None),
            [word, "1", generation, unheard, rest] => (word, generation, unheard, Some(rest)),
            _ => return None,
        };
        let what = match (word, rest) {
            ("child", Some(parent)) => ChildEvent::Forked(parent.parse().ok()?),
            ("end", None) => ChildEvent::End,
            ("exec", None) => ChildEvent::Exec,
            ("look", None) => ChildEvent::InspectionRequest,
            ("load", None) => ChildEvent::Load(LoadAttempt::from_comment(more)?),
            _ => return None,
        };
        Some(Self {
            generation: generation.parse().ok()?,
            unheard_count: unheard.parse().ok()?,
            what,
        })
    }

    /// Whether the message comes from a child that has just been forked.
    pub(crate) fn is_of_new_child(&self) -> bool {
        matches!(self.what, ChildEvent::Forked(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let said = |generation, what| {
            let unheard = 5;
            Some(ChildMessage {
                generation,
                unheard_count: unheard,
                what,
            })
        };
        let load = LoadAttempt {
            name: "A.pm".to_string(),
            ..LoadAttempt::default()
        };
        let of_load = format!("heapprof's load 1 3 5\n{}\n", load.comment());
        for (text, expected) in [
            (
                "heapprof's child 1 2 5 77\n",
                said(2, ChildEvent::Forked(77)),
            ),
            ("heapprof's end 1 1 5\n", said(1, ChildEvent::End)),
            ("heapprof's exec 1 0 5\n", said(0, ChildEvent::Exec)),
            (
                "heapprof's look 1 1 5\n",
                said(1, ChildEvent::InspectionRequest),
            ),
            (of_load.as_str(), said(3, ChildEvent::Load(load))),
            ("heapprof's kept books 1\n", None),
            ("heapprof's child 1 2 5\n", None),
            ("heapprof's child 1 999 5 7\n", None),
            ("heapprof's child 1 2 5 77", None),
            ("heapprof's load 1 3 5\nx\n", None),
            ("heapprof's end 2 1 5\n", None),
            ("", None),
        ] {
            assert_eq!(ChildMessage::parse(text.as_bytes()), expected, "{text:?}");
        }
        assert_eq!(ChildMessage::parse(b"heapprof's child 1 \xff"), None);
    }
}
