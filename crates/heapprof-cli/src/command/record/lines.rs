//! `--follow-lines`: says, while the program runs, which lines have grown.
//!
//! The library decides when to tell of a stack, and by how much it has grown. It writes that into a
//! file beside the list of profiles, as a small profile with raw addresses. Here a thread reads
//! that file, gives the addresses names, and prints each line that has grown enough.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use heapprof_analysis::{Place as Line, line_growth};
use heapprof_profile::{ReadOptions, decode_with};
use heapprof_report::LineGrowth;
use heapprof_symbolize::{Options, Symbolizer};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::process::{getegid, geteuid};

use crate::args::RecordArgs;
use crate::args::record::LineFormat;
use crate::place::{Opened, Owner, Place, Trust, acting, open_folder};
use crate::{messages, output};

/// What a name in the list's folder ends in if it holds lines.
pub(super) const ENDING: &[u8] = b".lines";
/// How long the thread sleeps between two looks.
const PAUSE: Duration = Duration::from_millis(30);
/// More bytes than a message has.
const LONGEST: usize = 64 << 20;
/// More bytes than the first line of a message has.
const LONGEST_HEAD: usize = 40;
/// How many bytes are read at once.
const CHUNK: u64 = 8 << 20;
/// So many bytes that were read are given back to the file system at once.
const GIVEN_BACK: u64 = 4 << 20;
/// The most lines that are followed.
const MOST_LINES: usize = 1 << 20;

/// Where lines are said.
pub(super) enum Output {
    Messages,
    File(File, PathBuf),
}

/// Opens what `--follow-output` names, before the program starts.
pub(super) fn open(args: &RecordArgs) -> Result<Output> {
    match &args.follow_output {
        None => Ok(Output::Messages),
        Some(path) => {
            let file = output::open(args.file_mode.mode()?, path)?;
            Ok(Output::File(file, path.clone()))
        }
    }
}

/// The thread that follows.
pub(super) struct Follower {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Follower {
    /// Follows what processes write into the folder `list`, until [`end`](Self::end).
    pub(super) fn start(
        list: &Path,
        least: u64,
        args: &RecordArgs,
        output: Output,
    ) -> Result<Self> {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (name, own) = Tail::of_own(list).context("no temporary file can be made")?;
        let mut lines = Lines {
            folder: list.to_path_buf(),
            least: i64::try_from(least).unwrap_or(i64::MAX),
            is_exact: args.exact,
            symbolizes: !args.no_symbolize,
            format: args.follow_format,
            output: Some(output),
            began: Instant::now(),
            files: HashMap::from([(name, Some(own))]),
            symbolizers: HashMap::new(),
            growth: HashMap::new(),
        };
        let ended = Arc::clone(&has_ended);
        let work = move || {
            loop {
                // What is read after the program's end is all that there is.
                let is_last = ended.load(Ordering::Acquire);
                lines.read();
                if is_last {
                    break;
                }
                std::thread::park_timeout(PAUSE);
            }
        };
        let thread = std::thread::Builder::new()
            .spawn(work)
            .context("--follow-lines needs a thread")?;
        Ok(Self { has_ended, thread })
    }

    /// Says what is left to say.
    pub(super) fn end(self) {
        self.has_ended.store(true, Ordering::Release);
        self.thread.thread().unpark();
        let _ = self.thread.join();
    }
}

/// A file that processes of one user write to.
struct Tail {
    file: File,
    owner: Owner,
    /// What was read, and not understood yet.
    text: Vec<u8>,
    /// How much was read, and how much of it was given back.
    read: u64,
    given_back: u64,
}

/// What is followed.
struct Lines {
    folder: PathBuf,
    least: i64,
    is_exact: bool,
    symbolizes: bool,
    format: LineFormat,
    /// `None` once it can't be written to.
    output: Option<Output>,
    began: Instant,
    files: HashMap<OsString, Option<Tail>>,
    symbolizers: HashMap<Owner, Symbolizer>,
    /// By how much each line of a process has grown since it was said last.
    growth: HashMap<(u32, u32), HashMap<Line, i64>>,
}

impl Lines {
    /// Reads what is new.
    fn read(&mut self) {
        self.look_for_files();
        let names: Vec<OsString> = self.files.keys().cloned().collect();
        for name in names {
            let Some(Some(mut tail)) = self.files.insert(name.clone(), None) else {
                continue;
            };
            let is_sound = loop {
                match tail.next() {
                    Ok(Some((process, message))) => self.take(tail.owner, process, &message),
                    Ok(None) => break true,
                    Err(_) => break false,
                }
            };
            if is_sound && self.output.is_some() {
                self.files.insert(name, Some(tail));
            }
        }
    }

    fn look_for_files(&mut self) {
        let Ok(names) = std::fs::read_dir(&self.folder) else {
            return;
        };
        for name in names.filter_map(Result::ok).map(|entry| entry.file_name()) {
            if !name.as_bytes().ends_with(ENDING) || self.files.contains_key(&name) {
                continue;
            }
            let opened = open_folder(&self.folder, Trust::OwnLinks)
                .and_then(|folder| Place::in_folder(folder, name.clone()).open());
            let tail = |opened: Opened| Tail::new(opened.file, Owner::of(&opened.stat));
            let tail = opened.ok().map(tail);
            self.files.insert(name, tail);
        }
    }

