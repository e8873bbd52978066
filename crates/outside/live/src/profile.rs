//! Makes a profile of the ledger, like the collector's dumps.

use std::collections::HashMap;

use heapprof_abi::{
    DROPPED_COUNT, LedgerMapping as Known, MAX_NAMED_THREADS, MappingGeneration, OBJECT_BITS,
    StackNumber, moments, name,
};
use heapprof_memory::Memory;
use heapprof_profile::recording::{RecordedCode, RecordedMapping, RecordingHeader};
use heapprof_profile::{
    HeapHistory, HeapMoment, HeapPeak, Profile, ResidentMoment, recording_texts,
};

use crate::bounded_reads::{BoundedMemoryReader, u32_at, u64_at};
use crate::error::LiveError;
use crate::ledger::LiveLedger;
use crate::sums::{AllThreadSums, LiveStackSums, MAX_STACKS, read_sums};
use crate::writer::{LiveProfileRow, LiveProfileWriter, LiveThreadNames};

/// Maximum number of mappings; no program has more.
const MAX_MAPPINGS: u32 = 1 << 16;
/// Maximum length of a path in bytes. A ledger with a longer path is damaged.
const MAX_PATH_LEN: u32 = 8 << 10;

/// Facts about the program that are not in its ledger.
pub(crate) struct RecordingContext<'a> {
    /// The reason for making the profile, for the comment `dump`.
    pub(crate) reason: &'a str,
    /// Whether the program has ended or called exec, so that nothing is recorded after this.
    pub(crate) is_last: bool,
    pub(crate) program: String,
    pub(crate) pid: i64,
    /// A regular expression for functions that reports leave out, in addition to the functions that
    /// heapprof knows; may be empty.
    pub(crate) wrappers: &'a str,
    /// Resident bytes now, and their maximum so far; 0 if unknown.
    pub(crate) resident: [u64; 2],
    /// The code that is mapped now.
    pub(crate) code: Vec<RecordedMapping<'static>>,
    /// Returns the duration of the recording in nanoseconds. The arguments are the time at which
    /// the recording began: in nanoseconds since 1970, and on the monotonic clock.
    pub(crate) duration: &'a dyn Fn(i64, i64) -> i64,
    /// The maximum number of frames of all stacks together.
    pub(crate) max_frames: usize,
    /// Returns the name that the kernel has for a thread now.
    pub(crate) thread_name: &'a dyn Fn(u32) -> Option<String>,
}

/// Reads the ledger, and makes a profile of all its stacks.
pub(crate) fn profile<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    around: &RecordingContext<'_>,
) -> Result<Profile, LiveError> {
    let period = reader.u64(ledger.period)?;
    let is_exact = period == 1;
    let AllThreadSums {
        sums,
        mut sizes,
        is_at_peak,
    } = read_sums(reader, ledger, is_exact)?;
    let width = if is_exact { 8 } else { 6 };
    let code = known_code(reader, ledger, &around.code)?;
    let names = LiveThreadNames::read(reader, ledger, around.thread_name)?;
    let mut writer = LiveProfileWriter::new(
        reader,
        ledger,
        &recording_texts::SAMPLE_TYPES[..width],
        sums.len(),
        code,
        names,
    )?;
    writer.limit_frames(around.max_frames);
    writer.add_samples(
        stack_numbers(StackNumber::from_u32(0)).zip(sums.iter().copied()),
        width,
    )?;
    let lacks_labels = writer.lacks_labels;
    let early_ends = std::mem::take(&mut writer.early_ends);
    let mut builder = writer.builder;

    let started = reader.i64(ledger.started)?;
    let duration = (around.duration)(started, reader.i64(ledger.since)?).max(1);
    let mut comments = describe(reader, ledger, around, period)?;
    comments.extend(early_ends.comments());
    if lacks_labels {
        comments.push("labels: an interpreter's labels cannot be read from outside".to_string());
    }
    if sums.is_empty() {
        comments.push(recording_texts::EMPTY_COMMENT.to_string());
    }
    let (micros, resident) = (duration / 1000, around.resident[0]);
    comments.push(history(reader, ledger, &sums, is_at_peak, micros, resident)?.comment());
    if !is_exact {
        for class in &mut sizes.classes {
            class.allocated = recording_texts::rounded(class.allocated, OBJECT_BITS);
            class.in_use = recording_texts::rounded(class.in_use, OBJECT_BITS);
        }
    }
    for class in &mut sizes.classes {
        (class.allocated, class.in_use) = (class.allocated.max(0), class.in_use.max(0));
    }
    comments.push(sizes.comment());
    let total = |of: fn(&LiveStackSums) -> i64| sums.iter().map(of).fold(0, i64::saturating_add);
    let header = RecordingHeader {
        period,
        started,
        duration,
        is_last: around.is_last,
        in_use: total(|sum| sum.in_use[1]),
        peak: total(|sum| sum.peak[1]),
    };
    header.write(&mut builder, comments);
    builder.profile.drop_frames = builder.text(&recording_texts::drop_frames(around.wrappers));
    Ok(builder.finish())
}

