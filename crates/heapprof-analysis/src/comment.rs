//! What a collector writes into a profile's comments: `key: value`, one a line.

use crate::error::Error;
use crate::session::Session;

/// When a profile was dumped, as its comments say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Dumped {
    /// When the program ended: what was in use then, nobody freed.
    Exit,
    /// At another moment, named here.
    Before(String),
    /// It does not say.
    #[default]
    Unknown,
}

/// The comments of the session's only profile.
pub(crate) fn comments(session: &Session) -> Result<Vec<String>, Error> {
    session.rows(
        "SELECT text FROM comment WHERE profile = 1 ORDER BY position",
        [],
        |row| row.get(0),
    )
}

/// When it was dumped; of profiles added up, the one that was not dumped at exit decides.
pub(crate) fn dumped(comments: &[String]) -> Dumped {
    let mut dumped = Dumped::Unknown;
    for value in values(comments, "dump") {
        if value.split_whitespace().next() != Some("exit") {
            return Dumped::Before(value.to_string());
        }
        dumped = Dumped::Exit;
    }
    dumped
}

/// A number of bytes. Several are those of several processes, and belong to none of them alone.
pub(crate) fn bytes(comments: &[String], key: &str) -> Option<i64> {
    let mut found = values(comments, key);
    let number = found.next()?.strip_suffix("bytes")?.trim_end();
    match found.next() {
        None => number.parse().ok().filter(|n| *n > 0),
        Some(_) => None,
    }
}

fn values<'a>(comments: &'a [String], key: &str) -> impl Iterator<Item = &'a str> {
    comments.iter().filter_map(move |comment| {
        let value = comment.trim().strip_prefix(key)?.strip_prefix(':')?;
        Some(value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(comments: &[&str]) -> Vec<String> {
        comments.iter().map(|c| c.to_string()).collect()
    }

    #[test]
    fn what_comments_say() {
        let table = [
            (&["rss: 12 bytes"][..], Some(12)),
            (&["peak rss: 12 bytes"], None),
            (&["rss: 12 bytes", "rss: 13 bytes"], None),
            (&["rss: many"], None),
            (&["rss: 0 bytes"], None),
            (&["the rss: 5 bytes"], None),
            (&[], None),
        ];
        for (comments, expected) in table {
            assert_eq!(bytes(&texts(comments), "rss"), expected, "{comments:?}");
        }
        let before = |reason: &str| Dumped::Before(reason.to_string());
        let table = [
            (&["dump: exit"][..], Dumped::Exit),
            (&["pid: 3"], Dumped::Unknown),
            (&["dump: interval"], before("interval")),
            (&["dump: exit", "dump: new peak"], before("new peak")),
            (&["dumps: none"], Dumped::Unknown),
        ];
        for (comments, expected) in table {
            assert_eq!(dumped(&texts(comments)), expected, "{comments:?}");
        }
    }
}
