//! Writes the samples of a profile from stacks in the ledger, like the collector's dumps.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use heapprof_abi::{
    FrameAddress, FrameNumber, MAX_NAMED_THREADS, MappingGeneration, StackNumber, ThreadNumber,
    name, stack_end, word,
};
use heapprof_memory::Memory;
use heapprof_profile::{
    EarlyEndCounts, EarlyEndReason, FrameText, Label, LabelSetIndex, LocationIndex, Mapping,
    MappingIndex, ProfileBuilder, recording_texts,
};

use crate::bounded_reads::{BoundedMemoryReader, u32_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;
use crate::stacks::{LiveScriptFrameReader, LiveStackReader};
use crate::sums::LiveStackSums;

/// Maximum number of frames of all stacks together, unless a caller sets a lower limit.
pub(crate) const MAX_FRAMES: usize = 1 << 26;

/// Code of a file that is or was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MappedCode {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) is_deleted: bool,
    pub(crate) build_id: Vec<u8>,
    /// The last generation of mappings in which the code was mapped.
    pub(crate) last: MappingGeneration,
}

/// The value of [`MappedCode::last`] for code that is mapped now.
pub(crate) const STILL_MAPPED: MappingGeneration = MappingGeneration::from_u32(u32::MAX);

/// A sample whose values are computed by the caller, not read from the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveProfileRow<'a> {
    /// Number of the sample's stack; `None` if the sample has only the frame `place`.
    pub stack: Option<StackNumber>,
    /// The only frame of a sample without a stack.
    pub place: &'a str,
    /// The text of the sample's label.
    pub kind: &'a str,
    /// The values of the sample.
    pub values: Vec<i64>,
}

pub(crate) struct LiveProfileWriter<'r, M> {
    reader: &'r BoundedMemoryReader<M>,
    pub(crate) builder: ProfileBuilder,
    stacks: LiveStackReader<'r, M>,
    frames: LiveScriptFrameReader<'r, M>,
    code: Vec<MappedCode>,
    /// The profile's index of each piece of code.
    mappings: Vec<MappingIndex>,
    /// The location of each word of a stack, by the generation of mappings and the word.
    locations: HashMap<(MappingGeneration, u64), LocationIndex, RandomState>,
    /// The label set of each thread and label text.
    labels: HashMap<(Option<ThreadNumber>, String), LabelSetIndex>,
    /// Number of frames of all samples so far.
    frames_added: usize,
    max_frames: usize,
    names: LiveThreadNames<'r>,
    /// Whether a stack had a label that can't be read from outside the interpreter.
    pub(crate) lacks_labels: bool,
    /// Counts of stacks that end before their outermost frame.
    pub(crate) early_ends: EarlyEndCounts,
}

/// The stack that was read last: its words, and the location of each word.
#[derive(Default)]
struct PreviousStack {
    generation: MappingGeneration,
    words: Vec<u64>,
    stack: Vec<LocationIndex>,
    /// A buffer for the words of the next stack.
    spare: Vec<u64>,
}

impl PreviousStack {
    /// Returns the number of the oldest frames that a stack shares with this one.
    fn count_shared_frames(&self, generation: MappingGeneration, words: &[u64]) -> usize {
        let pairs = words.iter().rev().zip(self.words.iter().rev());
        match generation == self.generation {
            true => pairs.take_while(|(a, b)| a == b).count(),
            false => 0,
        }
    }
}

/// The names of threads in the ledger, and a function for their present names in the kernel.
pub(crate) struct LiveThreadNames<'r> {
    /// The ledger's entry of each thread.
    pub(crate) recorded_names: Vec<[u8; name::LEN]>,
    now: &'r dyn Fn(u32) -> Option<String>,
}

impl<'r, M: Memory> LiveProfileWriter<'r, M> {
    /// Makes a writer of a profile with these sample types. `stacks` is the number of stacks.
    pub(crate) fn new(
        reader: &'r BoundedMemoryReader<M>,
        ledger: &LiveLedger,
        types: &[(&str, &str)],
        stacks: usize,
        code: Vec<MappedCode>,
        names: LiveThreadNames<'r>,
    ) -> Result<Self, LiveError> {
        let mut writer = Self {
            reader,
            builder: ProfileBuilder::new(types),
            stacks: LiveStackReader::new(reader, ledger, stacks)?,
            frames: LiveScriptFrameReader::new(reader, ledger)?,
            code,
            mappings: Vec::new(),
            locations: HashMap::default(),
            labels: HashMap::new(),
            frames_added: 0,
            max_frames: MAX_FRAMES,
            names,
            lacks_labels: false,
            early_ends: EarlyEndCounts::default(),
        };
        writer.add_mappings();
        Ok(writer)
    }

    /// Sets the maximum number of frames of all stacks together.
    pub(crate) fn limit_frames(&mut self, max: usize) {
        self.max_frames = max;
    }

