//! Makes a profile of the books, as the collector makes one of them when it dumps.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use heapprof_books::{DROPPED, Mapping as Known, NAMES, OBJECT_BITS, moments, name, word};
use heapprof_memory::Memory;
use heapprof_profile::{
    FrameText, History, Label, LabelSetIndex, LocationIndex, Mapping, MappingIndex, Moment, Peak,
    Profile, ProfileBuilder, Resident, recorded,
};

use crate::books::Books;
use crate::error::Error;
use crate::read::{Reader, u32_at, u64_at};
use crate::stacks::{Frames, Stacks};
use crate::sums::{All, MOST_STACKS, Sums, sums};

/// More mappings are no program's.
const MOST_MAPPINGS: u32 = 1 << 16;
/// So many frames all stacks may have together.
const MOST_FRAMES: usize = 1 << 26;
/// A longer path is a broken one.
const LONGEST_PATH: u32 = 8 << 10;

/// Code of a file that is or was mapped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Code {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) path: Vec<u8>,
    pub(crate) is_deleted: bool,
    pub(crate) build_id: Vec<u8>,
    /// The last generation in which it was there.
    pub(crate) last: u32,
}

/// What is known of the program besides its books.
pub(crate) struct Around<'a> {
    /// Why the profile is made, as the comment `dump` says it.
    pub(crate) reason: &'a str,
    pub(crate) program: String,
    pub(crate) pid: i64,
    /// A regular expression for functions that reports leave out besides those that are known, or
    /// empty.
    pub(crate) wrappers: &'a str,
    /// Bytes in memory now, and the most that were; 0 if that is unknown.
    pub(crate) resident: [u64; 2],
    /// The code that is mapped now.
    pub(crate) code: Vec<Code>,
    /// How long the recording has taken, in nanoseconds. It gets when the recording began: since
    /// 1970, and on the clock that nobody sets.
    pub(crate) duration: &'a dyn Fn(i64, i64) -> i64,
    /// What the kernel calls a thread now.
    pub(crate) thread_name: &'a dyn Fn(u32) -> Option<String>,
}

/// Reads the books, and makes a profile of them.
pub(crate) fn profile<M: Memory>(
    reader: &Reader<M>,
    books: &Books,
    around: &Around<'_>,
) -> Result<Profile, Error> {
    let period = reader.u64(books.period)?;
    let is_exact = period == 1;
    let All {
        sums,
        mut sizes,
        is_at_peak,
    } = sums(reader, books, is_exact)?;
    let width = if is_exact { 8 } else { 6 };
    let code = known_code(reader, books, &around.code)?;
    let names = Names::read(reader, books, around.thread_name)?;
    let mut writer = Writer::new(
        reader,
        books,
        &recorded::TYPES[..width],
        sums.len(),
        code,
        names,
    )?;
    writer.add_samples(sums.iter().copied().enumerate(), width)?;
    let lacks_labels = writer.lacks_labels;
    let mut builder = writer.builder;

    let started = reader.i64(books.started)?;
    let duration = (around.duration)(started, reader.i64(books.since)?).max(1);
    let mut comments = describe(reader, books, around, period)?;
    if lacks_labels {
        comments.push("labels: those of an interpreter cannot be read from outside".to_string());
    }
    if sums.is_empty() {
        comments.push(recorded::EMPTY.to_string());
    }
    let (micros, resident) = (duration / 1000, around.resident[0]);
    comments.push(history(reader, books, &sums, is_at_peak, micros, resident)?.comment());
    if !is_exact {
        for class in &mut sizes.classes {
            class.allocated = recorded::rounded(class.allocated, OBJECT_BITS);
            class.in_use = recorded::rounded(class.in_use, OBJECT_BITS);
        }
    }
    for class in &mut sizes.classes {
        (class.allocated, class.in_use) = (class.allocated.max(0), class.in_use.max(0));
    }
    comments.push(sizes.comment());
    for comment in comments {
        let text = builder.text(&comment);
        builder.profile.comment.push(text);
    }
    let space = builder.value_type("space", "bytes");
    let default = builder.text("inuse_space");
    let wrappers = builder.text(&recorded::drop_frames(around.wrappers));
    let profile = &mut builder.profile;
    profile.drop_frames = wrappers;
    profile.period_type = Some(space);
    profile.period = i64::try_from(period).unwrap_or(i64::MAX);
    profile.default_sample_type = default;
    profile.duration_nanos = duration;
    profile.time_nanos = started.saturating_add(duration);
    Ok(builder.finish())
}

