//! Makes the profile of the present moment from the tables, while the program goes on.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{BuildHasherDefault, Hasher};
use std::io::{self, Write};
use std::sync::atomic::Ordering;

use heapprof_abi::{FrameNumber, FrameWord, MappingGeneration, StackNumber, ThreadNumber};
use heapprof_profile::recording::{
    LedgerSource, RecordedCode, RecordedFrame, RecordedLocations, RecordedThread, RecordingHeader,
};
use heapprof_profile::{
    HookedAllocator, Label, LabelSetIndex, ProfileBuilder, QuickSample, SizeHistogram,
    encode_samples_quickly, recording_texts,
};

use heapprof_platform::{status, sys};

use crate::code::mappings::CodeScanOutcome;
use crate::engine::Engine;
use crate::options::FrameChoice;
use crate::process::EngineProcess;
use crate::reason::DumpReason;
use crate::recording::account::account;
use crate::recording::code::to_recorded;
use crate::recording::early_ends::early_ends;
use crate::recording::notes::notes;
use crate::recording::pools::{self, PoolPartSums};
use crate::recording::sums::{StackSums, sums_and_sizes};
use crate::recording::values::{ValueOrigin, ValueRows};
use crate::stack::provider::ProviderReport;
use crate::tables::spread;
use crate::tables::stacks::stack_reader::ExpandedStack;
use crate::thread::names;

/// Returns how many bytes a dump may take at most: sums by stack, locations by frame, text, gzip.
pub(super) fn memory_needed(engine: &Engine) -> usize {
    let mappings = engine.code.mappings.memory_needed(&engine.process);
    mappings.saturating_add(memory_without_mappings(engine))
}

/// Returns how many bytes a dump may take at most, without the bytes for mappings.
fn memory_without_mappings(engine: &Engine) -> usize {
    let (code, stacks) = (&engine.code, &engine.ledger.stacks);
    // A location is an address in a generation of mappings, and every address has its rule.
    let scripts = &engine.scripts.names;
    let generations = code.mappings.generation().to_u32() as usize + 1;
    let locations = code
        .rules
        .len()
        .saturating_mul(generations)
        .min(stacks.frames());
    let stacks = stacks.len() as usize * (96 + 2 * size_of::<spread::SpreadSum>());
    // A frame of an interpreter has its texts twice: as texts, and as the key of its function.
    let named = scripts.len() as usize * 512 + 2 * scripts.bytes();
    // A scan of lines keeps and compares numbers of each stack.
    let lines = match engine.dumping.due.following.is_on() {
        true => engine.ledger.stacks.len() as usize * 192,
        false => 0,
    };
    let threads = engine.threads.names.len() as usize * 1024;
    // The history exists as moments, as bytes and as text.
    (8 << 18) + stacks + named + lines + threads + locations.saturating_mul(288)
}

/// Records the code that is mapped now, for a dump. Returns whether the kernel reported the code.
pub(super) fn remember_code(engine: &Engine) -> bool {
    engine.remember_code(memory_without_mappings(engine)) == CodeScanOutcome::All
}

/// A hasher for addresses. It multiplies once, which spreads them well enough.
#[derive(Default)]
pub(super) struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&b| self.write_u64(u64::from(b)));
    }
    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 29;
    }
    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }
}

type SnapshotLocations = RecordedLocations<BuildHasherDefault<AddressHasher>>;

/// The sums of a profile that was written, over all its stacks, in bytes.
#[derive(Default)]
pub(super) struct SnapshotTotals {
    pub(crate) in_use: i64,
    pub(crate) peak: i64,
    /// Number of stacks that have a value.
    pub(crate) stacks: usize,
}