    fn add_mappings(&mut self) {
        for code in &self.code {
            let filename =
                recording_texts::mapped_file(&code.path, code.is_deleted, &code.build_id);
            let hex = recording_texts::hex(&code.build_id);
            let mapping = Mapping {
                memory_start: code.start,
                memory_limit: code.end,
                file_offset: code.offset,
                filename: self.builder.text(&filename),
                build_id: self.builder.text(&hex),
                ..Mapping::default()
            };
            self.mappings.push(self.builder.mapping(mapping));
        }
    }

    /// Adds a sample for each stack number, with the stack's sums.
    pub(crate) fn add_samples(
        &mut self,
        sums: impl Iterator<Item = (StackNumber, LiveStackSums)>,
        width: usize,
    ) -> Result<(), LiveError> {
        let mut last = PreviousStack::default();
        for (number, sum) in sums {
            let types = [sum.allocated, sum.in_use, sum.peak, sum.temporary];
            let values = &types.as_flattened()[..width];
            if values.iter().all(|&value| value == 0) {
                continue;
            }
            let Some(thread) = self.read(number, &mut last)? else {
                continue;
            };
            self.count_end(number, &last, sum.allocated)?;
            let labels = self.label_set(thread, None);
            let samples = &mut self.builder.profile.samples;
            samples.push(last.stack.iter().copied(), values, labels);
            // The uncertainty of the peak is not known.
            let (mut sampled, mut variance) = ([0; 8], [0.0; 8]);
            for (i, known) in sum.spread.iter().enumerate() {
                sampled[2 * i..][..2].fill(known.samples);
                variance[2 * i..][..2].copy_from_slice(&known.variance);
            }
            if sampled != [0; 8] {
                let samples = &mut self.builder.profile.samples;
                let last = samples.len() - 1;
                samples.set_spread(last, &sampled[..width], &variance[..width]);
            }
        }
        Ok(())
    }