/// The stacks from the number `first` on, as samples of a profile whose second value is that
/// number. Besides what the books say, this `code` is mapped. Returns also which number comes next.
pub(crate) fn stacks<M: Memory>(
    reader: &Reader<M>,
    books: &Books,
    code: &[Code],
    first: u32,
) -> Result<(Profile, u32), Error> {
    const WIDTH: usize = 2;
    let next = reader.u32(books.stacks)?;
    if next > MOST_STACKS {
        return Err(Error::TooLarge);
    }
    let sums = (first as usize..next as usize).map(|number| Sums {
        allocated: [1, number as i64],
        ..Sums::default()
    });
    let code = known_code(reader, books, code)?;
    let names = Names::read(reader, books, &|_| None)?;
    let types = &recorded::TYPES[..WIDTH];
    let mut writer = Writer::new(reader, books, types, next as usize, code, names)?;
    writer.add_samples((first as usize..).zip(sums), WIDTH)?;
    Ok((writer.builder.finish(), next))
}

/// The kernel's number of each thread that has one in the books.
pub(crate) fn threads<M: Memory>(
    reader: &Reader<M>,
    books: &Books,
) -> Result<Vec<Option<u32>>, Error> {
    let names = Names::read(reader, books, &|_| None)?;
    let all = names.kept.iter().map(|bytes| u32_at(bytes, name::ID));
    Ok(all.map(|id| Some(id).filter(|&id| id != 0)).collect())
}

struct Writer<'r, M> {
    reader: &'r Reader<M>,
    builder: ProfileBuilder,
    stacks: Stacks<'r, M>,
    frames: Frames<'r, M>,
    code: Vec<Code>,
    /// The number of each piece of code in the profile.
    mappings: Vec<MappingIndex>,
    /// By generation and word.
    locations: HashMap<(u32, u64), LocationIndex, RandomState>,
    labels: HashMap<Option<u32>, LabelSetIndex>,
    names: Names<'r>,
    /// Whether a stack had a label that only the interpreter can explain.
    lacks_labels: bool,
}

/// The stack that was added last: its words, and their locations.
#[derive(Default)]
struct Last {
    generation: u32,
    words: Vec<u64>,
    stack: Vec<LocationIndex>,
}

impl Last {
    /// How many of the oldest frames a stack has in common with it.
    fn shared(&self, generation: u32, words: &[u64]) -> usize {
        let pairs = words.iter().rev().zip(self.words.iter().rev());
        match generation == self.generation {
            true => pairs.take_while(|(a, b)| a == b).count(),
            false => 0,
        }
    }
}

/// The names of threads: those that the books have, and those of the kernel.
struct Names<'r> {
    /// What the books say of each.
    kept: Vec<[u8; name::LEN]>,
    now: &'r dyn Fn(u32) -> Option<String>,
}

impl<'r, M: Memory> Writer<'r, M> {
    /// A writer of a profile with these types, of so many stacks.
    fn new(
        reader: &'r Reader<M>,
        books: &Books,
        types: &[(&str, &str)],
        stacks: usize,
        code: Vec<Code>,
        names: Names<'r>,
    ) -> Result<Self, Error> {
        let mut writer = Self {
            reader,
            builder: ProfileBuilder::new(types),
            stacks: Stacks::new(reader, books, stacks)?,
            frames: Frames::new(reader, books)?,
            code,
            mappings: Vec::new(),
            locations: HashMap::default(),
            labels: HashMap::new(),
            names,
            lacks_labels: false,
        };
        writer.add_mappings();
        Ok(writer)
    }

