//! Reads snapshots of Valgrind's Massif. Each snapshot is a profile. The peak is read unless the
//! user selects another snapshot.
//!
//! The accepted format is the one that Massif's own `ms_print` accepts. A tree goes from the
//! functions that allocate to their callers. The bytes of a node include the bytes of all its
//! callers. The bytes that its callers do not account for belong to the node itself. Valgrind's
//! `--xtree-memory` writes the same format, but its snapshots are different measures instead of
//! moments.

mod snapshot;

use crate::error::{FormatError, shortened};
use crate::figures::value;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, PartSelector, ProfileReading};
use crate::tally::SampleTally;
use crate::texts::TextTable;
use crate::valgrind_frame::ValgrindStacks;
use snapshot::MassifSnapshot;

pub(crate) fn sniff(head: &[u8]) -> bool {
    let mut lines = head.split(|&b| b == b'\n').map(<[u8]>::trim_ascii);
    match lines.find(|line| !is_aside(line)) {
        Some(line) if line.starts_with(b"desc:") => memchr::memmem::find(head, b"\ncmd:").is_some(),
        Some(line) if line.starts_with(b"cmd:") => {
            memchr::memmem::find(head, b"\ntime_unit:").is_some()
        }
        // Such a file remains when a user cuts off the first lines.
        Some(line) => line.starts_with(b"snapshot=") && head.starts_with(b"#-----------"),
        None => false,
    }
}

/// Whether a line is empty or a comment. `ms_print` skips such lines anywhere. The lines around
/// `snapshot=` are comments.
fn is_aside(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.is_empty() || line.starts_with(b"#")
}

