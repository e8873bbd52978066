//! The message that a process sends before it lowers its rights.

use heapprof_files::FileOwner;

use crate::rights::ProcessRights;

/// The beginning of a message about lower rights.
const LOWERED_RIGHTS_PREFIX: &str = "heapprof's lower rights 1";

/// The lower rights that a process announces for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoweredRights {
    pub(super) rights: ProcessRights,
    /// Whether the process can't get other rights afterwards.
    pub(super) is_for_good: bool,
}

impl LoweredRights {
    /// Parses a message. Returns `None` if the text is no message about rights. After the prefix
    /// come the user and the group, and whether the rights are lower only for now. If these fields
    /// are missing, only the kernel knows which rights the process has left.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(text).ok()?.strip_suffix('\n')?;
        let rest = text.strip_prefix(LOWERED_RIGHTS_PREFIX)?;
        if rest.is_empty() {
            return Some(Self {
                rights: ProcessRights::Public,
                is_for_good: false,
            });
        }
        let words: Vec<&str> = rest.strip_prefix(' ')?.split(' ').collect();
        let (user, group, is_for_good) = match words[..] {
            [user, group] => (user, group, true),
            [user, group, "now"] => (user, group, false),
            _ => return None,
        };
        let (user, group) = (user.parse().ok()?, group.parse().ok()?);
        Some(Self {
            rights: ProcessRights::User(FileOwner { user, group }),
            is_for_good,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        let user = |user, group, is_for_good| {
            let rights = ProcessRights::User(FileOwner { user, group });
            Some(LoweredRights {
                rights,
                is_for_good,
            })
        };
        let public = LoweredRights {
            rights: ProcessRights::Public,
            is_for_good: false,
        };
        for (text, expected) in [
            ("heapprof's lower rights 1 7 8\n", user(7, 8, true)),
            ("heapprof's lower rights 1 7 8 now\n", user(7, 8, false)),
            ("heapprof's lower rights 1\n", Some(public)),
            ("heapprof's lower rights 1", None),
            ("heapprof's lower rights 12 7\n", None),
            ("heapprof's lower rights 1 7 8 9\n", None),
            ("heapprof's lower rights 1 -1 8\n", None),
            ("heapprof's end 1 1 5\n", None),
            ("", None),
        ] {
            assert_eq!(LoweredRights::parse(text.as_bytes()), expected, "{text:?}");
        }
    }
}