/// Returns a profile with a sample for each stack from the number `first` on, and the next free
/// stack number. The second value of each sample is the number of its stack. `code` is mapped code
/// that may not be in the ledger yet.
pub(crate) fn stacks<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    code: &[RecordedMapping<'static>],
    first: StackNumber,
) -> Result<(Profile, StackNumber), LiveError> {
    const VALUE_COUNT: usize = 2;
    let next = reader.u32(ledger.stacks)?;
    if next > MAX_STACKS {
        return Err(LiveError::LedgerTooLarge);
    }
    let sums = (first.to_u32()..next).map(|number| LiveStackSums {
        allocated: [1, number.into()],
        ..LiveStackSums::default()
    });
    let code = known_code(reader, ledger, code)?;
    let names = LiveThreadNames::read(reader, ledger, &|_| None)?;
    let types = &recording_texts::SAMPLE_TYPES[..VALUE_COUNT];
    let mut writer = LiveProfileWriter::new(reader, ledger, types, next as usize, code, names)?;
    writer.add_samples(stack_numbers(first).zip(sums), VALUE_COUNT)?;
    Ok((writer.builder.finish(), StackNumber::from_u32(next)))
}

/// Returns the numbers of stacks from `first` on.
fn stack_numbers(first: StackNumber) -> impl Iterator<Item = StackNumber> {
    (first.to_u32()..).map(StackNumber::from_u32)
}

/// Makes a profile with the given sample types and rows. Each row has a label under `key`. `code`
/// is mapped code that may not be in the ledger yet.
pub(crate) fn profile_from_rows<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    code: &[RecordedMapping<'static>],
    types: &[(&str, &str)],
    key: &str,
    rows: &[LiveProfileRow<'_>],
) -> Result<Profile, LiveError> {
    let stacks = reader.u32(ledger.stacks)?;
    if stacks > MAX_STACKS {
        return Err(LiveError::LedgerTooLarge);
    }
    let code = known_code(reader, ledger, code)?;
    let names = LiveThreadNames::read(reader, ledger, &|_| None)?;
    let mut writer = LiveProfileWriter::new(reader, ledger, types, stacks as usize, code, names)?;
    writer.add_rows(key, rows)?;
    Ok(writer.builder.finish())
}

/// Returns the kernel's number of each thread in the ledger, or `None` where it is unknown.
pub(crate) fn threads<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
) -> Result<Vec<Option<u32>>, LiveError> {
    let names = LiveThreadNames::read(reader, ledger, &|_| None)?;
    let all = names
        .recorded_names
        .iter()
        .map(|bytes| u32_at(bytes, name::ID));
    Ok(all.map(|id| Some(id).filter(|&id| id != 0)).collect())
}

/// Returns the code in the ledger, followed by the code that was mapped since.
fn known_code<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    now: &[RecordedMapping<'static>],
) -> Result<RecordedCode<'static>, LiveError> {
    let len = reader.u32(ledger.mappings)?;
    if len > MAX_MAPPINGS {
        return Err(LiveError::LedgerDamaged(
            "it has more mappings than a program can have",
        ));
    }
    let mut all = Vec::new();
    const KNOWN_MAPPING_LEN: usize = size_of::<Known>();
    reader.elements(
        ledger.mapping,
        len as usize,
        |_, bytes: &[u8; KNOWN_MAPPING_LEN]| {
            all.extend(
                reader
                    .if_reachable(read_known_mapping(reader, bytes))?
                    .flatten(),
            );
            Ok(())
        },
    )?;
    let place = |code: &RecordedMapping<'static>| (code.start, code.end, code.path.clone());
    let mut newest: HashMap<_, usize> = HashMap::new();
    for (i, code) in all.iter().enumerate() {
        newest.insert(place(code), i);
    }
    for code in now {
        // Another build of the file may be mapped there by now.
        let is_same = |known: &RecordedMapping<'static>| {
            known.build_id.is_empty() || code.build_id.is_empty() || known.build_id == code.build_id
        };
        match newest.get(&place(code)) {
            Some(&i) if is_same(&all[i]) => all[i].last = RecordedMapping::STILL_MAPPED,
            _ => all.push(code.clone()),
        }
    }
    Ok(RecordedCode { mappings: all })
}

