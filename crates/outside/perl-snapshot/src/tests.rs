//! Tests the walk with a core file of docs/examples/market.pl, and with damaged copies of it.

use std::fs::File;
use std::path::Path;

use heapprof_heap::{CoreMemory, MallocHeap, ProcessImage};
use heapprof_perl_values::{ElementLookup, PerlValueAnalysis};

use crate::{ImageElements, PerlSnapshot, PerlWalkError, contents, walk};

fn core() -> CoreMemory {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = folder.join("../../../sample-profiles/cores/market.core");
    CoreMemory::open(File::open(path).unwrap(), None).unwrap()
}

/// Changes the memory of the core file, and walks it.
fn walked(
    change: impl FnOnce(&mut ProcessImage),
) -> (ProcessImage, Result<PerlSnapshot, PerlWalkError>) {
    let core = core();
    let mut image = core.image().unwrap();
    change(&mut image);
    let heap = MallocHeap::walk(&image).ok();
    let walked = walk(&image, &core, heap.as_ref(), None);
    (image, walked)
}

#[test]
fn all_that_malloc_has_given_out_is_somebodys() {
    let (_, walked) = walked(|_| {});
    let walked = walked.unwrap();
    assert_eq!(walked.version.to_string(), "5.36.0");
    let [interpreter] = &walked.interpreters[..] else {
        panic!("{:?}", walked.interpreters);
    };
    assert_eq!(interpreter.found_count(), interpreter.reported_count);
    let malloc = walked.malloc.unwrap();
    let values = walked.values.all();
    let sum = |of: fn(&heapprof_perl_values::PerlValue) -> u64| values.iter().map(of).sum::<u64>();
    assert_eq!(sum(|value| value.size), malloc.bytes);
    assert!(sum(|value| value.asked) < malloc.bytes);
    let of_perl = values.iter().filter(|value| value.kind.is_value()).count();
    assert_eq!(of_perl as u64, interpreter.reported_count);
    assert!(!walked.is_damaged);
}

#[test]
fn planted_rings_and_texts_are_found() {
    let (image, walked) = walked(|_| {});
    let found = PerlValueAnalysis::new(walked.unwrap().values);
    let cycles = found.cycles();
    assert_eq!(cycles.len(), 1, "{cycles:?}");
    assert_eq!(
        (cycles[0].count, cycles[0].closed_by.as_str()),
        (10, "{self}")
    );
    let address = |text: &str| {
        let number = found.variable(text, &()).unwrap();
        found.values().get(number).address
    };
    let shown = |text: &str, limit| contents(&image, address(text), limit).unwrap();
    assert_eq!(shown("$SECRET", 200), "the key of the till");
    assert_eq!(shown("$SECRET", 7), "the key… (19 bytes)");
    assert_eq!(shown("$CACHE{7}{lines}[4]", 200), "5");
    assert_eq!(contents(&image, address("%CACHE"), 200), None);
    let inside = ImageElements(&image);
    let cache = address("%CACHE");
    assert_eq!(inside.find_key(cache, "7"), Some(address("$CACHE{7}")));
    assert_eq!(
        (inside.find_key(cache, "none"), inside.array_length(cache)),
        (None, None)
    );
    let lines = found
        .values()
        .get(found.variable("$CACHE{7}{lines}", &inside).unwrap());
    let lines = image.word(lines.address + 16).unwrap();
    assert_eq!(inside.array_length(lines), Some(5));
}

/// Tests that an address in the memory of a value leads to the value.
#[test]
fn an_address_has_an_owner() {
    let core = core();
    let image = core.image().unwrap();
    let heap = MallocHeap::walk(&image).unwrap();
    let found = PerlValueAnalysis::new(walk(&image, &core, Some(&heap), None).unwrap().values);
    let number = found.variable("$SECRET", &()).unwrap();
    let value = found.values().get(number).address;
    // Addresses of the value's text, the first and the last word of its body, and the middle of its
    // head.
    let [any, _, text] = [0, 8, 16].map(|at| image.word(value + at).unwrap());
    for place in [text, any + 0x10, any + 0x18, value + 5].map(Some) {
        let walked = walk(&image, &core, Some(&heap), place).unwrap();
        assert_eq!(walked.owner, Some(value), "{place:x?}");
    }
}

/// Tests that the requested sizes are used if malloc's chunks are not known.
#[test]
fn another_malloc_leaves_what_was_asked_for() {
    let core = core();
    let image = core.image().unwrap();
    let walked = walk(&image, &core, None, None).unwrap();
    assert!(walked.malloc.is_none());
    let values = walked.values.all().iter();
    let sum: u64 = values.map(|value| value.size).sum();
    assert!((150_000..300_000).contains(&sum), "{sum}");
}

/// Tests a perl that uses a malloc other than the C library's: the arenas of this perl are in no
/// chunk of the C library's heap, so sizes must not come from these chunks.
#[test]
fn arenas_in_no_chunk_are_those_of_another_malloc() {
    let core = core();
    let image = core.image().unwrap();
    let mut heap = MallocHeap::walk(&image).unwrap();
    let sums = |heap: Option<&MallocHeap>| {
        let walked = walk(&image, &core, heap, None).unwrap();
        let sum: u64 = walked.values.all().iter().map(|value| value.size).sum();
        (walked.malloc.is_some(), walked.has_other_malloc, sum)
    };
    let (is_known, is_other, _) = sums(Some(&heap));
    assert!(is_known && !is_other);
    heap.chunks.iter_mut().for_each(|chunk| chunk.at += 1 << 40);
    let (is_known, is_other, sum) = sums(Some(&heap));
    assert!(!is_known && is_other);
    assert_eq!((false, false, sum), sums(None));
}

/// Tests that a changed word of memory never causes a panic. Other values, or an error, are
/// allowed.
#[test]
fn damage_is_no_panic() {
    let mut state = 7u64;
    let mut draw = |most: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % most
    };
    let mut differ = 0;
    for round in 0..60 {
        let (_, walked) = walked(|image| {
            let mut regions = image.regions().to_vec();
            for _ in 0..1 << (round % 8) {
                let count = regions.len();
                let region = &mut regions[draw(count)];
                let words = region.bytes.len() / 8;
                if words == 0 {
                    continue;
                }
                let (at, other) = (8 * draw(words), 8 * draw(words));
                let word = match draw(4) {
                    0 => u64::MAX,
                    1 => draw(1 << 31) as u64,
                    // A place in the same memory.
                    2 => region.start + other as u64,
                    _ => u64::from_le_bytes(*region.bytes[other..].first_chunk().unwrap()),
                };
                region.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
            }
            let threads = std::mem::take(&mut image.threads);
            let before = std::mem::take(image);
            *image = ProcessImage::new(regions, threads, 0);
            image.files = before.files;
            image.mapped = before.mapped;
            image.auxiliary = before.auxiliary;
        });
        let Ok(walked) = walked else {
            differ += 1;
            continue;
        };
        let interpreter = &walked.interpreters[0];
        differ += u32::from(interpreter.found_count() != interpreter.reported_count);
        let found = PerlValueAnalysis::new(walked.values);
        let summary = found.summary();
        let kinds: u64 = summary.kinds.iter().map(|(_, sum)| sum.bytes).sum();
        assert_eq!(kinds, summary.all.bytes);
        drop((found.cycles(), found.pads(), found.profile()));
    }
    assert!(differ > 0);
}
