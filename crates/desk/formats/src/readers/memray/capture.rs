//! Collects a capture of memray while it is read: its records become sums of stacks, and the sums
//! become a profile.

use super::header::MemrayHeader;
use super::record::{MemrayRecord, MemrayStackSum};
use super::sites::{MemraySites, SAMPLE_TYPES};
use super::stacks::MemrayStacks;
use crate::error::FormatError;
use crate::format::ProfileFormat;
use crate::reading::{FormatReadOptions, ProfileReading};
use crate::tally::{FrameBudget, SampleTally};

/// The stacks and sums of the records that were read so far.
pub(super) struct MemrayCapture {
    has_code: bool,
    stacks: MemrayStacks,
    sites: MemraySites,
    /// Largest resident set in bytes. The next field is the last time, in milliseconds since the
    /// start.
    max_resident: u64,
    time: u64,
}

impl MemrayCapture {
    pub(super) fn new(header: &MemrayHeader) -> Self {
        Self {
            has_code: header.has_code(),
            stacks: MemrayStacks::default(),
            sites: MemraySites::default(),
            max_resident: 0,
            time: 0,
        }
    }

    /// Estimates how many bytes of memory the capture takes.
    pub(super) fn memory(&self) -> u64 {
        self.stacks.memory() + self.sites.memory()
    }

    /// Processes a record. `offset` is the position of its end in the file.
    pub(super) fn record(&mut self, record: MemrayRecord, offset: u64) -> Result<(), FormatError> {
        let wrong = |expected: &str, found: &str| FormatError::Byte {
            offset,
            defect: format!("expected {expected}, found {found}"),
        };
        let no_thread = || wrong("a thread record before its events", "none");
        match record {
            MemrayRecord::Block {
                address,
                size,
                allocator,
            } => {
                let thread = self.stacks.running().ok_or_else(no_thread)?;
                let key = (thread, self.stacks.innermost(), allocator);
                self.sites.event(key, address, size, offset)
            }
            MemrayRecord::Push(code, instruction) => {
                self.stacks.push(code, instruction)?.ok_or_else(no_thread)
            }
            MemrayRecord::Pop(count) => self
                .stacks
                .pop(count)
                .map_err(|depth| wrong(&format!("at most {depth} returns"), &format!("{count}"))),
            MemrayRecord::Thread(id) => self.stacks.run(id),
            MemrayRecord::ThreadName(name) => self.stacks.name_thread(&name).ok_or_else(no_thread),
            MemrayRecord::Resident { bytes, time } => {
                self.max_resident = self.max_resident.max(bytes);
                self.time = self.time.max(time);
                Ok(())
            }
            MemrayRecord::NumberedFrame {
                number,
                code,
                offset,
            } => self
                .stacks
                .numbered_frame(number, code, offset)?
                .ok_or_else(|| wrong("the next number of a frame", &number.to_string())),
            MemrayRecord::Stack { frame, parent } => self
                .stacks
                .numbered_call(frame, parent, self.has_code)?
                .ok_or_else(|| {
                    let known = self.stacks.calls();
                    let found = format!("frame {frame} and stack {parent}");
                    wrong(
                        &format!("a known frame, and a stack number of at most {known}"),
                        &found,
                    )
                }),
            MemrayRecord::Sum(sum) => self.sum(&sum, wrong),
            described @ (MemrayRecord::Code { .. } | MemrayRecord::Frame { .. }) => {
                self.stacks.describe(described)
            }
            MemrayRecord::Other | MemrayRecord::End { .. } => Ok(()),
        }
    }

    fn sum(
        &mut self,
        sum: &MemrayStackSum,
        wrong: impl Fn(&str, &str) -> FormatError,
    ) -> Result<(), FormatError> {
        let known = self.stacks.calls();
        let call = self.stacks.known_call(sum.stack).ok_or_else(|| {
            wrong(
                &format!("a stack number of at most {known}"),
                &sum.stack.to_string(),
            )
        })?;
        let thread = self.stacks.thread(sum.thread)?;
        self.sites.sum((thread, call, sum.allocator), sum)
    }

    /// Makes the profile. `bytes` is the size of the file.
    pub(super) fn reading(
        self,
        header: &MemrayHeader,
        is_marked: bool,
        bytes: u64,
        options: &FormatReadOptions,
    ) -> Result<ProfileReading, FormatError> {
        // A file with sums does not contain the total of all allocations.
        let first = if header.is_aggregated { 2 } else { 0 };
        let mut tally = SampleTally::new(&SAMPLE_TYPES[first..], options);
        let locations = self.stacks.locations(&mut tally, header)?;
        let no_stack = tally.named_location("(no Python stack)")?;
        let mut stack = Vec::new();
        let mut frames = FrameBudget::for_file_bytes(bytes);
        for ((thread, call, allocator), values) in self.sites.values() {
            let (name, id) = &self.stacks.thread[thread as usize];
            stack.clear();
            for frame in self.stacks.frames(call) {
                frames.count()?;
                stack.extend(locations.get(frame as usize));
            }
            if *id == header.main_thread {
                let skipped = usize::try_from(header.skipped).unwrap_or(usize::MAX);
                stack.truncate(stack.len().saturating_sub(skipped));
            }
            if stack.is_empty() {
                stack.push(no_stack);
            }
            let thread = match name.is_empty() {
                true => format!("{id:#x}"),
                false => name.clone(),
            };
            let mut labels = [
                tally.builder.text_label("allocator", allocator.name()),
                tally.builder.text_label("thread", &thread),
            ];
            let labels = tally.builder.label_set(&mut labels);
            tally.add(&stack, labels, &values[first..])?;
        }
        self.comment(&mut tally, header, is_marked);
        let shown = tally.builder.text("peak_space");
        tally.builder.profile.default_sample_type = shown;
        let unsampling = "none, memray records every block";
        Ok(ProfileReading::new(
            ProfileFormat::Memray,
            unsampling,
            tally.finish(),
        ))
    }

    fn comment(&self, tally: &mut SampleTally, header: &MemrayHeader, is_marked: bool) {
        let traced = header.has_python_blocks.map(|yes| match yes {
            true => "Python's own blocks are recorded".to_string(),
            false => "Python's own blocks are not recorded, but the memory that they are in is; \
                      memray run --trace-python-allocators records them"
                .to_string(),
        });
        let python = header.python().map(|version| format!("python: {version}"));
        let resident = (self.max_resident > 0).then(|| {
            format!(
                "peak resident set: {} bytes, including memray's own memory",
                self.max_resident
            )
        });
        let killed = (!is_marked).then(|| {
            "the file ends without memray's end mark: the program was killed, or is still running, \
             or the file is cut"
                .to_string()
        });
        let native = header.is_native.then(|| {
            "native stacks are left out; memray's own reports show them, on the machine where the \
             file was written"
                .to_string()
        });
        let sums = header.is_aggregated.then(|| {
            "memray run --aggregate leaves out what was allocated and freed again".to_string()
        });
        let all = [
            (!header.command.is_empty()).then(|| format!("command: {}", header.command)),
            Some(format!("pid: {}", header.pid)),
            python,
            Some(format!("python's allocator: {}", header.allocator)),
            traced,
            sums,
            native,
            killed,
            resident,
        ];
        for comment in all.into_iter().flatten() {
            tally.comment(&comment);
        }
        let profile = &mut tally.builder.profile;
        profile.time_nanos = header.start.saturating_mul(1_000_000);
        let last = i64::try_from(self.time).unwrap_or(0);
        let duration = header.end.saturating_sub(header.start).max(last);
        profile.duration_nanos = duration.saturating_mul(1_000_000);
    }
}