/// Writes the gzipped profile. `wrappers` comes from the
/// [`RecordingOptions`](crate::RecordingOptions). `may_ask` says whether the program's allocator
/// may be queried for its usage.
pub(super) fn write_profile(
    engine: &Engine,
    reason: DumpReason,
    wrappers: &str,
    may_ask: bool,
    writer: &mut dyn Write,
) -> io::Result<SnapshotTotals> {
    let exact = engine.process.recorded.is_exact();
    let width = if exact { 8 } else { 6 };
    let mut values = ValueRows::begin(engine);
    let names = values.types();
    let traced = names.iter().map(|(name, unit)| (name.as_str(), *unit));
    let types: Vec<(&str, &str)> = recording_texts::SAMPLE_TYPES[..width]
        .iter()
        .copied()
        .chain(traced)
        .collect();
    let mut builder = ProfileBuilder::new(&types);
    let (mut sums, sizes) = sums_and_sizes(engine);
    let reports = pools::reports(engine);
    let account = account(engine, &sums, &reports, may_ask);
    let facts = DumpFacts {
        sums: &sums,
        sizes,
        reports: &reports,
        account,
    };
    describe(&mut builder, engine, reason, facts);
    let parts = pools::split(engine, &mut sums, &reports);
    let stacks = sums.iter().enumerate();
    let of_parts = parts
        .iter()
        .map(|part| (SnapshotRow::Part(part), &part.sums));
    let mut left = stacks
        .map(|(id, sum)| (SnapshotRow::Stack(StackNumber::from_index(id)), sum))
        .chain(of_parts);
    let mut totals = SnapshotTotals::default();
    // Gives the next stack that has a value.
    let next = |sample: &mut QuickSample| {
        for (row, sum) in left.by_ref() {
            let types = [sum.allocated, sum.in_use(), sum.peak, sum.temporary];
            sample.values[..width].copy_from_slice(&types.as_flattened()[..width]);
            if sample.values.iter().all(|&v| v == 0) {
                continue;
            }
            // The certainty of the peak is not known.
            for (i, known) in sum.spread.iter().enumerate() {
                sample.sampled[2 * i..][..2].fill(known.samples);
                sample.variance[2 * i..][..2].copy_from_slice(&known.variance);
            }
            totals.in_use = totals.in_use.saturating_add(sum.in_use()[1]);
            totals.peak = totals.peak.saturating_add(sum.peak[1]);
            totals.stacks += 1;
            return Some(row);
        }
        let value = values.next()?;
        for (to, of) in sample.values[width..].iter_mut().zip(value.counts) {
            *to = i64::try_from(of).unwrap_or(i64::MAX);
        }
        Some(SnapshotRow::Value(value.stack, value.label))
    };
    write_stacks(engine, builder, wrappers, next, writer)?;
    Ok(totals)
}

/// Writes the growth of stacks, in bytes, as a gzipped profile of one type.
pub(super) fn write_growth(
    engine: &Engine,
    wrappers: &str,
    mut grown: impl Iterator<Item = (StackNumber, i64)>,
    writer: &mut dyn Write,
) -> io::Result<()> {
    let builder = ProfileBuilder::new(&[("growth", "bytes")]);
    let next = |sample: &mut QuickSample| {
        let (id, growth) = grown.next()?;
        sample.values[0] = growth;
        Some(SnapshotRow::Stack(id))
    };
    write_stacks(engine, builder, wrappers, next, writer)
}

/// The subject of a sample.
#[derive(Clone, Copy)]
enum SnapshotRow<'a> {
    /// The stack with this number.
    Stack(StackNumber),
    /// A part of a pool, below the pool's own frames.
    Part(&'a PoolPartSums),
    /// Values that a stack made, and the word of their label.
    Value(ValueOrigin, u64),
}