/// Reads a mapping in the ledger; `None` if it is being written at this moment.
fn read_known_mapping<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    bytes: &[u8; size_of::<Known>()],
) -> Result<Option<RecordedMapping<'static>>, LiveError> {
    use std::mem::offset_of;
    let number = |offset: usize| u64_at(bytes, offset);
    let short = |offset: usize| u32_at(bytes, offset);
    let (path, path_len) = (
        number(offset_of!(Known, path)),
        short(offset_of!(Known, path_len)),
    );
    let (start, end) = (
        number(offset_of!(Known, start)),
        number(offset_of!(Known, end)),
    );
    if path_len > MAX_PATH_LEN || start >= end {
        return Ok(None);
    }
    let name = reader.text(path, path_len)?;
    let id = offset_of!(Known, id);
    let id_len = (short(offset_of!(Known, id_len)) as usize).min(64);
    Ok(Some(RecordedMapping {
        start,
        end,
        offset: number(offset_of!(Known, offset)),
        path: name.into(),
        is_deleted: short(offset_of!(Known, is_deleted)) != 0,
        build_id: bytes[id..id + id_len].to_vec().into(),
        last: MappingGeneration::from_u32(short(offset_of!(Known, last))),
    }))
}

/// Returns the comments for a profile, like the collector's comments, as far as they can be made
/// from outside the program.
fn describe<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    around: &RecordingContext<'_>,
    period: u64,
) -> Result<Vec<String>, LiveError> {
    let version = env!("CARGO_PKG_VERSION");
    let mut comments =
        recording_texts::head(version, &around.program, around.pid, period, around.reason);
    let [resident, peak] = around.resident;
    if resident != 0 {
        comments.extend(recording_texts::resident(resident, peak));
    }
    let others = reader.u32(ledger.names)?.saturating_sub(MAX_NAMED_THREADS);
    comments.extend(recording_texts::threads(MAX_NAMED_THREADS, others));
    if period != 1 && !ledger.is_copy {
        comments.push(recording_texts::sampled_blocks(blocks(reader, ledger)?));
    }
    let bytes: [u8; 8 * DROPPED_COUNT] = reader.array(ledger.dropped)?;
    let counts = std::array::from_fn(|i| u64_at(&bytes, 8 * i));
    comments.extend(recording_texts::dropped_comments(counts));
    Ok(comments)
}

/// Returns the number of blocks in use, by the counts in the table of blocks.
fn blocks<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
) -> Result<u64, LiveError> {
    let [stride, table] = ledger.part.map(u64::from);
    let mut all = 0u64;
    for part in 0..heapprof_abi::PART_COUNT as u64 {
        let at = ledger.parts.wrapping_add(part * stride + table);
        let count = reader.u64(at.wrapping_add(heapprof_abi::table::BLOCKS as u64))?;
        all = all.saturating_add(count);
    }
    Ok(all)
}

fn history<M: Memory>(
    reader: &BoundedMemoryReader<M>,
    ledger: &LiveLedger,
    sums: &[LiveStackSums],
    is_at_peak: bool,
    micros: i64,
    resident: u64,
) -> Result<HeapHistory, LiveError> {
    let total = |of: fn(&LiveStackSums) -> [i64; 2]| {
        sums.iter().map(of).fold([0i64; 2], |sum, of| {
            [sum[0].saturating_add(of[0]), sum[1].saturating_add(of[1])]
        })
    };
    let [objects, bytes] = total(|sums| sums.in_use);
    let count = reader.u64(ledger.moments.wrapping_add(moments::COUNT as u64))?;
    let count = (count as usize).min(moments::MAX_MOMENTS);
    let mut kept = vec![0; count * moments::LEN];
    if count != 0 {
        reader.read(
            ledger.moments.wrapping_add(moments::FIRST_MOMENT as u64),
            &mut kept,
        )?;
    }
    let mut moments: Vec<HeapMoment> = Vec::with_capacity(count + 1);
    for bytes in kept.as_chunks::<{ moments::LEN }>().0 {
        let number = |at: usize| u64_at(bytes, at) as i64;
        let moment = HeapMoment {
            micros: number(0),
            bytes: number(8),
            objects: number(16),
        };
        // The collector may be thinning the moments now, and then some are in the list twice.
        let after = moments.last().map_or(-1, |last| last.micros);
        if moment.micros >= after.max(0) && moment.micros < micros {
            moments.push(moment);
        }
    }
    // The last moment is the one of the samples.
    moments.push(HeapMoment {
        micros,
        bytes,
        objects,
    });
    let peak = total(|sums| sums.peak)[1];
    let peak_at = reader.i64(ledger.peak_at)?.clamp(0, micros);
    Ok(HeapHistory {
        moments,
        resident: match i64::try_from(resident) {
            Ok(bytes @ 1..) => vec![ResidentMoment { micros, bytes }],
            _ => Vec::new(),
        },
        peak: Some(HeapPeak {
            micros: if is_at_peak { micros } else { peak_at },
            bytes: peak,
        }),
    })
}