    /// Takes a message in. What can't be read says nothing.
    fn take(&mut self, owner: Owner, process: u32, message: &[u8]) {
        let symbolizes = self.symbolizes;
        let symbolizer = self.symbolizers.entry(owner).or_insert_with(|| {
            Symbolizer::new(Options {
                number_functions: true,
                ..Options::default()
            })
        });
        // The files that are named are read with the rights of whoever names them.
        let grown = acting(owner, || {
            let mut profile = decode_with(message, ReadOptions::default()).ok()?;
            if symbolizes {
                symbolizer.symbolize(&mut profile);
            }
            line_growth(&profile).ok()
        });
        let Ok(Some(grown)) = grown else { return };
        let of_process = self.growth.entry((owner.user, process)).or_default();
        let mut said = Vec::new();
        for (line, bytes) in grown {
            let is_full = of_process.len() >= MOST_LINES;
            let sum = match of_process.get_mut(&line) {
                Some(sum) => sum,
                None if is_full => continue,
                None => of_process.entry(line.clone()).or_default(),
            };
            *sum = sum.saturating_add(bytes);
            if *sum >= self.least {
                said.push((line, std::mem::take(sum)));
            }
        }
        // What has grown most comes first.
        said.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        for (place, bytes) in said {
            self.say(&LineGrowth {
                process,
                place: &place,
                bytes,
                is_exact: self.is_exact,
                seconds: (self.began.elapsed().as_secs_f64() * 1000.0).round() / 1000.0,
            });
        }
    }

    fn say(&mut self, growth: &LineGrowth<'_>) {
        let Some(output) = &mut self.output else {
            return;
        };
        let text = match self.format {
            LineFormat::Text => growth.text(),
            LineFormat::Json => growth.json(),
        };
        let (file, path) = match output {
            Output::File(file, path) => (file, path),
            Output::Messages if self.format == LineFormat::Json => return messages::plain(&text),
            Output::Messages => return messages::note(&text),
        };
        if let Err(error) = file.write_all(format!("{text}\n").as_bytes()) {
            messages::note(&format!(
                "{}: cannot be written: {error}; no more lines are followed",
                path.display()
            ));
            self.output = None;
        }
    }
}

impl Tail {
    fn new(file: File, owner: Owner) -> Self {
        Self {
            file,
            owner,
            text: Vec::new(),
            read: 0,
            given_back: 0,
        }
    }

    /// Makes the file of our own user, with its name.
    fn of_own(folder: &Path) -> io::Result<(OsString, Self)> {
        let (user, group) = (geteuid().as_raw(), getegid().as_raw());
        let name = [user.to_string().as_bytes(), ENDING].concat();
        let name = OsString::from_vec(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(folder.join(&name))?;
        file.set_permissions(Permissions::from_mode(0o600))?;
        Ok((name, Self::new(file, Owner { user, group })))
    }

    /// The next message and the process that wrote it; `None` if it is not all there yet. Fails if
    /// it is no message.
    fn next(&mut self) -> io::Result<Option<(u32, Vec<u8>)>> {
        loop {
            if let Some((process, length, head)) = head(&self.text)?
                && let Some(message) = self.text.get(head..head + length)
            {
                let message = message.to_vec();
                self.text.drain(..head + length);
                return Ok(Some((process, message)));
            }
            let read = Read::by_ref(&mut self.file)
                .take(CHUNK)
                .read_to_end(&mut self.text)?;
            if read == 0 {
                return Ok(None);
            }
            self.read += read as u64;
            self.give_back();
        }
    }

    /// Gives what was read back to the file system, if it can take it.
    fn give_back(&mut self) {
        let length = self.read - self.given_back;
        if length >= GIVEN_BACK {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let _ = fallocate(&self.file, flags, self.given_back, length);
            self.given_back = self.read;
        }
    }
}

/// The first line of a message: the process, the length of what follows, and its own length.
fn head(text: &[u8]) -> io::Result<Option<(u32, usize, usize)>> {
    let Some(end) = text.iter().take(LONGEST_HEAD).position(|&b| b == b'\n') else {
        return match text.len() < LONGEST_HEAD {
            true => Ok(None),
            false => Err(io::ErrorKind::InvalidData.into()),
        };
    };
    let head = std::str::from_utf8(&text[..end]).ok();
    let numbers = head.and_then(|head| {
        let (process, length) = head.split_once(' ')?;
        Some((process.parse().ok()?, length.parse().ok()?))
    });
    match numbers {
        Some((process, length)) if length <= LONGEST => Ok(Some((process, length, end + 1))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_messages() {
        for (text, expected) in [
            ("", Ok(None)),
            ("12", Ok(None)),
            ("12 34\n", Ok(Some((12, 34, 6)))),
            ("12 34\nrest", Ok(Some((12, 34, 6)))),
            ("12\n", Err(())),
            ("-1 2\n", Err(())),
            ("1 99999999999999\n", Err(())),
            ("1 18446744073709551616\n", Err(())),
            ("1234567890123456789012345678901234567890123", Err(())),
            ("\n", Err(())),
        ] {
            let found = head(text.as_bytes()).map_err(|_| ());
            assert_eq!(found, expected, "{text:?}");
        }
    }
}