    fn add_mappings(&mut self) {
        for code in &self.code {
            let filename = recorded::mapped_file(&code.path, code.is_deleted, &code.build_id);
            let hex = recorded::hex(&code.build_id);
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

    /// Adds stacks by their numbers, with their sums.
    fn add_samples(
        &mut self,
        sums: impl Iterator<Item = (usize, Sums)>,
        width: usize,
    ) -> Result<(), Error> {
        let (mut words, mut frames) = (Vec::new(), 0);
        let mut last = Last::default();
        for (number, sum) in sums {
            let types = [sum.allocated, sum.in_use, sum.peak, sum.temporary];
            let values = &types.as_flattened()[..width];
            if values.iter().all(|&value| value == 0) {
                continue;
            }
            let read = self.stacks.read(number, &mut words);
            let Some(generation) = self.reader.reached(read)? else {
                continue;
            };
            let mut thread = None;
            words.retain(|&word| match word & word::KIND {
                word::THREAD => {
                    thread = Some(word as u32);
                    false
                }
                word::LABEL => {
                    self.lacks_labels = true;
                    false
                }
                _ => true,
            });
            // Most stacks have the oldest frames of the one before.
            let same = last.shared(generation, &words);
            let newer = words[..words.len() - same].iter();
            let mut stack = Vec::with_capacity(words.len());
            for &word in newer {
                stack.push(self.location(generation, word)?);
            }
            stack.extend_from_slice(&last.stack[last.stack.len() - same..]);
            let labels = self.label_set(thread);
            frames += stack.len();
            if frames > MOST_FRAMES {
                return Err(Error::TooLarge);
            }
            let samples = &mut self.builder.profile.samples;
            samples.push(stack.iter().copied(), values, labels);
            last.generation = generation;
            std::mem::swap(&mut last.words, &mut words);
            last.stack = stack;
            // Nothing is known of how sure the peak is.
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

    fn location(&mut self, generation: u32, word: u64) -> Result<LocationIndex, Error> {
        let is_frame = word & word::KIND == word::FRAME || word == word::CUT;
        let key = (if is_frame { 0 } else { generation }, word);
        if let Some(&known) = self.locations.get(&key) {
            return Ok(known);
        }
        let location = match word {
            word::CUT => self.named(recorded::TRUNCATED),
            word::UNNAMED => self.named(recorded::NAMELESS),
            _ if is_frame => match self
                .reader
                .reached(self.frames.read(word as u32))?
                .flatten()
            {
                Some(frame) => self.builder.frame(&[FrameText {
                    name: &String::from_utf8_lossy(&frame.name),
                    filename: &String::from_utf8_lossy(&frame.file),
                    line: frame.line.into(),
                    start_line: frame.start_line.into(),
                }]),
                None => self.named(recorded::NAMELESS),
            },
            _ => {
                // This is an address in the call, not the one after it.
                let address = word.wrapping_sub(1);
                // It may be gone through twice.
                self.reader.work(8 * self.code.len())?;
                let mapping = find(&self.code, address, generation);
                let mapping = mapping.map(|i| self.mappings[i]);
                self.builder.location(mapping, address, false, &[])
            }
        };
        self.locations.insert(key, location);
        Ok(location)
    }

    fn named(&mut self, name: &str) -> LocationIndex {
        self.builder.frame(&[FrameText {
            name,
            ..FrameText::default()
        }])
    }

    fn label_set(&mut self, thread: Option<u32>) -> LabelSetIndex {
        if let Some(&known) = self.labels.get(&thread) {
            return known;
        }
        let mut labels: Vec<Label> = Vec::new();
        if let Some(number) = thread {
            let (name, id) = self.names.of(number);
            labels.push(self.builder.text_label(recorded::THREAD, &name));
            labels.extend(id.map(|id| self.builder.number_label(recorded::TID, id.into(), "")));
        }
        let set = self.builder.label_set(&mut labels);
        self.labels.insert(thread, set);
        set
    }
}

impl<'r> Names<'r> {
    fn read<M: Memory>(
        reader: &Reader<M>,
        books: &Books,
        now: &'r dyn Fn(u32) -> Option<String>,
    ) -> Result<Self, Error> {
        let count = reader.u32(books.names)?.min(NAMES) as usize;
        let mut kept = vec![[0; name::LEN]; count];
        reader.elements(books.name, count, |i, bytes| {
            kept[i] = *bytes;
            Ok(())
        })?;
        Ok(Self { kept, now })
    }

    /// What a thread is called, and the kernel's number of it.
    fn of(&self, number: u32) -> (String, Option<u32>) {
        let index = (number as usize).checked_sub(1);
        let Some(bytes) = index.and_then(|index| self.kept.get(index)) else {
            return (recorded::OTHER_THREADS.to_string(), None);
        };
        let id = Some(u32_at(bytes, name::ID)).filter(|&id| id != 0);
        let is_gone = bytes[name::IS_GONE] != 0;
        let now = id.filter(|_| !is_gone).and_then(self.now);
        let kept = || recorded::thread_name(&bytes[name::NAME..]);
        (now.unwrap_or_else(kept), id)
    }
}

/// The code that held `address` in `generation`: of all that ever held it, the first that was still
/// there then. What came to its place later came in a later generation.
fn find(code: &[Code], address: u64, generation: u32) -> Option<usize> {
    let holds = |code: &Code| code.start <= address && address < code.end;
    let then = code
        .iter()
        .position(|code| holds(code) && generation <= code.last);
    then.or_else(|| code.iter().rposition(holds))
}

/// The code that the collector knew, and behind it what has come since.
fn known_code<M: Memory>(
    reader: &Reader<M>,
    books: &Books,
    now: &[Code],
) -> Result<Vec<Code>, Error> {
    let len = reader.u32(books.mappings)?;
    if len > MOST_MAPPINGS {
        return Err(Error::Damaged(
            "it has more mappings than a program can have",
        ));
    }
    let mut all = Vec::new();
    const LEN: usize = size_of::<Known>();
    reader.elements(books.mapping, len as usize, |_, bytes: &[u8; LEN]| {
        all.extend(reader.reached(known(reader, bytes))?.flatten());
        Ok(())
    })?;
    let place = |code: &Code| (code.start, code.end, code.path.clone());
    let mut newest: HashMap<_, usize> = HashMap::new();
    for (i, code) in all.iter().enumerate() {
        newest.insert(place(code), i);
    }
    for code in now {
        // What lies there may be another build by now.
        let is_same = |known: &Code| {
            known.build_id.is_empty() || code.build_id.is_empty() || known.build_id == code.build_id
        };
        match newest.get(&place(code)) {
            Some(&i) if is_same(&all[i]) => all[i].last = u32::MAX,
            _ => all.push(code.clone()),
        }
    }
    Ok(all)
}

/// A mapping that the collector knew; `None` if it is being written just now.
fn known<M: Memory>(
    reader: &Reader<M>,
    bytes: &[u8; size_of::<Known>()],
) -> Result<Option<Code>, Error> {
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
    if path_len > LONGEST_PATH || start >= end {
        return Ok(None);
    }
    let name = reader.text(path, path_len)?;
    let id = offset_of!(Known, id);
    let id_len = (short(offset_of!(Known, id_len)) as usize).min(64);
    Ok(Some(Code {
        start,
        end,
        offset: number(offset_of!(Known, offset)),
        path: name,
        is_deleted: short(offset_of!(Known, is_deleted)) != 0,
        build_id: bytes[id..id + id_len].to_vec(),
        last: short(offset_of!(Known, last)),
    }))
}

/// What the collector says in comments, as far as it can be seen from outside.
fn describe<M: Memory>(
    reader: &Reader<M>,
    books: &Books,
    around: &Around<'_>,
    period: u64,
) -> Result<Vec<String>, Error> {
    let version = env!("CARGO_PKG_VERSION");
    let mut comments = recorded::head(version, &around.program, around.pid, period, around.reason);
    let [resident, peak] = around.resident;
    if resident != 0 {
        comments.extend(recorded::resident(resident, peak));
    }
    let others = reader.u32(books.names)?.saturating_sub(NAMES);
    comments.extend(recorded::threads(NAMES, others));
    if period != 1 && !books.is_copy {
        comments.push(recorded::sampled_blocks(blocks(reader, books)?));
    }
    let bytes: [u8; 8 * DROPPED] = reader.array(books.dropped)?;
    let counts = std::array::from_fn(|i| u64_at(&bytes, 8 * i));
    comments.extend(recorded::dropped(counts));
    Ok(comments)
}

/// How many blocks are known to be in use.
fn blocks<M: Memory>(reader: &Reader<M>, books: &Books) -> Result<u64, Error> {
    let [stride, table] = books.part.map(u64::from);
    let mut all = 0u64;
    for part in 0..heapprof_books::PARTS as u64 {
        let at = books.parts.wrapping_add(part * stride + table);
        let count = reader.u64(at.wrapping_add(heapprof_books::table::BLOCKS as u64))?;
        all = all.saturating_add(count);
    }
    Ok(all)
}

fn history<M: Memory>(
    reader: &Reader<M>,
    books: &Books,
    sums: &[Sums],
    is_at_peak: bool,
    micros: i64,
    resident: u64,
) -> Result<History, Error> {
    let total = |of: fn(&Sums) -> [i64; 2]| {
        sums.iter().map(of).fold([0i64; 2], |sum, of| {
            [sum[0].saturating_add(of[0]), sum[1].saturating_add(of[1])]
        })
    };
    let [objects, bytes] = total(|sums| sums.in_use);
    let count = reader.u64(books.moments.wrapping_add(moments::COUNT as u64))?;
    let count = (count as usize).min(moments::MOST);
    let mut kept = vec![0; count * moments::LEN];
    if count != 0 {
        reader.read(books.moments.wrapping_add(moments::FIRST as u64), &mut kept)?;
    }
    let mut moments: Vec<Moment> = Vec::with_capacity(count + 1);
    for bytes in kept.as_chunks::<{ moments::LEN }>().0 {
        let number = |at: usize| u64_at(bytes, at) as i64;
        let moment = Moment {
            micros: number(0),
            bytes: number(8),
            objects: number(16),
        };
        // It may be thinned just now, and then some stand there twice.
        let after = moments.last().map_or(-1, |last| last.micros);
        if moment.micros >= after.max(0) && moment.micros < micros {
            moments.push(moment);
        }
    }
    // The last moment is that of the samples.
    moments.push(Moment {
        micros,
        bytes,
        objects,
    });
    let peak = total(|sums| sums.peak)[1];
    let peak_at = reader.i64(books.peak_at)?.clamp(0, micros);
    Ok(History {
        moments,
        resident: match i64::try_from(resident) {
            Ok(bytes @ 1..) => vec![Resident { micros, bytes }],
            _ => Vec::new(),
        },
        peak: Some(Peak {
            micros: if is_at_peak { micros } else { peak_at },
            bytes: peak,
        }),
    })
}