    /// Adds a sample for each row, with the row's `kind` as a label.
    pub(crate) fn add_rows(
        &mut self,
        key: &str,
        rows: &[LiveProfileRow<'_>],
    ) -> Result<(), LiveError> {
        let mut last = PreviousStack::default();
        for row in rows {
            let thread = match row.stack {
                Some(number) => self.read(number, &mut last)?,
                None => None,
            };
            let labels = self.label_set(thread.flatten(), Some((key, row.kind)));
            if thread.is_some() {
                let samples = &mut self.builder.profile.samples;
                samples.push(last.stack.iter().copied(), &row.values, labels);
            } else {
                let place = self.named_location(row.place);
                let samples = &mut self.builder.profile.samples;
                samples.push([place], &row.values, labels);
            }
        }
        Ok(())
    }

    /// Reads a stack into `last`. Returns the stack's thread, if it has one; the outer `None` means
    /// that the stack does not exist.
    fn read(
        &mut self,
        number: StackNumber,
        last: &mut PreviousStack,
    ) -> Result<Option<Option<ThreadNumber>>, LiveError> {
        let mut words = std::mem::take(&mut last.spare);
        let read = self.stacks.read(number, &mut words);
        let Some(generation) = self.reader.if_reachable(read)? else {
            return Ok(None);
        };
        let mut thread = None;
        words.retain(|&word| match word & word::KIND_MASK {
            word::THREAD => {
                thread = Some(ThreadNumber::from_u32(word as u32));
                false
            }
            word::LABEL => {
                self.lacks_labels = true;
                false
            }
            _ => true,
        });
        // Most stacks share their oldest frames with the previous one.
        let same = last.count_shared_frames(generation, &words);
        let newer = words[..words.len() - same].iter();
        let mut stack = Vec::with_capacity(words.len());
        for &word in newer {
            stack.push(self.location(generation, word)?);
        }
        stack.extend_from_slice(&last.stack[last.stack.len() - same..]);
        self.frames_added += stack.len();
        if self.frames_added > self.max_frames {
            return Err(LiveError::LedgerTooLarge);
        }
        last.generation = generation;
        last.spare = std::mem::replace(&mut last.words, words);
        last.stack = stack;
        Ok(Some(thread))
    }

    /// Counts the stack `last`, if it ends before its outermost frame.
    fn count_end(
        &mut self,
        number: StackNumber,
        last: &PreviousStack,
        allocated: [i64; 2],
    ) -> Result<(), LiveError> {
        let end = self
            .reader
            .if_reachable(self.stacks.end(number))?
            .unwrap_or(0);
        let Some(reason) = EarlyEndReason::from_number(end & stack_end::REASON_MASK) else {
            return Ok(());
        };
        let is_address = |word: &&u64| {
            !matches!(
                **word & word::KIND_MASK,
                word::FRAME | word::LABEL | word::THREAD
            )
        };
        let mut oldest = last.words.iter().rev().filter(is_address);
        let word = match (reason, end & stack_end::CALLEE_FLAG) {
            (EarlyEndReason::NoFile, _) => None,
            (_, 0) => oldest.next(),
            _ => oldest.nth(1),
        };
        self.reader.work(8 * self.code.len())?;
        let oldest = word.map(|&word| FrameAddress::from_word(word));
        let code =
            oldest.and_then(|frame| find_code(&self.code, frame.lookup_address(), last.generation));
        let known = code.map(|code| &self.code[code]);
        self.early_ends.add(code, reason, allocated, || {
            known.map_or_else(String::new, |code| {
                recording_texts::mapped_file(&code.path, code.is_deleted, &code.build_id)
            })
        });
        Ok(())
    }

    fn location(
        &mut self,
        generation: MappingGeneration,
        word: u64,
    ) -> Result<LocationIndex, LiveError> {
        let is_frame = word & word::KIND_MASK == word::FRAME || word == word::CUT;
        let of_word = match is_frame {
            true => MappingGeneration::FIRST,
            false => generation,
        };
        let key = (of_word, word);
        if let Some(&known) = self.locations.get(&key) {
            return Ok(known);
        }
        let location = match word {
            word::CUT => self.named_location(recording_texts::TRUNCATED_FRAME),
            word::UNNAMED => self.named_location(recording_texts::NAMELESS_FRAME),
            _ if is_frame => match self
                .reader
                .if_reachable(self.frames.read(FrameNumber::from_u32(word as u32)))?
                .flatten()
            {
                Some(frame) => self.builder.frame(&[FrameText {
                    name: &String::from_utf8_lossy(&frame.name),
                    filename: &String::from_utf8_lossy(&frame.file),
                    line: frame.line.into(),
                    start_line: frame.start_line.into(),
                }]),
                None => self.named_location(recording_texts::NAMELESS_FRAME),
            },
            _ => {
                let address = FrameAddress::from_word(word).lookup_address();
                // The code may be searched twice.
                self.reader.work(8 * self.code.len())?;
                let mapping = find_code(&self.code, address, generation);
                let mapping = mapping.map(|i| self.mappings[i]);
                self.builder.location(mapping, address, false, &[])
            }
        };
        self.locations.insert(key, location);
        Ok(location)
    }

    fn named_location(&mut self, name: &str) -> LocationIndex {
        self.builder.frame(&[FrameText {
            name,
            ..FrameText::default()
        }])
    }

    /// Returns the label set for a stack of a thread. `other` is the key and the text of one more
    /// label.
    fn label_set(
        &mut self,
        thread: Option<ThreadNumber>,
        other: Option<(&str, &str)>,
    ) -> LabelSetIndex {
        let key = (
            thread,
            other.map_or_else(String::new, |(_, text)| text.to_string()),
        );
        if let Some(&known) = self.labels.get(&key) {
            return known;
        }
        let mut labels: Vec<Label> = Vec::new();
        if let Some(number) = thread {
            let (name, id, generation) = self.names.describe_thread(number);
            labels.push(
                self.builder
                    .text_label(recording_texts::THREAD_LABEL, &name),
            );
            let mut add = |key, value: u32| {
                labels.push(self.builder.number_label(key, value.into(), ""));
            };
            id.into_iter()
                .for_each(|id| add(recording_texts::TID_LABEL, id));
            if generation != 0 {
                add(recording_texts::GENERATION_LABEL, generation.into());
            }
        }
        labels.extend(other.map(|(key, text)| self.builder.text_label(key, text)));
        let set = self.builder.label_set(&mut labels);
        self.labels.insert(key, set);
        set
    }
}

impl<'r> LiveThreadNames<'r> {
    pub(crate) fn read<M: Memory>(
        reader: &BoundedMemoryReader<M>,
        ledger: &LiveLedger,
        now: &'r dyn Fn(u32) -> Option<String>,
    ) -> Result<Self, LiveError> {
        let count = reader.u32(ledger.names)?.min(MAX_NAMED_THREADS) as usize;
        let mut kept = vec![[0; name::LEN]; count];
        reader.elements(ledger.name, count, |i, bytes| {
            kept[i] = *bytes;
            Ok(())
        })?;
        Ok(Self {
            recorded_names: kept,
            now,
        })
    }

    /// Returns a thread's name, its number in the kernel, and the generation of its process.
    pub(crate) fn describe_thread(&self, number: ThreadNumber) -> (String, Option<u32>, u8) {
        let Some(bytes) = number
            .to_index()
            .and_then(|index| self.recorded_names.get(index))
        else {
            return (recording_texts::OTHER_THREADS.to_string(), None, 0);
        };
        let id = Some(u32_at(bytes, name::ID)).filter(|&id| id != 0);
        let is_gone = bytes[name::IS_GONE] != 0;
        let now = id.filter(|_| !is_gone).and_then(self.now);
        let kept = || recording_texts::thread_name(&bytes[name::NAME..]);
        (now.unwrap_or_else(kept), id, bytes[name::GENERATION])
    }
}

/// Finds the code that was mapped at `address` in `generation`. This is the first code at that
/// address which was still mapped in the generation, because code that replaced other code is of a
/// later generation. If there is none, the last code at that address is returned.
fn find_code(code: &[MappedCode], address: u64, generation: MappingGeneration) -> Option<usize> {
    let holds = |code: &MappedCode| code.start <= address && address < code.end;
    let then = code
        .iter()
        .position(|code| holds(code) && generation <= code.last);
    then.or_else(|| code.iter().rposition(holds))
}
