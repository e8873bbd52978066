//! Reads the file of one user's messages while the user's processes write it.
//!
//! A message may be incomplete, because its process was killed or the disk was full. The next
//! message then begins in the middle of the incomplete one. It is found by the prefix that every
//! message has.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, fallocate};

use heapprof_files::{FileOwner, FilePlace, OpenedFile, PathTrust, open_folder};

/// Suffix of the files in the list's folder that hold messages about growing lines.
pub(crate) const LINES_SUFFIX: &[u8] = b".lines";
/// Suffix of the files in the list's folder that hold whole profiles, for the view.
pub(crate) const LIVE_SUFFIX: &[u8] = b".live";
/// Maximum number of names in the folder that one scan reads.
const MAX_NAMES: usize = 4096;
/// The prefix of each message.
const MESSAGE_PREFIX: &[u8] = b"\n\0lines ";
/// Maximum number of bytes of the numbers that follow the prefix.
const MAX_NUMBERS_BYTES: usize = 64;
/// Largest profile of a message, in bytes.
const MAX_PROFILE_BYTES: usize = 16 << 20;
/// Number of bytes of parsed text that are given back to the file system at once.
const RELEASE_CHUNK_BYTES: u64 = 4 << 20;

/// Makes a file of this user in the list's folder, before any other process can. Its mode does not
/// depend on the umask.
pub(crate) fn make_own(folder: &Path, name: &OsStr) -> io::Result<File> {
    let own = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(name))?;
    own.set_permissions(Permissions::from_mode(0o600))?;
    Ok(own)
}

/// A message of a process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TailMessage {
    pub(crate) process: u32,
    /// When the process's recording began. Messages with different values belong to different
    /// recordings.
    pub(crate) began: i64,
    pub(crate) is_exact: bool,
    /// The gzipped profile.
    pub(crate) profile: Vec<u8>,
}

/// The reader of a file that processes of one user write to.
pub(crate) struct MessageTail {
    file: File,
    pub(crate) owner: FileOwner,
    /// Whether a part of the file was no message.
    pub(crate) is_damaged: bool,
    /// The text that was read; the bytes before `at` are parsed.
    text: Vec<u8>,
    at: usize,
    /// Number of bytes at `at` that belong to the last message, but may also begin the next
    /// message.
    end: usize,
    /// Number of bytes that were read.
    read: u64,
    /// Number of bytes that were given back to the file system.
    given_back: u64,
}

impl MessageTail {
    fn new(opened: OpenedFile) -> Self {
        Self::from_file(opened.file, FileOwner::from_stat(&opened.stat))
    }

    fn from_file(file: File, owner: FileOwner) -> Self {
        Self {
            file,
            owner,
            is_damaged: false,
            text: Vec::new(),
            at: 0,
            end: 0,
            read: 0,
            given_back: 0,
        }
    }

    /// Makes this user's file. Returns the file's name and its reader.
    pub(crate) fn create_own(folder: &Path, ending: &[u8]) -> io::Result<(OsString, Self)> {
        let user = FileOwner::us().user.to_string();
        let name = OsString::from_vec([user.as_bytes(), ending].concat());
        let file = make_own(folder, &name)?;
        Ok((name, Self::from_file(file, FileOwner::us())))
    }

    /// Returns the current length of the file. Messages that are written later are left to a later
    /// scan.
    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Returns how many of the first `len` bytes of the file were not read yet.
    pub(crate) fn unread(&self, len: u64) -> u64 {
        len.saturating_sub(self.read)
    }

