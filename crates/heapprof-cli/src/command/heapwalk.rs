//! `heapprof heapwalk`: what of a heap has leaked, from outside.

mod join;

use std::fs::File;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use heapprof_heapwalk::{
    Error, Heap, Image, Marks, Source, State, Summary, block_content, capture, of_core, referrers,
    retained,
};
use heapprof_report::{Format, Measure, PointedTo, RetainedBlock, Style, Walk};

use super::Shared;
use crate::args::HeapwalkArgs;
use crate::{messages, name, named_process, output};

/// The most blocks of which it is told what they retain.
const MOST_RETAINED: usize = 10_000;
/// How many bytes of a block are shown.
const SHOWN: u64 = 4096;

/// What is walked.
pub(super) enum Target {
    Process(u32),
    Core,
}

pub(super) fn run(shared: &Shared, args: &HeapwalkArgs) -> Result<()> {
    let (target, image, mut notes) = image(&args.target)?;
    let heap = Heap::walk(&image).map_err(|error| advised(&args.target, &error))?;
    let marks = Marks::new(&image, &heap);
    notes.extend(lacks(&image, &heap));
    let style = Style {
        format: args.format,
        color: shared.is_coloured(None),
        unit: args.unit.clone(),
        ..Style::default()
    };
    let walk = || Walk {
        name: name::shown(&args.target).into_owned(),
        notes: notes.clone(),
        summary: Summary::new(&image, &heap, &marks),
    };
    let text = if let Some(at) = args.who {
        heapprof_report::heapwalk_who(&who(&image, &heap, &marks, at)?, &style)?
    } else if let Some(at) = args.bytes {
        if args.format != Format::Text {
            bail!("--bytes: is text only; leave --format out");
        }
        bytes(&image, &heap, &marks, at)?
    } else if args.retained {
        let rows = most_retained(&image, &heap, &marks);
        let name = name::shown(&args.target);
        heapprof_report::heapwalk_retained(&name, &rows, shared.rows(&args.limit, None), &style)?
    } else if args.allocator {
        heapprof_report::heapwalk_allocator(&walk(), &style)?
    } else {
        let limit = shared.rows(&args.limit, None);
        heapprof_report::heapwalk(&walk(), limit, &style)?
    };
    if let Some(path) = &args.output {
        let profile = join::profile(&target, &image, &heap, &marks)?;
        output::profile(args.file_mode.mode()?, Some(path), |out| {
            Ok(heapprof_profile::encode(&profile, out)?)
        })?;
        let shown = path.display();
        messages::note(&format!("{shown}: is written; next: heapprof top {shown}"));
    }
    output::text(None, &text)
}

