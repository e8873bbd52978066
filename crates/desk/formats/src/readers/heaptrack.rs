//! Reads data of heaptrack, as `heaptrack_interpret` leaves it in `heaptrack.*.zst` or `.gz`.
//!
//! A line is an entry of one of four tables (texts, instructions, traces, allocations) or an event.
//! Numbers are hexadecimal. Allocations are numbered from 0, all other entries from 1. The format
//! is described by heaptrack's `accumulatedtracedata.cpp`.
//!
//! The sums equal the sums of `heaptrack_print`, which goes through the file twice to find the
//! moment when the heap was largest. This reader goes through the file once. For each trace, it
//! stores the memory in use when the heap was largest so far, and replaces it when the heap is
//! larger again.

mod sites;

use std::borrow::Cow;

use heapprof_profile::{Error as ProfileError, LocationIndex};

use crate::cut_frames;
use crate::error::{FormatError, shortened};
use crate::figures::hex;
use crate::format::ProfileFormat;
use crate::lines::LineReader;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::tally::{FrameBudget, FrameModule, SampleTally, TextFrame};
use crate::texts::TextTable;
use sites::{HeaptrackAllocation, HeaptrackSites};

/// Newest version of the format that can be read. heaptrack 1.4 and 1.5 write it.
const NEWEST_VERSION: u64 = 3;

pub(crate) fn sniff(head: &[u8]) -> bool {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let mut words = line.trim_ascii_end().split(|&b| b == b' ');
    words.next() == Some(b"v")
        && words.next().and_then(hex).is_some_and(|v| v >= 0x1_0000)
        && words.all(|word| hex(word).is_some())
}

pub(crate) fn read(
    lines: &mut LineReader<'_>,
    options: &FormatReadOptions,
) -> Result<ProfileReading, FormatError> {
    /// Number of bytes that are read between two checks of the memory limit.
    const MEMORY_CHECK_INTERVAL: u64 = 1 << 20;
    let limit = options.max_memory();
    let mut file = HeaptrackFile::default();
    let mut look_at = MEMORY_CHECK_INTERVAL;
    while lines.advance()? {
        file.line(lines)?;
        if lines.bytes() >= look_at {
            look_at = lines.bytes() + MEMORY_CHECK_INTERVAL;
            if file.memory() > limit {
                return Err(ProfileError::TooMuchMemory { limit }.into());
            }
        }
    }
    file.reading(lines, options)
}

#[derive(Default)]
struct HeaptrackFile {
    version: u64,
    texts: TextTable,
    instructions: Vec<HeaptrackInstruction>,
    /// The functions of all instructions, in the order of the instructions.
    frames: Vec<HeaptrackFunction>,
    /// The numbers of the instruction and of the parent of each trace, both from 1. A root has the
    /// parent 0.
    traces: Vec<(u32, u32)>,
    sites: HeaptrackSites,
    command: String,
    is_attached: bool,
    /// Time of the last time stamp, in milliseconds since the start.
    time: i64,
    page_size: i64,
    /// Size of the largest resident set, in pages.
    max_resident: i64,
}

struct HeaptrackInstruction {
    address: u64,
    module: u32,
    /// End of the instruction's functions in `frames`.
    end: usize,
}

/// A function: the numbers of its name and file in the texts, and a line number.
#[derive(Clone, Copy)]
struct HeaptrackFunction {
    name: u32,
    file: u32,
    line: u32,
}

impl HeaptrackFile {
    /// Estimates how many bytes the tables take.
    fn memory(&self) -> u64 {
        let tables = size_of_val(&self.instructions[..])
            + size_of_val(&self.frames[..])
            + size_of_val(&self.traces[..]);
        tables as u64 + self.texts.memory() + self.sites.memory()
    }