    /// Returns the next message in the first `len` bytes of the file; `None` if no complete message
    /// is left.
    pub(crate) fn next(&mut self, len: u64) -> io::Result<Option<TailMessage>> {
        loop {
            match head(&self.text[self.at..]) {
                MessageHead::Message(numbers, begin, end) => {
                    let (from, to) = (self.at + begin, self.at + end);
                    // A profile holds no prefix of a message. If one is there, this message was cut
                    // short, and the other message may begin in its last bytes.
                    let most = self.text.len().min(to + MESSAGE_PREFIX.len() - 1);
                    if let Some(cut) = memchr::memmem::find(&self.text[from..most], MESSAGE_PREFIX)
                    {
                        self.is_damaged = true;
                        (self.at, self.end) = (from + cut, 0);
                        continue;
                    }
                    if let Some(profile) = self.text.get(from..to) {
                        let profile = profile.to_vec();
                        let rest = &self.text[to.saturating_sub(MESSAGE_PREFIX.len() - 1)..];
                        let begun =
                            |end: &usize| MESSAGE_PREFIX.starts_with(&rest[rest.len() - end..]);
                        self.end = match most == to {
                            true => (1..=rest.len()).rev().find(begun).unwrap_or(0),
                            false => 0,
                        };
                        self.at = to - self.end;
                        let [process, began, exact, _] = numbers;
                        return Ok(Some(TailMessage {
                            process: u32::try_from(process).unwrap_or_default(),
                            began,
                            is_exact: exact != 0,
                            profile,
                        }));
                    }
                }
                MessageHead::NoMessage if self.end != 0 => {
                    self.at += std::mem::take(&mut self.end);
                    continue;
                }
                MessageHead::NoMessage => {
                    self.skip();
                    continue;
                }
                MessageHead::Incomplete => {}
            }
            self.forget();
            let left = len.saturating_sub(self.read);
            if left == 0 {
                return Ok(None);
            }
            let read = Read::by_ref(&mut self.file)
                .take(left.min(MAX_PROFILE_BYTES as u64))
                .read_to_end(&mut self.text)?;
            if read == 0 {
                return Ok(None);
            }
            self.read += read as u64;
            self.give_back();
        }
    }

    /// Skips the first `len` bytes of the file.
    pub(crate) fn pass_over(&mut self, len: u64) {
        (self.at, self.end) = (self.text.len(), 0);
        self.forget();
        if self.file.seek(SeekFrom::Start(len)).is_ok() {
            self.read = self.read.max(len);
            self.give_back();
        }
    }

    /// Skips to the next place where a message may begin.
    fn skip(&mut self) {
        self.is_damaged = true;
        let text = &self.text[self.at..];
        let next = memchr::memmem::find(&text[1.min(text.len())..], MESSAGE_PREFIX);
        self.at += match next {
            Some(next) => next + 1,
            // The end of the text may be the beginning of a prefix.
            None => text
                .len()
                .saturating_sub(MESSAGE_PREFIX.len() - 1)
                .max(1.min(text.len())),
        };
    }

    /// Drops the text that was parsed.
    fn forget(&mut self) {
        self.text.drain(..self.at);
        self.at = 0;
    }

    /// Frees the parsed text in the file, if the file system can punch holes.
    fn give_back(&mut self) {
        let length = self.read - self.given_back;
        if length >= RELEASE_CHUNK_BYTES {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, flags, self.given_back, length);
            self.given_back = self.read;
        }
    }
}

/// Returns at most `most` files of other users that are not known yet. The name of each user's file
/// is the user's number.
pub(crate) fn find_others(
    folder: &Path,
    ending: &[u8],
    is_known: &dyn Fn(&OsString) -> bool,
    most: usize,
) -> Vec<(OsString, MessageTail)> {
    let Ok(names) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = names.take(MAX_NAMES).filter_map(Result::ok);
    let found = names.map(|entry| entry.file_name()).filter_map(|name| {
        let user = name.as_bytes().strip_suffix(ending);
        let user = user.and_then(|user| std::str::from_utf8(user).ok()?.parse::<u32>().ok());
        let user = user.filter(|_| !is_known(&name))?;
        let opened = open_folder(folder, PathTrust::OwnLinks)
            .and_then(|folder| FilePlace::in_folder(folder, name.clone()).open());
        let tail = opened.ok().map(MessageTail::new)?;
        (tail.owner.user == user).then_some((name, tail))
    });
    found.take(most).collect()
}

/// Whether a text begins with a message.
#[derive(Debug, PartialEq, Eq)]
enum MessageHead {
    /// A message: its four numbers, and where its profile begins and ends.
    Message([i64; 4], usize, usize),
    /// The text may become a message.
    Incomplete,
    /// The text is no message.
    NoMessage,
}