/// Writes a sample for each row that `next` returns. `next` puts the row's values into the sample.
fn write_stacks<'a>(
    engine: &Engine,
    mut builder: ProfileBuilder,
    wrappers: &str,
    mut next: impl FnMut(&mut QuickSample) -> Option<SnapshotRow<'a>>,
    writer: &mut dyn Write,
) -> io::Result<()> {
    let known = engine.code.mappings.known_mappings(&engine.process);
    let source = EngineLedger {
        engine,
        code: to_recorded(&known),
    };
    let mut locations = SnapshotLocations::new(&mut builder, &source.code);
    let (mut labels, mut threads) = (HashMap::new(), ThreadsByNumber::new());
    builder.profile.drop_frames = builder.text(&recording_texts::drop_frames(wrappers));
    let (mut stack, mut last) = (ExpandedStack::default(), (None, 0));
    let next = |builder: &mut ProfileBuilder, sample: &mut QuickSample| {
        let row = next(sample)?;
        let (id, more) = match row {
            SnapshotRow::Stack(id) | SnapshotRow::Part(&PoolPartSums { pool: id, .. }) => {
                (ValueOrigin::Stack(id), None)
            }
            SnapshotRow::Value(stack, label) => (stack, Some(label)),
        };
        let (generation, shared) = match id {
            ValueOrigin::Stack(id) => stack.read(&engine.ledger.stacks, id),
            ValueOrigin::Frame(word) => (MappingGeneration::FIRST, stack.set(word)),
        };
        let frames = stack.frames();
        let is_label = |word: &&u64| FrameWord::is_label(**word);
        // These are the labels of the thread and of the interpreter.
        let of_stack = frames.iter().rev().take(2).take_while(is_label);
        let mut of_stack = of_stack.copied();
        let words = [of_stack.next(), of_stack.next(), more];
        let labels_of_stack = words[..2].iter().flatten().count();
        let frames = &frames[..frames.len() - labels_of_stack];
        if words != [None; 3] {
            let new = || label_set(builder, engine, words, &mut threads);
            sample.labels = *labels.entry(words).or_insert_with(new);
        }
        // The next stack mostly has the oldest frames of the last one.
        let same = match last.0 == Some(generation) {
            true => shared.min(frames.len()).min(last.1),
            false => 0,
        };
        last = (Some(generation), frames.len());
        let part = match row {
            SnapshotRow::Part(part) => Some(part.word),
            _ => None,
        };
        let newer = part.into_iter().chain(frames[same..].iter().rev().copied());
        sample.newer.extend(newer.map(|word| {
            let Ok(location) = locations.find_or_add(builder, &source, generation, word);
            location
        }));
        Some(same)
    };
    match encode_samples_quickly(builder, next, writer) {
        Ok(()) => Ok(()),
        Err(heapprof_profile::Error::Write(error)) => Err(error),
        Err(other) => Err(io::Error::other(other.to_string())),
    }
}

/// The engine's tables, from which a profile gets the frames of its stacks.
struct EngineLedger<'a> {
    engine: &'a Engine,
    code: RecordedCode<'a>,
}

impl LedgerSource for EngineLedger<'_> {
    type Error = Infallible;

    fn code(&self) -> &RecordedCode<'_> {
        &self.code
    }

    fn begin_search(&self) -> Result<(), Infallible> {
        Ok(())
    }

    fn script_frame(&self, number: FrameNumber) -> Result<Option<RecordedFrame<'_>>, Infallible> {
        let frame = self.engine.scripts.names.get(number);
        Ok(frame.map(|frame| RecordedFrame {
            name: frame.name.into(),
            file: frame.file.into(),
            start_line: frame.start_line,
            line: frame.line,
        }))
    }
}

/// The threads in a profile by their numbers, so that each thread has one name in the profile.
type ThreadsByNumber = HashMap<ThreadNumber, RecordedThread>;

/// Returns the set of labels for which `words` stand.
fn label_set(
    builder: &mut ProfileBuilder,
    engine: &Engine,
    words: [Option<u64>; 3],
    threads: &mut ThreadsByNumber,
) -> LabelSetIndex {
    let mut labels: Vec<Label> = Vec::new();
    // An interpreter may know its threads, too.
    let has_thread =
        words[0].is_some_and(|word| matches!(FrameWord::from_word(word), FrameWord::Thread(_)));
    for word in words.into_iter().flatten() {
        match FrameWord::from_word(word) {
            FrameWord::Label(provider, label) => {
                let provider = engine.scripts.providers.get(provider);
                let Some(provider) = provider else { continue };
                for (key, text) in provider.labels(label) {
                    let key = match has_thread && key == recording_texts::THREAD_LABEL {
                        true => format!("{} {key}", provider.language()),
                        false => key,
                    };
                    labels.push(builder.text_label(&key, &text));
                }
            }
            FrameWord::Thread(number) => {
                let named = threads.entry(number);
                let named = named.or_insert_with(|| engine.threads.names.find_named(number));
                named.add_labels(builder, &mut labels);
            }
            FrameWord::Address(_) | FrameWord::Frame(_) => {}
        }
    }
    builder.label_set(&mut labels)
}

