//! Writes the samples of a profile from stacks in the ledger, like the collector's dumps.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use heapprof_abi::{
    FrameNumber, FrameWord, MAX_NAMED_THREADS, MappingGeneration, StackNumber, ThreadNumber, name,
    stack_end,
};
use heapprof_memory::Memory;
use heapprof_profile::recording::{
    LedgerSource, RecordedCode, RecordedFrame, RecordedLocations, RecordedThread,
};
use heapprof_profile::{
    EarlyEndCounts, FrameText, Label, LabelSetIndex, LocationIndex, ProfileBuilder, recording_texts,
};

use crate::bounded_reads::{BoundedMemoryReader, u32_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;
use crate::stacks::{LiveScriptFrameReader, LiveStackReader};
use crate::sums::LiveStackSums;

/// Maximum number of frames of all stacks together, unless a caller sets a lower limit.
pub(crate) const MAX_FRAMES: usize = 1 << 26;

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

/// A ledger that is read from outside, as the source of the frames in a profile.
struct LiveLedgerSource<'r, M> {
    reader: &'r BoundedMemoryReader<M>,
    code: RecordedCode<'static>,
    frames: LiveScriptFrameReader<'r, M>,
}

impl<M: Memory> LedgerSource for LiveLedgerSource<'_, M> {
    type Error = LiveError;

    fn code(&self) -> &RecordedCode<'_> {
        &self.code
    }

    fn begin_search(&self) -> Result<(), LiveError> {
        // The mappings may be searched twice.
        self.reader.work(8 * self.code.mappings.len())
    }

    fn script_frame(&self, number: FrameNumber) -> Result<Option<RecordedFrame<'_>>, LiveError> {
        let read = self.reader.if_reachable(self.frames.read(number))?;
        Ok(read.flatten())
    }
}

pub(crate) struct LiveProfileWriter<'r, M> {
    pub(crate) builder: ProfileBuilder,
    stacks: LiveStackReader<'r, M>,
    source: LiveLedgerSource<'r, M>,
    locations: RecordedLocations<RandomState>,
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
    /// Returns how many oldest frames this stack has in common with another stack. `generation` and
    /// `words` describe the other stack. The result is 0 if the generations differ.
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
    /// The ledger's entry for the name of each thread.
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
        code: RecordedCode<'static>,
        names: LiveThreadNames<'r>,
    ) -> Result<Self, LiveError> {
        let mut builder = ProfileBuilder::new(types);
        let locations = RecordedLocations::new(&mut builder, &code);
        let stacks = LiveStackReader::new(reader, ledger, stacks)?;
        let source = LiveLedgerSource {
            reader,
            code,
            frames: LiveScriptFrameReader::new(reader, ledger)?,
        };
        Ok(Self {
            builder,
            stacks,
            source,
            locations,
            labels: HashMap::new(),
            frames_added: 0,
            max_frames: MAX_FRAMES,
            names,
            lacks_labels: false,
            early_ends: EarlyEndCounts::default(),
        })
    }

    /// Sets the maximum number of frames of all stacks together.
    pub(crate) fn limit_frames(&mut self, max: usize) {
        self.max_frames = max;
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
                let place = self.builder.frame(&[FrameText {
                    name: row.place,
                    ..FrameText::default()
                }]);
                let samples = &mut self.builder.profile.samples;
                samples.push([place], &row.values, labels);
            }
        }
        Ok(())
    }

    /// Reads a stack into `last`. Returns the stack's thread, if the stack has one. The outer
    /// `None` means that the stack does not exist.
    fn read(
        &mut self,
        number: StackNumber,
        last: &mut PreviousStack,
    ) -> Result<Option<Option<ThreadNumber>>, LiveError> {
        let mut words = std::mem::take(&mut last.spare);
        let read = self.stacks.read(number, &mut words);
        let Some(generation) = self.source.reader.if_reachable(read)? else {
            return Ok(None);
        };
        let mut thread = None;
        words.retain(|&word| match FrameWord::from_word(word) {
            FrameWord::Thread(number) => {
                thread = Some(number);
                false
            }
            FrameWord::Label(..) => {
                self.lacks_labels = true;
                false
            }
            FrameWord::Address(_) | FrameWord::Frame(_) => true,
        });
        // Most stacks share their oldest frames with the previous one.
        let same = last.count_shared_frames(generation, &words);
        let newer = words[..words.len() - same].iter();
        let mut stack = Vec::with_capacity(words.len());
        for &word in newer {
            let Self {
                locations,
                builder,
                source,
                ..
            } = self;
            stack.push(locations.find_or_add(builder, source, generation, word)?);
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
            .source
            .reader
            .if_reachable(self.stacks.end(number))?
            .unwrap_or(0);
        if end & stack_end::REASON_MASK != stack_end::OUTERMOST {
            self.source.begin_search()?;
            let (code, generation) = (&self.source.code, last.generation);
            self.early_ends
                .add_stack(code, end, generation, &last.words, allocated);
        }
        Ok(())
    }

    /// Returns the label set for a sample of a thread. `other` is the key and the text of one more
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
            let thread = self.names.describe_thread(number);
            thread.add_labels(&mut self.builder, &mut labels);
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

    /// Returns the name, the kernel's number and the generation of a thread, as profiles show them.
    pub(crate) fn describe_thread(&self, number: ThreadNumber) -> RecordedThread {
        let Some(bytes) = number
            .to_index()
            .and_then(|index| self.recorded_names.get(index))
        else {
            return RecordedThread::others();
        };
        let id = Some(u32_at(bytes, name::ID)).filter(|&id| id != 0);
        let is_gone = bytes[name::IS_GONE] != 0;
        let now = id.filter(|_| !is_gone).and_then(self.now);
        let kept = || recording_texts::thread_name(&bytes[name::NAME..]);
        RecordedThread {
            name: now.unwrap_or_else(kept),
            id,
            generation: bytes[name::GENERATION],
        }
    }
}
