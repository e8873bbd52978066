//! Snapshots of Valgrind's Massif: each is a profile, the peak the one that is read unless another is asked for.
//!
//! The format is what Massif's own `ms_print` reads. A tree goes from the functions that allocate to their
//! callers; a node holds the bytes of all its callers, so what they do not account for is its own.
//! Valgrind's `--xtree-memory` writes the same format, with a measure in place of a moment as snapshot.

mod snapshot;

use crate::error::{Error, shortened};
use crate::figures::value;
use crate::format::Format;
use crate::lines::Lines;
use crate::reading::{Options, Part, Reading};
use crate::tally::Tally;
use crate::texts::Texts;
use crate::valgrind_frame::Stacks;
use snapshot::Snapshot;

pub(crate) fn sniff(head: &[u8]) -> bool {
    let (first, rest) = head.split_at(head.len().min(5));
    let command = || memchr::memmem::find(rest, b"\ncmd:").is_some();
    (first == b"desc:" && command()) || head.starts_with(b"#-----------\nsnapshot=")
}

pub(crate) fn read(lines: &mut Lines<'_>, options: &Options) -> Result<Reading, Error> {
    let mut file = File::default();
    let mut frames = Texts::default();
    let mut chosen: Option<Snapshot> = None;
    while lines.advance()? {
        if lines.line() == b"#-----------" {
            let snapshot = snapshot::read(lines, &mut frames)?;
            file.count(&snapshot);
            if is_chosen(options.part, &snapshot, chosen.as_ref()) {
                chosen = Some(snapshot);
            }
        } else {
            file.header(lines)?;
        }
    }
    match chosen {
        Some(snapshot) => file.profile(&snapshot, &frames),
        None if file.snapshots == 0 => Err(lines.ended("#-----------, where a snapshot begins")),
        None => Err(file.no_part(options.part)),
    }
}

/// Whether a snapshot is taken in place of the one so far.
fn is_chosen(part: Option<Part>, new: &Snapshot, old: Option<&Snapshot>) -> bool {
    match part {
        Some(Part::Number(number)) => new.number == number,
        Some(Part::Last) => true,
        // Measures are not moments: the first one is what is in use.
        None if new.measure().is_some() => old.is_none(),
        // Massif marks the peak; where it did not, the largest with stacks is the best there is.
        Some(Part::Peak) | None => old.is_none_or(|old| {
            (new.is_peak, new.has_tree(), new.total()) > (old.is_peak, old.has_tree(), old.total())
        }),
    }
}

/// What a file says beside the snapshot that is read.
#[derive(Default)]
struct File {
    options: String,
    command: String,
    time_unit: String,
    snapshots: u64,
    first: u64,
    last: u64,
    /// The snapshots with trees, as text.
    detailed: String,
}

impl File {
    fn header(&mut self, lines: &Lines<'_>) -> Result<(), Error> {
        let text = lines.text();
        let (field, rest) = match text.split_once(':') {
            Some(("desc", rest)) => (&mut self.options, rest),
            Some(("cmd", rest)) => (&mut self.command, rest),
            Some(("time_unit", rest)) => (&mut self.time_unit, rest),
            _ => return Err(lines.wrong("desc:, cmd:, time_unit: or #-----------")),
        };
        *field = rest.trim().to_string();
        Ok(())
    }

    fn count(&mut self, snapshot: &Snapshot) {
        /// More numbers help nobody.
        const MOST: usize = 400;
        if self.snapshots == 0 {
            self.first = snapshot.number;
        }
        self.snapshots += 1;
        self.last = snapshot.number;
        if snapshot.has_tree() && self.detailed.len() < MOST {
            let comma = if self.detailed.is_empty() { "" } else { ", " };
            self.detailed
                .push_str(&format!("{comma}{}", snapshot.number));
            if snapshot.is_peak {
                self.detailed.push_str(" (peak)");
            }
            if self.detailed.len() >= MOST {
                self.detailed.push_str(", …");
            }
        }
    }

    fn no_part(&self, part: Option<Part>) -> Error {
        let asked = part.map_or(String::new(), |part| format!("snapshot {part}"));
        let present = format!("{} to {}, and peak and last", self.first, self.last);
        Error::NoPart { asked, present }
    }

    fn profile(&self, snapshot: &Snapshot, frames: &Texts) -> Result<Reading, Error> {
        let measure = snapshot.measure();
        let types = match measure {
            Some(measure) => vec![measure],
            None => vec![("total_space", "bytes"), ("inuse_space", "bytes")],
        };
        let mut tally = Tally::new(&types);
        let none = tally.labelled("", "");
        let mut stacks = Stacks::new(frames);
        snapshot.own_bytes(|path, bytes| {
            let stack = stacks.locations(&mut tally, path);
            // Borrowed from `stacks`, so no copy is needed.
            let values = [bytes; 2];
            tally.add(stack, none, &values[..types.len()]).map(|_| ())
        })?;
        if measure.is_none() {
            for (name, bytes) in [
                ("(heap administration)", snapshot.extra),
                ("(stacks)", snapshot.stacks),
            ] {
                let stack = [tally.named(name)];
                tally.add(&stack, none, &[bytes, 0])?;
            }
        }
        if !self.command.is_empty() {
            tally.comment(&format!("command: {}", self.command));
        }
        if !self.options.is_empty() {
            tally.comment(&format!("options: {}", self.options));
        }
        tally.comment(&self.which(snapshot));
        Ok(Reading::new(
            Format::Massif,
            "none, Massif measures every block",
            tally.finish(),
        ))
    }

    /// Says which snapshot this is, and which there are.
    fn which(&self, snapshot: &Snapshot) -> String {
        let peak = if snapshot.is_peak { " (peak)" } else { "" };
        let detailed = match self.detailed.as_str() {
            "" => "none has stacks".to_string(),
            numbers => format!("with stacks: {numbers}"),
        };
        format!(
            "snapshot: {}{peak} at {} {}; the file has {} to {}, {detailed}; name another as FILE#N",
            snapshot.number, snapshot.time, self.time_unit, self.first, self.last
        )
    }
}

/// The value of a line `key=value`.
fn field<'l>(lines: &'l mut Lines<'_>, key: &'static str) -> Result<&'l [u8], Error> {
    if !lines.advance()? {
        return Err(lines.ended(format!("{key}=")));
    }
    let lines = &*lines;
    let line = lines.line();
    let value = line
        .strip_prefix(key.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"="));
    value.ok_or_else(|| lines.wrong(format!("{key}=")))
}

/// The bytes of a line `key=bytes`.
fn bytes(lines: &mut Lines<'_>, key: &'static str) -> Result<i64, Error> {
    let text = field(lines, key)?.to_vec();
    let bytes = value(&text).filter(|&bytes| bytes >= 0);
    bytes.ok_or_else(|| {
        lines.wrong_part(format!("a number of bytes behind {key}="), shortened(&text))
    })
}