/// Returns comments that say which frames stacks have, and why some are missing. There are none if
/// the recording has only native frames.
fn frame_comments(engine: &Engine, reports: &[(usize, ProviderReport)]) -> Vec<String> {
    let providers = &engine.scripts.providers;
    let wanted = match providers.frame_choice() {
        FrameChoice::Script => "script",
        FrameChoice::Both => "both",
        FrameChoice::Native => return Vec::new(),
    };
    let mut comments = Vec::new();
    for (i, provider) in providers.all() {
        let language = provider.language();
        let missing = match providers.is_broken(i) {
            true => {
                Some("the reader of its frames returned more than there is room for".to_string())
            }
            false => provider.status(),
        };
        comments.push(match missing {
            None => format!("frames: {wanted}, of {language}"),
            Some(why) => format!("frames missing: {language}: {why}"),
        });
        for (_, reported) in reports.iter().filter(|(of, _)| *of == i) {
            let remarks = reported.remarks.iter();
            comments.extend(remarks.map(|remark| format!("{language}: {remark}")));
        }
    }
    comments
}

/// The data of a profile besides its samples.
struct DumpFacts<'a> {
    sums: &'a [StackSums],
    /// Objects by size, in the recording's unit.
    sizes: SizeHistogram,
    reports: &'a [(usize, ProviderReport)],
    account: Vec<String>,
}

/// Maximum number of bytes of a command line that are read to find the name of a script.
const MAX_COMMAND_LINE_LEN: usize = 4096;

/// Returns the comments that distinguish the process from other processes of the same program.
fn process_comments(process: &EngineProcess, program: &str) -> Vec<String> {
    let tells_all = process.tells_command_line.load(Ordering::Relaxed);
    // One byte more shows that the command line is longer.
    let most = if tells_all {
        recording_texts::MAX_COMMAND_LINE + 1
    } else {
        MAX_COMMAND_LINE_LEN
    };
    let (mut bytes, path) = (vec![0; most], c"/proc/thread-self/cmdline");
    let read =
        sys::EngineFile::open(path, libc::O_RDONLY, 0).map_or(0, |file| file.read(&mut bytes));
    bytes.truncate(read);
    let whole = tells_all.then(|| recording_texts::command_line(program, &bytes));
    recording_texts::process_name_comments(program, &bytes)
        .chain(whole.flatten())
        .collect()
}

/// Writes the profile's description: its comments, sample types, period, start and duration.
fn describe(
    builder: &mut ProfileBuilder,
    engine: &Engine,
    reason: DumpReason,
    facts: DumpFacts<'_>,
) {
    let process = &engine.process;
    let (exact, period) = (process.recorded.is_exact(), process.recorded.period());
    let (started, duration) = engine.dumping.times();
    let program = String::from_utf8_lossy(process.name());
    let (version, pid) = (env!("CARGO_PKG_VERSION"), sys::process_id());
    let mut comments = recording_texts::head(version, &program, pid.into(), period, reason.text());
    comments.extend(process_comments(process, &program));
    comments.extend(frame_comments(engine, facts.reports));
    let (resident, peak_resident) = status::resident();
    if resident != 0 {
        comments.extend(recording_texts::resident(resident, peak_resident));
        comments.push(format!("own tables: {} bytes", engine.resident()));
    }
    let hooked = engine.dumping.hooked_allocators.iter();
    comments.extend(hooked.map(HookedAllocator::to_comment));
    comments.extend(facts.account);
    let others = engine.threads.names.others();
    comments.extend(recording_texts::threads(
        names::MAX_NUMBERED_THREADS,
        others,
    ));
    if !exact {
        comments.push(recording_texts::sampled_blocks(
            engine.ledger.live.len() as u64
        ));
    }
    let dropped = &process.dropped;
    let counters = [
        &dropped.nested,
        &dropped.no_memory,
        &dropped.interrupted,
        &dropped.unknown,
        &dropped.unseen,
        &dropped.torn,
        &dropped.unseen_bytes,
    ];
    let counts = counters.map(|counter| counter.load(Ordering::Relaxed));
    comments.extend(recording_texts::dropped_comments(counts));
    comments.extend(early_ends(engine, facts.sums));
    if facts.sums.is_empty() {
        comments.push(recording_texts::EMPTY_COMMENT.to_string());
    }
    comments.extend(notes(engine, facts.sums, facts.sizes, resident));
    let total = |of: fn(&StackSums) -> i64| facts.sums.iter().map(of).fold(0, i64::saturating_add);
    let header = RecordingHeader {
        period,
        started,
        duration,
        is_last: reason.is_last(),
        in_use: total(|sum| sum.in_use()[1]),
        peak: total(|sum| sum.peak[1]),
    };
    header.write(builder, comments);
}
