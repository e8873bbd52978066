//! Random damage with a fixed seed: any input bytes give a profile or an error.
//!
//! Each mutant is decoded and encoded again, and some are written in every format and shown in
//! every report. There is no panic, no hang (the whole run has a time limit), and no more memory
//! than [`BOUND`] plus the mutant's own size times [`FACTOR`].

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use heapprof_formats::{FormatReadOptions, ProfileFormat, read};

use heapprof_tests::exercise::{LIMIT, exercise};
use heapprof_tests::harness::{sample_profiles, valid};
use heapprof_tests::samples::made;
use heapprof_tests::waits::processor_time;

/// Memory in bytes that reading any input may take: buffers, the inflater, SQLite.
const BOUND: usize = 24 << 20;
/// Memory in bytes for each byte of the inflated profile.
const FACTOR: usize = 200;
const ROUNDS: usize = 40_000;
/// One in this number of readable mutants is also queried through SQLite, printed and written,
/// which costs more than decoding.
const ASKED: usize = 72;
/// Length in bytes of the beginning of a text that is mutated. The beginning has all kinds of
/// lines, and a longer text only takes longer.
const MAX_INPUT_BYTES: usize = 8 << 10;

thread_local! {
    static LIVE: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

/// Counts the allocations of each thread, so that parallel tests do not matter.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn count(change: isize) {
    // A thread that is ending has no counters any more.
    let _ = LIVE.try_with(|live| {
        let now = live.get().saturating_add_signed(change);
        live.set(now);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now)));
    });
}

// SAFETY: every call goes to the system allocator with unchanged arguments.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `alloc`'s contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps `dealloc`'s contract.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size as isize - layout.size() as isize);
        // SAFETY: the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, size) }
    }
}

/// A small generator with a fixed seed: xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