    fn line(&mut self, lines: &LineReader<'_>) -> Result<(), FormatError> {
        let line = lines.line();
        let rest = line.get(2..).unwrap_or_default();
        match line.first() {
            None | Some(b'#') => Ok(()),
            Some(b'v') => self.version(lines, rest),
            Some(b's') => self.text(lines, rest),
            Some(b'i') => self.instruction(lines, rest),
            Some(b't') => {
                let [instruction, parent] = numbers(lines, rest, "t INSTRUCTION PARENT")?;
                let instruction = index(
                    lines,
                    instruction,
                    self.instructions.len(),
                    "an instruction",
                )?;
                let parent = index(lines, parent, self.traces.len(), "an earlier trace")?;
                self.traces.push((instruction, parent));
                Ok(())
            }
            Some(b'a') => {
                let [size, trace] = numbers(lines, rest, "`a SIZE TRACE`")?;
                let allocation = self.allocation(lines, size, trace)?;
                self.sites.define(allocation)
            }
            Some(b'+') if self.version == 0 => {
                let [size, trace, pointer] = numbers(lines, rest, "+ SIZE TRACE POINTER")?;
                let allocation = self.allocation(lines, size, trace)?;
                self.sites.count_allocation_at(pointer, allocation)
            }
            Some(b'-') if self.version == 0 => {
                let [pointer] = numbers(lines, rest, "- POINTER")?;
                self.sites.count_free_at(pointer)
            }
            Some(sign @ (b'+' | b'-')) => {
                let [number] = numbers(lines, rest, "the number of an allocation")?;
                let known = self.sites.definitions();
                let number = usize::try_from(number).ok().filter(|&n| n < known);
                let number = number.ok_or_else(|| {
                    let expected = format!("an allocation number below {known}");
                    lines.wrong_part(expected, shortened(rest))
                })?;
                match sign {
                    b'+' => self.sites.count_allocation(number),
                    _ => self.sites.count_free(number),
                }
            }
            Some(b'c') => {
                let [time] = numbers(lines, rest, "c MILLISECONDS")?;
                self.time = i64::try_from(time).unwrap_or(i64::MAX);
                Ok(())
            }
            Some(b'R') => {
                let [pages] = numbers(lines, rest, "R PAGES")?;
                let pages = i64::try_from(pages).unwrap_or(i64::MAX);
                self.max_resident = self.max_resident.max(pages);
                Ok(())
            }
            Some(b'I') => {
                let [size, _pages] = numbers(lines, rest, "I PAGE_SIZE PAGES")?;
                self.page_size = i64::try_from(size).unwrap_or(i64::MAX);
                Ok(())
            }
            Some(b'X') => {
                self.command = String::from_utf8_lossy(rest).into_owned();
                Ok(())
            }
            Some(b'A') => {
                self.is_attached = true;
                Ok(())
            }
            // This is a suppression that the program contains. heaptrack applies it only to the
            // output that it prints.
            Some(b'S') => Ok(()),
            Some(b'x' | b'm') => Err(lines.wrong(
                "interpreted data; convert the raw data first, with heaptrack_interpret from \
                 heaptrack's libexec folder: zstd -dc FILE | heaptrack_interpret > OUT",
            )),
            Some(_) => {
                Err(lines.wrong("a heaptrack line, which begins with one of vXIstia+-cRAS#"))
            }
        }
    }

    fn version(&mut self, lines: &LineReader<'_>, rest: &[u8]) -> Result<(), FormatError> {
        let mut words = rest.split(|&b| b == b' ').map(hex);
        let heaptrack = words.next().flatten();
        let format = words.next();
        self.version = match (heaptrack, format) {
            // Versions before heaptrack 1.0 wrote only one number. This number means version 1 of
            // the format.
            (Some(0x1_0200), None) => 1,
            (Some(_), None) => 0,
            (Some(_), Some(Some(version))) if version <= NEWEST_VERSION => version,
            _ => {
                return Err(lines.wrong(format!(
                    "v HEAPTRACK FORMAT with a format of at most {NEWEST_VERSION}"
                )));
            }
        };
        Ok(())
    }