/// Goes to the next line that is neither empty nor a comment. Returns false at the end of the file.
fn advance(lines: &mut LineReader<'_>) -> Result<bool, FormatError> {
    while lines.advance()? {
        if !is_aside(lines.line()) {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    let mut file = MassifFile::default();
    let mut frames = TextTable::default();
    let mut chosen: Option<MassifSnapshot> = None;
    while advance(lines)? {
        if lines.line().starts_with(b"snapshot=") {
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
        Some(snapshot) => file.profile(&snapshot, &frames, options),
        None if file.snapshots == 0 => Err(lines.ended("snapshot=, where a snapshot begins")),
        None => Err(file.no_part(options.part)),
    }
}

/// Whether a snapshot should replace the snapshot that was chosen so far.
fn is_chosen(
    part: Option<PartSelector>,
    new: &MassifSnapshot,
    old: Option<&MassifSnapshot>,
) -> bool {
    match part {
        Some(PartSelector::Number(number)) => new.number == number,
        Some(PartSelector::Last) => true,
        // Measures are not moments. The first measure is memory in use.
        None if new.measure().is_some() => old.is_none(),
        // Massif marks the peak. If no snapshot is marked, the largest snapshot with stacks is the
        // best choice.
        Some(PartSelector::Peak) | None => old.is_none_or(|old| {
            (new.is_peak, new.has_tree(), new.total()) > (old.is_peak, old.has_tree(), old.total())
        }),
    }
}

/// Facts about a file, other than the snapshot that is read.
#[derive(Default)]
struct MassifFile {
    options: String,
    command: String,
    time_unit: String,
    snapshots: u64,
    /// Whether any snapshot has heap memory. With `--heap=no`, none has.
    has_heap: bool,
    first: u64,
    last: u64,
    /// Numbers of the snapshots with trees, as text.
    detailed: String,
}

impl MassifFile {
    fn header(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let text = lines.text();
        let (field, rest) = match text.split_once(':') {
            Some(("desc", rest)) => (&mut self.options, rest),
            Some(("cmd", rest)) => (&mut self.command, rest),
            Some(("time_unit", rest)) => (&mut self.time_unit, rest),
            _ => return Err(lines.wrong("desc:, cmd:, time_unit: or snapshot=")),
        };
        // Massif may write its options in several lines.
        if !field.is_empty() {
            field.push(' ');
        }
        field.push_str(rest.trim());
        Ok(())
    }

    fn count(&mut self, snapshot: &MassifSnapshot) {
        /// Maximum length of the list of snapshots, in bytes. A longer list does not help the user.
        const MAX_LIST_BYTES: usize = 400;
        if self.snapshots == 0 {
            self.first = snapshot.number;
        }
        self.snapshots += 1;
        self.has_heap |= snapshot.heap != 0;
        self.last = snapshot.number;
        if snapshot.has_tree() && self.detailed.len() < MAX_LIST_BYTES {
            let comma = if self.detailed.is_empty() { "" } else { ", " };
            self.detailed
                .push_str(&format!("{comma}{}", snapshot.number));
            if snapshot.is_peak {
                self.detailed.push_str(" (peak)");
            }
            if self.detailed.len() >= MAX_LIST_BYTES {
                self.detailed.push_str(", …");
            }
        }
    }

    fn no_part(&self, part: Option<PartSelector>) -> FormatError {
        let asked = part.map_or(String::new(), |part| format!("snapshot {part}"));
        let present = format!("{} to {}, and peak and last", self.first, self.last);
        FormatError::NoPart { asked, present }
    }

    fn profile(
        &self,
        snapshot: &MassifSnapshot,
        frames: &TextTable,
        options: &FormatReadOptions,
    ) -> Result<ProfileReading, FormatError> {
        let measure = snapshot.measure();
        let types = match measure {
            Some(measure) => vec![measure],
            None => vec![("total_space", "bytes"), ("inuse_space", "bytes")],
        };
        let mut tally = SampleTally::new(&types, options);
        let none = tally.text_label_set("", "");
        let mut stacks = ValgrindStacks::new(frames);
        snapshot.own_bytes(|path, bytes| {
            let stack = stacks.locations(&mut tally, path)?;
            // The stack is borrowed from `stacks`, so no copy is needed.
            let values = [bytes; 2];
            tally.add(stack, none, &values[..types.len()]).map(|_| ())
        })?;
        if measure.is_none() {
            for (name, bytes) in [
                ("(heap administration)", snapshot.extra),
                ("(stacks)", snapshot.stacks),
            ] {
                let stack = [tally.named_location(name)?];
                tally.add(&stack, none, &[bytes, 0])?;
            }
            if !self.has_heap {
                let shown = tally.builder.text("total_space");
                tally.builder.profile.default_sample_type = shown;
            }
        }
        if !self.command.is_empty() {
            tally.comment(&format!("command: {}", self.command));
        }
        if !self.options.is_empty() {
            tally.comment(&format!("options: {}", self.options));
        }
        tally.comment(&self.which(snapshot));
        Ok(ProfileReading::new(
            ProfileFormat::Massif,
            "none, Massif measures every block",
            tally.finish(),
        ))
    }

    /// Describes which snapshot was read, and which other snapshots the file has.
    fn which(&self, snapshot: &MassifSnapshot) -> String {
        let peak = if snapshot.is_peak { " (peak)" } else { "" };
        let detailed = match self.detailed.as_str() {
            "" => "none has stacks".to_string(),
            numbers => format!("with stacks: {numbers}"),
        };
        format!(
            "snapshot: {}{peak} at {} {}; the file has {} to {}, {detailed}; choose another as \
             FILE#N",
            snapshot.number, snapshot.time, self.time_unit, self.first, self.last
        )
    }
}

/// Returns the value of the next line, which is `key=value`.
fn field<'l>(lines: &'l mut LineReader<'_>, key: &'static str) -> Result<&'l [u8], FormatError> {
    match advance(lines)? {
        true => current_value(lines, key),
        false => Err(lines.ended(format!("{key}="))),
    }
}

/// Returns the value of the current line, which is `key=value`.
fn current_value<'l>(
    lines: &'l LineReader<'_>,
    key: &'static str,
) -> Result<&'l [u8], FormatError> {
    let value = lines
        .line()
        .strip_prefix(key.as_bytes())
        .and_then(|rest| rest.strip_prefix(b"="));
    let value = value.ok_or_else(|| lines.wrong(format!("{key}=")))?;
    Ok(value.trim_ascii_end())
}