fn mutate(bytes: &[u8], other: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for _ in 0..1 + random.below(4) {
        let at = random.below(bytes.len());
        match random.below(8) {
            0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << random.below(8),
            2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][random.below(5)],
            3 => bytes.truncate(at),
            4 => {
                let extra: Vec<u8> = (0..random.below(12)).map(|_| random.next() as u8).collect();
                bytes.splice(at..at, extra);
            }
            5 => {
                let end = (at + random.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            6 => {
                let end = (at + random.below(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len());
                bytes.splice(to..to, copy);
            }
            _ => {
                let from = random.below(other.len());
                let end = (from + random.below(200)).min(other.len());
                bytes.splice(at..at, other[from..end].iter().copied());
            }
        }
    }
    bytes
}

#[test]
fn damaged_profiles_do_no_harm() {
    let started = processor_time();
    // To try other mutants by hand: HEAPPROF_SEED=7 HEAPPROF_ROUNDS=1000000 cargo test --release -p
    // heapprof-tests damaged_profiles
    let set = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let mut random = Random(set("HEAPPROF_SEED").unwrap_or(0x6865_6170_7072_6f66));
    let rounds = set("HEAPPROF_ROUNDS").map_or(ROUNDS, |rounds| rounds as usize);
    // The seeds are uncompressed, because damage to gzip data seldom reaches the decoder.
    let mut seeds: Vec<Vec<u8>> = made()
        .into_iter()
        .map(|(_, bytes)| inflate(&bytes))
        .collect();
    let recorded = valid()
        .into_iter()
        .filter(|f| f.metadata().unwrap().len() < 20_000);
    seeds.extend(recorded.map(|f| inflate(&std::fs::read(f).unwrap())));
    let foreign = foreign();
    let formats: BTreeSet<&str> = foreign
        .iter()
        .map(|seed| read(&seed[..], &FormatReadOptions::default()))
        .filter_map(|reading| Some(reading.ok()?.format.name()))
        .collect();
    for format in heapprof_formats::formats().map(ProfileFormat::name) {
        assert!(
            formats.contains(format),
            "{format}: a format without a seed"
        );
    }
    seeds.extend(foreign);
    let zipped: Vec<Vec<u8>> = seeds
        .iter()
        .map(|s| heapprof_tests::wire::gzip(s))
        .collect();
    let mut worst = 0.0f64;
    let mut read = 0;
    for round in 0..rounds {
        let pick = random.below(seeds.len());
        let other = random.below(seeds.len());
        let mutant = match round % 16 {
            0 => mutate(&zipped[pick], &zipped[other], &mut random),
            _ => mutate(&seeds[pick], &seeds[other], &mut random),
        };
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        read += usize::from(exercise(&mutant, read % ASKED == 0));
        let used = PEAK.with(Cell::get) - before;
        let inflated = if round % 16 == 0 { LIMIT } else { mutant.len() };
        let bound = BOUND + inflated * FACTOR;
        assert!(
            used <= bound,
            "round {round}: {used} bytes for a mutant of {}",
            mutant.len()
        );
        worst = worst.max(used as f64 / bound as f64);
        // The limit is generous: the run takes less than a minute, and a hang takes forever.
        assert!(
            processor_time() - started < Duration::from_secs(900 * (1 + (rounds / 100_000) as u64)),
            "round {round} hangs"
        );
    }
    eprintln!(
        "{rounds} mutants, {read} of them read, at most {:.0} % of the memory bound",
        worst * 100.0
    );
}

/// Returns a file of each format that describes stacks by their parents. Its calls are nested
/// `depth` deep, and each call has a value.
fn deep_chains(depth: usize) -> Vec<(&'static str, String)> {
    let lines = |line: &dyn Fn(usize) -> String| (1..=depth).map(line).collect::<String>();
    let heaptrack = [
        "v 10400 3\ni 1\n".to_string(),
        lines(&|i| format!("t 1 {:x}\n", i - 1)),
        lines(&|i| format!("a 1 {i:x}\n+ {:x}\n", i - 1)),
    ];
    let mprof = lines(&|i| format!("a:{}:9999999\n", 9_000_000 - i));
    let opened = lines(&|i| format!("{{\"type\":\"O\",\"frame\":0,\"at\":{i}}},"));
    let closed = lines(&|i| format!("{{\"type\":\"C\",\"frame\":0,\"at\":{}}},", depth + i));
    let speedscope = format!(
        "{{\"$schema\":\"https://www.speedscope.app/file-format-schema.json\",\"shared\":{{\"frames\":[{{\"name\":\"f\"}}]}},\
         \"profiles\":[{{\"type\":\"evented\",\"name\":\"\",\"unit\":\"bytes\",\"events\":[{opened}{}]}}]}}",
        closed.trim_end_matches(',')
    );
    let massif = [
        "desc: x\ncmd: x\ntime_unit: i\n#-----------\nsnapshot=0\n#-----------\ntime=0\n"
            .to_string(),
        format!("mem_heap_B={depth}\nmem_heap_extra_B=0\nmem_stacks_B=0\nheap_tree=peak\n"),
        format!("n1: {depth} x\n"),
        lines(&|i| {
            let callers = usize::from(i < depth);
            format!("{}n{callers}: {} 0x1: f\n", " ".repeat(i), depth + 1 - i)
        }),
    ];
    vec![
        ("heaptrack", heaptrack.concat()),
        ("mprof", mprof),
        ("speedscope", speedscope),
        ("massif", massif.concat()),
    ]
}

/// The length of the text grows with the depth, but the stacks grow with the square of the depth.
#[test]
fn deep_chains_take_bounded_memory() {
    let mut refused = BTreeSet::new();
    for depth in [50, 500, 1000, 1500, 2000, 4000, 16_000] {
        for (format, text) in deep_chains(depth) {
            // A line of Massif grows with its depth.
            if format == "massif" && depth > 2000 {
                continue;
            }
            let before = LIVE.with(Cell::get);
            PEAK.with(|peak| peak.set(before));
            let reading = read(text.as_bytes(), &FormatReadOptions::default());
            let used = PEAK.with(Cell::get) - before;
            let bound = BOUND + text.len() * FACTOR;
            assert!(
                used <= bound,
                "{format}, {depth} deep: {used} bytes for {}",
                text.len()
            );
            match reading {
                Ok(reading) => {
                    assert_eq!(reading.format.name(), format);
                    let frames = reading.profile.samples.frames();
                    assert_eq!(frames, depth * (depth + 1) / 2, "{format}, {depth} deep");
                }
                Err(error) => {
                    assert!(
                        error.to_string().contains("frames in the stacks that"),
                        "{error}"
                    );
                    assert!(depth > 1000, "{format} refuses {depth}: {error}");
                    refused.insert(format);
                }
            }
        }
    }
    assert_eq!(refused.len(), 3, "{refused:?}");
}

/// Returns the samples of other formats: whole if they are small, otherwise only their beginning.
fn foreign() -> Vec<Vec<u8>> {
    let folders = std::fs::read_dir(sample_profiles().join("foreign")).unwrap();
    let folders = folders.map(|f| f.unwrap().path()).filter(|f| f.is_dir());
    let files = folders.flat_map(|f| std::fs::read_dir(f).unwrap());
    let mut files: Vec<_> = files.map(|f| f.unwrap().path()).collect();
    files.sort();
    let seed = |file| {
        let mut plain = inflate(&std::fs::read(file).unwrap());
        // JSON can't be read without its end, and protobuf does not consist of lines.
        let in_lines = !plain.starts_with(b"{") && !plain.contains(&0);
        if in_lines && plain.len() > 20_000 {
            let end = plain[..MAX_INPUT_BYTES]
                .iter()
                .rposition(|&b| b == b'\n')
                .unwrap();
            plain.truncate(end + 1);
        }
        plain
    };
    let seeds = files.iter().map(seed);
    seeds.filter(|seed| seed.len() < 20_000).collect()
}

fn inflate(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut plain = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(bytes)
            .read_to_end(&mut plain)
            .unwrap();
    } else if bytes.starts_with(b"\x28\xb5\x2f\xfd") {
        ruzstd::decoding::StreamingDecoder::new(bytes)
            .unwrap()
            .read_to_end(&mut plain)
            .unwrap();
    } else {
        plain.extend_from_slice(bytes);
    }
    plain
}