    fn text(&mut self, lines: &LineReader<'_>, rest: &[u8]) -> Result<(), FormatError> {
        let text = match self.version {
            ..=2 => rest,
            _ => {
                let sized = rest.iter().position(|&b| b == b' ').and_then(|space| {
                    let length = usize::try_from(hex(&rest[..space])?).ok()?;
                    rest.get(space + 1..)?.get(..length)
                });
                // An empty text has no space after its length.
                let sized = sized.or((rest == b"0").then_some(&[]));
                sized.ok_or_else(|| lines.wrong("s LENGTH TEXT"))?
            }
        };
        self.texts.push(&String::from_utf8_lossy(text));
        Ok(())
    }

    fn instruction(&mut self, lines: &LineReader<'_>, rest: &[u8]) -> Result<(), FormatError> {
        const EXPECTED_INSTRUCTION: &str =
            "i ADDRESS MODULE and FUNCTION FILE LINE of each function";
        let mut words = rest.split(|&b| b == b' ').map(hex);
        let mut word = || {
            words
                .next()
                .map(|word| word.ok_or_else(|| lines.wrong(EXPECTED_INSTRUCTION)))
        };
        let texts = self.texts.len();
        let text = |number| index(lines, number, texts, "a string");
        let address = word().unwrap_or_else(|| Err(lines.wrong(EXPECTED_INSTRUCTION)))?;
        let module = word().transpose()?.map_or(Ok(0), text)?;
        while let Some(name) = word().transpose()? {
            let name = text(name)?;
            let file = word().transpose()?.map_or(Ok(0), text)?;
            let line = word().transpose()?.unwrap_or(0);
            self.frames.push(HeaptrackFunction {
                name,
                file,
                line: u32::try_from(line).map_err(|_| lines.wrong(EXPECTED_INSTRUCTION))?,
            });
        }
        self.instructions.push(HeaptrackInstruction {
            address,
            module,
            end: self.frames.len(),
        });
        Ok(())
    }

    fn allocation(
        &self,
        lines: &LineReader<'_>,
        size: u64,
        trace: u64,
    ) -> Result<HeaptrackAllocation, FormatError> {
        let size =
            i64::try_from(size).map_err(|_| lines.wrong("the size of a block below 2^63"))?;
        let trace = index(lines, trace, self.traces.len(), "a trace")?;
        Ok(HeaptrackAllocation { size, trace })
    }

    fn reading(
        self,
        lines: &LineReader<'_>,
        options: &FormatReadOptions,
    ) -> Result<ProfileReading, FormatError> {
        let mut tally = SampleTally::new(&sites::SAMPLE_TYPES, options);
        cut_frames::add_tracer_frames(&mut tally.builder.profile);
        let none = tally.text_label_set("", "");
        let locations = self.locations(&mut tally)?;
        let mut stack = Vec::new();
        let mut frames = FrameBudget::for_file_bytes(lines.bytes());
        for (trace, values) in self.sites.values() {
            stack.clear();
            let mut next = trace;
            // A parent comes before its children, so this loop ends.
            while let Some(&(instruction, parent)) = entry(&self.traces, next) {
                frames.count()?;
                stack.extend(entry(&locations, instruction));
                next = parent;
            }
            tally.add(&stack, none, &values)?;
        }
        let resident = self.max_resident.saturating_mul(self.page_size);
        let comments = [
            (!self.command.is_empty()).then(|| format!("command: {}", self.command)),
            self.is_attached
                .then(|| "heaptrack was attached to the running program".to_string()),
            (resident > 0).then(|| {
                format!(
                    "peak resident set: {resident} bytes, including heaptrack's own \
                                  memory"
                )
            }),
        ];
        for comment in comments.into_iter().flatten() {
            tally.comment(&comment);
        }
        tally.builder.profile.duration_nanos = self.time.saturating_mul(1_000_000);
        // The program may go on after heaptrack has left it.
        if !self.is_attached {
            tally.builder.profile.set_default_of_finished_program();
        }
        let unsampling: Cow<'static, str> = "none, heaptrack records every block".into();
        Ok(ProfileReading::new(
            ProfileFormat::Heaptrack,
            unsampling,
            tally.finish(),
        ))
    }