/// Returns the bytes of the next line, which is `key=bytes`.
fn bytes(lines: &mut LineReader<'_>, key: &'static str) -> Result<i64, FormatError> {
    let text = field(lines, key)?.to_vec();
    let bytes = value(&text).filter(|&bytes| bytes >= 0);
    bytes.ok_or_else(|| {
        lines.wrong_part(format!("a number of bytes after {key}="), shortened(&text))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile_text::{read, read_with, samples, types};

    fn snapshot(number: u64, heap: i64, tree: &str) -> String {
        format!(
            "#-----------\nsnapshot={number}\n#-----------\ntime={number}.5\nmem_heap_B={heap}\n\
             mem_heap_extra_B=8\nmem_stacks_B=16\nheap_tree={tree}"
        )
    }

    const HEAD: &str = "desc: --stacks=yes\ncmd: ./app\ntime_unit: i\n";

    #[test]
    fn a_tree_becomes_stacks() {
        let tree = "peak\n\
            n3: 100 (heap allocation functions) malloc/new/new[], --alloc-fns, etc.\n \
            n2: 70 0x10: alloc (a.c:1)\n  \
             n0: 40 0x20: main (m.c:2)\n  \
             n1: 30 0x20: inlined (m.h:7)\n   \
              n0: 25 0x20: main (m.c:3)\n \
            n0: 20 0x30: other (in /lib/x.so)\n \
            n0: 5 in 2 places, all below massif's threshold (1.00%)\n";
        let profile = read(&[HEAD, &snapshot(3, 103, tree)].concat());
        assert_eq!(types(&profile), ["total_space/bytes", "inuse_space/bytes"]);
        assert_eq!(
            samples(&profile),
            [
                "main@m.c:2;alloc@a.c:1 40 40",
                // The bytes that callers do not account for belong to the node itself.
                "inlined@m.h:7;alloc@a.c:1 5 5",
                "main@m.c:3>>inlined@m.h:7;alloc@a.c:1 25 25",
                "other 20 20",
                "(below massif's threshold) 5 5",
                "(not in massif's tree) 8 8",
                "(heap administration) 8 0",
                "(stacks) 16 0",
            ]
        );
    }

    #[test]
    fn the_peak_is_read_unless_another_is_asked_for() {
        let leaf = |kind: &str, bytes: i64| {
            format!("{kind}\nn1: {bytes} (heap)\n n0: {bytes} 0x1: f{bytes} (f.c:1)\n")
        };
        let text = [
            HEAD.to_string(),
            snapshot(0, 7, &leaf("detailed", 7)),
            snapshot(1, 50, "empty\n"),
            snapshot(2, 40, &leaf("peak", 40)),
            snapshot(3, 1, "empty\n"),
        ]
        .concat();
        let first = |part: Option<PartSelector>| {
            samples(&read_with(&text, FormatReadOptions::default().part(part)))[0].clone()
        };
        assert_eq!(first(None), "f40@f.c:1 40 40");
        assert_eq!(first(Some(PartSelector::Peak)), "f40@f.c:1 40 40");
        assert_eq!(first(Some(PartSelector::Number(0))), "f7@f.c:1 7 7");
        assert_eq!(
            first(Some(PartSelector::Last)),
            "(no stacks in this snapshot) 1 1"
        );
        // Without a marked snapshot, the largest one with a tree is the peak.
        let text = text.replace("=peak", "=detailed");
        assert_eq!(samples(&read(&text))[0], "f40@f.c:1 40 40");
    }

    /// Checks that empty lines and comments are skipped anywhere, as in `ms_print`, so that files
    /// that mail programs and editors have changed can be read.
    #[test]
    fn empty_lines_and_comments_stand_anywhere() {
        let tree = "peak\nn1: 7 (heap)\n n0: 7 0x1: f (f.c:1)\n";
        let text = [HEAD, &snapshot(0, 9, tree), &snapshot(1, 3, "empty\n")].concat();
        let expected = samples(&read(&text));
        for change in [
            text.replace('\n', "\n\n"),
            text.replace('\n', " \r\n \t\r\n"),
            text.replace('\n', "\n# a comment\n"),
            text.replace("#-----------\n", ""),
            text.replace("#-----------", "#-"),
            format!("\n\n{text}\n \n\n"),
            text.replace("desc: --stacks=yes\n", ""),
        ] {
            assert_eq!(samples(&read(&change)), expected, "{change}");
        }
        let two = text.replace("cmd:", "desc: --heap=yes\ncmd:");
        let profile = read(&two);
        let options = profile.text(profile.comment[1]);
        assert_eq!(options, "options: --stacks=yes --heap=yes");
    }

    /// Checks that the sample type that is shown by default has values.
    #[test]
    fn stacks_alone_are_shown() {
        let tree = "detailed\nn0: 0 (heap allocation functions) malloc/new/new[]\n";
        let (with, without) = (snapshot(1, 5, "empty\n"), snapshot(0, 0, tree));
        for (text, shown) in [
            ([HEAD, &without].concat(), "total_space"),
            ([HEAD, &without, &with].concat(), ""),
        ] {
            for part in [None, Some(PartSelector::Number(0))] {
                let profile = read_with(&text, FormatReadOptions::default().part(part));
                assert_eq!(profile.text(profile.default_sample_type), shown);
            }
        }
        let of_stacks = read(&[HEAD, &without].concat());
        let expected = ["(heap administration) 8 0", "(stacks) 16 0"];
        assert_eq!(samples(&of_stacks), expected);
    }

    #[test]
    fn a_measure_has_its_own_type() {
        let tree = "detailed\nn1: 3 totBk : total allocated Blocks\n n0: 3 0x1: f (f.c:1)\n";
        let profile = read(&[HEAD, &snapshot(0, 3, tree)].concat());
        assert_eq!(
            (types(&profile), samples(&profile)),
            (vec!["alloc_objects/count".into()], vec!["f@f.c:1 3".into()])
        );
    }
}