/// The memory that is walked, with notes about it.
fn image(target: &str) -> Result<(Target, Image, Vec<String>)> {
    if let Some(path) = target.strip_prefix("core:") {
        let path = name::path(path);
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        let image = of_core(&file).map_err(|error| advised(target, &error))?;
        return Ok((Target::Core, image, Vec::new()));
    }
    let pid = named_process::find(target)?;
    let captured = capture(pid).map_err(|error| advised(target, &error))?;
    let bytes = Measure::new("bytes", None)?;
    let note = format!(
        "it was held for {} while {} were copied",
        millis(captured.held),
        bytes.show(i128::from(captured.copied))
    );
    Ok((Target::Process(pid), captured.image, vec![note]))
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// An error with what to do about it.
fn advised(target: &str, error: &Error) -> anyhow::Error {
    let advice = match error {
        Error::NotAllowed => {
            "; ask as its user or as root (where kernel.yama.ptrace_scope is not 0, as root)"
        }
        Error::Traced(_) => "; end that first",
        Error::Busy(_) => "; try again",
        _ => "",
    };
    anyhow!("{}: {error}{advice}", name::shown(target))
}

/// What could not be walked.
fn lacks(image: &Image, heap: &Heap) -> Vec<String> {
    let mut notes = Vec::new();
    let unwalked: u64 = heap
        .unwalked
        .iter()
        .map(|range| range.end - range.start)
        .sum();
    if unwalked > 0 {
        notes.push(format!(
            "{unwalked} bytes could not be walked, because what malloc noted there is damaged; \
             what they point to counts as reached"
        ));
    }
    if heap.broken_links > 0 {
        notes.push(format!(
            "{} lists of free blocks lead nowhere, so some free blocks may be taken for leaked",
            heap.broken_links
        ));
    }
    if image.missing > 0 {
        notes.push(format!(
            "{} bytes of memory are missing; what only they point to is taken for leaked",
            image.missing
        ));
    }
    notes
}

/// The block at an address.
fn block(heap: &Heap, at: u64) -> Result<usize> {
    heap.find(at)
        .with_context(|| format!("{at:#x}: is in no block of this heap"))
}

/// A block in words.
fn called(image: &Image, heap: &Heap, marks: &Marks, number: usize) -> String {
    let chunk = &heap.chunks[number];
    let content = match marks.states[number] {
        State::Free => String::new(),
        _ => format!(", {}", block_content(image, heap, chunk).name()),
    };
    format!(
        "{:#x}, {} B, {}{content}",
        chunk.at,
        chunk.size,
        marks.states[number].name()
    )
}

/// A source in words.
fn source(image: &Image, heap: &Heap, marks: &Marks, at: u64, source: Source) -> String {
    match source {
        Source::Nothing => "nothing".to_string(),
        Source::Register(thread) => {
            let tid = image
                .threads
                .get(thread as usize)
                .map_or(0, |thread| thread.tid);
            format!("a register of thread {tid}")
        }
        Source::Root(root) => {
            let is_stack = |region: &heapprof_heapwalk::Region| {
                let range = region.range();
                image
                    .threads
                    .iter()
                    .find(|thread| range.contains(&thread.stack))
                    .cloned()
            };
            let region = image.region(root);
            match region.map(|region| (region.name.as_str(), is_stack(region))) {
                Some((_, Some(thread))) => format!("{root:#x}, the stack of thread {}", thread.tid),
                Some(("", None)) | None => format!("{root:#x}, memory of no file"),
                Some((name, None)) => format!("{root:#x}, {name}"),
            }
        }
        Source::Chunk(number) => {
            let chunk = &heap.chunks[number as usize];
            let words = called(image, heap, marks, number as usize);
            match at.checked_sub(chunk.at) {
                Some(offset) if at != 0 => format!("+{offset} of the block {words}"),
                _ => format!("the block {words}"),
            }
        }
    }
}

fn who(image: &Image, heap: &Heap, marks: &Marks, at: u64) -> Result<PointedTo> {
    let number = block(heap, at)?;
    let (way, root) = marks.way(number);
    let mut steps = Vec::new();
    if root != Source::Nothing {
        steps.push(source(image, heap, marks, 0, root));
        let blocks = way.iter().rev();
        steps.extend(
            blocks.map(|&block| format!("the block {}", called(image, heap, marks, block))),
        );
    }
    let found = referrers(image, heap, marks, number).into_iter();
    Ok(PointedTo {
        block: called(image, heap, marks, number),
        way: steps,
        referrers: found
            .map(|one| (source(image, heap, marks, one.at, one.source), one.offset))
            .collect(),
    })
}

/// The blocks through which others are reached, the one that retains most first.
fn most_retained(image: &Image, heap: &Heap, marks: &Marks) -> Vec<RetainedBlock> {
    let retained = retained(image, heap, marks);
    let mut blocks: Vec<usize> = (0..retained.len())
        .filter(|&block| retained[block] > heap.chunks[block].size)
        .collect();
    blocks.sort_by_key(|&block| (std::cmp::Reverse(retained[block]), block));
    blocks.truncate(MOST_RETAINED);
    blocks
        .into_iter()
        .map(|block| RetainedBlock {
            retained: retained[block],
            size: heap.chunks[block].size,
            at: heap.chunks[block].at,
            content: block_content(image, heap, &heap.chunks[block]).name(),
            root: source(image, heap, marks, 0, marks.way(block).1),
        })
        .collect()
}

/// The bytes of a block as a table of hexadecimal numbers and text.
fn bytes(image: &Image, heap: &Heap, marks: &Marks, at: u64) -> Result<String> {
    let number = block(heap, at)?;
    let chunk = &heap.chunks[number];
    let shown = image.bytes(chunk.at..chunk.at + chunk.size.min(SHOWN));
    let mut text = format!("{}\n", called(image, heap, marks, number));
    for (row, at) in shown.chunks(16).zip((chunk.at..).step_by(16)) {
        let hex: Vec<String> = row.iter().map(|byte| format!("{byte:02x}")).collect();
        let letter = |byte: &u8| match byte {
            0x20..0x7f => char::from(*byte),
            _ => '.',
        };
        let letters: String = row.iter().map(letter).collect();
        text += &format!("{at:#x}  {:<47}  {letters}\n", hex.join(" "));
    }
    let left = chunk.size.saturating_sub(shown.len() as u64);
    if left > 0 {
        text += &format!("({left} bytes more)\n");
    }
    Ok(text)
}