    /// Makes a location for each instruction, and returns them in order.
    fn locations(&self, tally: &mut SampleTally) -> Result<Vec<LocationIndex>, FormatError> {
        let text = |number: u32| {
            number
                .checked_sub(1)
                .and_then(|n| self.texts.get(n))
                .unwrap_or("")
        };
        let mut start = 0;
        let locations = self.instructions.iter().map(|instruction| {
            let frame = TextFrame {
                address: instruction.address,
                module: FrameModule {
                    name: text(instruction.module),
                    ..FrameModule::default()
                },
                ..TextFrame::default()
            };
            let functions = &self.frames[start..instruction.end];
            start = instruction.end;
            let mut frames: Vec<TextFrame<'_>> = functions
                .iter()
                .map(|function| TextFrame {
                    name: text(function.name),
                    file: text(function.file),
                    line: i64::from(function.line),
                    ..frame
                })
                .collect();
            if frames.is_empty() {
                frames.push(frame);
            }
            tally.location(&frames)
        });
        locations.collect()
    }
}

/// Returns the entry with a number from 1; `None` if the table has no such entry.
fn entry<T>(table: &[T], number: u32) -> Option<&T> {
    table.get((number as usize).checked_sub(1)?)
}

/// Checks that a number is 0 or the number of an entry in a table.
fn index(
    lines: &LineReader<'_>,
    number: u64,
    entries: usize,
    what: &str,
) -> Result<u32, FormatError> {
    let index = u32::try_from(number)
        .ok()
        .filter(|&n| n as usize <= entries);
    index.ok_or_else(|| {
        let expected = format!("the number of {what}, at most {entries:x}");
        lines.wrong_part(expected, format!("{number:x}"))
    })
}

/// Reads the first `N` hexadecimal numbers of a line. More numbers may follow.
fn numbers<const N: usize>(
    lines: &LineReader<'_>,
    rest: &[u8],
    form: &'static str,
) -> Result<[u64; N], FormatError> {
    let mut words = rest.split(|&b| b == b' ').map(hex);
    let mut numbers = [0; N];
    for number in &mut numbers {
        *number = words.next().flatten().ok_or_else(|| lines.wrong(form))?;
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use crate::profile_text::{read, samples};

    /// Log of a program whose `main` allocates 16 bytes twice in an inlined function, and frees one
    /// block.
    const EVENTS: &str = "i 20 1 2 3 7 4 3 8\ni 30 1\nt 2 0\nt 1 1\n";

    #[test]
    fn all_versions_of_the_format() {
        let sized = ["s 8 /bin/app", "s 5 inner", "s 3 a.c", "s 4 main"];
        let plain = ["s /bin/app", "s inner", "s a.c", "s main"];
        let table = [
            ("v 10400 3", sized, "a 10 2\n+ 0\n+ 0\n- 0\nc 5\n"),
            ("v 10100 2", plain, "a 10 2\n+ 0\n+ 0\n- 0\nc 5\n"),
            ("v 10200", plain, "a 10 2\n+ 0\n+ 0\n- 0\nc 5\n"),
            (
                "v 10000",
                plain,
                "+ 10 2 ff00\n+ 10 2 ff10\n- ff10\n- 1234\nc 5\n",
            ),
        ];
        for (version, texts, events) in table {
            let text = format!("{version}\nX ./app\n{}\n{EVENTS}{events}", texts.join("\n"));
            let profile = read(&text);
            let expected = "0x30@/bin/app;main@a.c:8>>inner@a.c:7 2 32 1 2 32 1 16";
            assert_eq!(samples(&profile), [expected], "{version}");
            assert_eq!(profile.duration_nanos, 5_000_000);
        }
    }
}