fn head(text: &[u8]) -> MessageHead {
    if text.len() < MESSAGE_PREFIX.len() {
        return match MESSAGE_PREFIX.starts_with(text) {
            true => MessageHead::Incomplete,
            false => MessageHead::NoMessage,
        };
    }
    let Some(rest) = text.strip_prefix(MESSAGE_PREFIX) else {
        return MessageHead::NoMessage;
    };
    let Some(end) = rest
        .iter()
        .take(MAX_NUMBERS_BYTES)
        .position(|&b| b == b'\n')
    else {
        return match rest.len() < MAX_NUMBERS_BYTES {
            true => MessageHead::Incomplete,
            false => MessageHead::NoMessage,
        };
    };
    let numbers = std::str::from_utf8(&rest[..end]).ok().and_then(|numbers| {
        let mut numbers = numbers.split(' ').map(str::parse::<i64>);
        let mut next = || numbers.next()?.ok();
        let all = [next()?, next()?, next()?, next()?];
        numbers.next().is_none().then_some(all)
    });
    let begin = MESSAGE_PREFIX.len() + end + 1;
    match numbers {
        Some(numbers) if (0..=MAX_PROFILE_BYTES as i64).contains(&numbers[3]) => {
            MessageHead::Message(numbers, begin, begin + numbers[3] as usize)
        }
        _ => MessageHead::NoMessage,
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn heads_of_messages() {
        for (text, expected) in [
            ("", MessageHead::Incomplete),
            ("\n\0li", MessageHead::Incomplete),
            ("x", MessageHead::NoMessage),
            ("\n\0lines 12 5", MessageHead::Incomplete),
            (
                "\n\0lines 12 5 1 3\n",
                MessageHead::Message([12, 5, 1, 3], 17, 20),
            ),
            ("\n\0lines 12 5 1\n", MessageHead::NoMessage),
            ("\n\0lines 12 5 1 3 4\n", MessageHead::NoMessage),
            ("\n\0lines 12 5 1 -3\n", MessageHead::NoMessage),
            ("\n\0lines 12 5 1 99999999\n", MessageHead::NoMessage),
            ("\n\0lines \n", MessageHead::NoMessage),
        ] {
            assert_eq!(head(text.as_bytes()), expected, "{text:?}");
        }
        let long = [MESSAGE_PREFIX, &[b'1'; 100]].concat();
        assert_eq!(head(&long), MessageHead::NoMessage);
    }

    /// Returns the messages of a file that grows in these steps, and whether a part of it was
    /// damaged.
    fn messages(steps: &[&str]) -> (Vec<String>, bool) {
        let folder = tempfile::tempdir().unwrap();
        let (name, mut tail) = MessageTail::create_own(folder.path(), LINES_SUFFIX).unwrap();
        let mut writer = OpenOptions::new()
            .append(true)
            .open(folder.path().join(name))
            .unwrap();
        let mut found = Vec::new();
        for step in steps {
            writer.write_all(step.as_bytes()).unwrap();
            let len = tail.len().unwrap();
            while let Some(message) = tail.next(len).unwrap() {
                let profile = String::from_utf8(message.profile).unwrap();
                found.push(format!("{} {profile}", message.process));
            }
        }
        (found, tail.is_damaged)
    }

    #[test]
    fn a_message_that_is_cut_short_costs_no_other() {
        let whole = "\n\0lines 1 5 1 3\nabc";
        let both = |is_damaged| (vec!["1 abc".to_string(); 2], is_damaged);
        assert_eq!(messages(&[whole, whole]), both(false));
        let (first, second) = whole.split_at(11);
        assert_eq!(messages(&[first, second, "junk", whole]), both(true));
        // The second message begins within the first one.
        let torn = "\n\0lines 2 5 1 9\nab";
        let step = [torn, whole, whole].concat();
        assert_eq!(messages(&[&step]), both(true));
        // The head itself is cut.
        let step = ["\n\0lines 7 ", whole].concat();
        assert_eq!(messages(&[&step, whole]), both(true));
        // Only later text shows whether the message ends here.
        let torn = "\n\0lines 1 5 1 4\nab\n\0";
        let (begin, rest) = whole.split_at(2);
        let found = messages(&[&torn[..torn.len() - 2], begin, rest]);
        assert_eq!(
            found,
            (vec!["1 ab\n\0".to_string(), "1 abc".to_string()], false)
        );
        let found = messages(&[torn, whole]);
        assert_eq!(
            found,
            (vec!["1 ab\n\0".to_string(), "1 abc".to_string()], false)
        );
    }

    /// Tests that parsing a file takes no more work than its length, even if each message head
    /// claims a large profile.
    #[test]
    fn heads_in_heads_are_passed_over_once() {
        let many = "\n\0lines 1 5 1 16000000\n".repeat(500_000);
        let (found, is_damaged) = messages(&[&many, "\n\0lines 1 5 1 3\nabc"]);
        assert_eq!((found, is_damaged), (vec!["1 abc".to_string()], true));
    }
}
