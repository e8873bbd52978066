//! `heapprof heapwalk`: reports which blocks of a heap have leaked, from outside.

mod join;
mod words;

use anyhow::{Result, bail};
use heapprof_heap::{BlockKinds, ChunkMarks, HeapSummary, MallocHeap, ProcessImage};
use heapprof_report::{HeapWalkReport, ReportFormat, ReportStyle, UnitFormatter};

use self::words::HeapDescriber;
use super::target::{WalkTarget, with_advice};
use crate::args::HeapwalkArgs;
use crate::context::CommandContext;
use crate::{messages, name, output};

pub(super) fn run(context: &CommandContext, args: &HeapwalkArgs) -> Result<()> {
    // Errors that can be found early are reported before a process is stopped.
    UnitFormatter::new("bytes", args.unit.as_deref())?;
    if args.bytes.is_some() && args.format != ReportFormat::Text {
        bail!("--bytes: is text only; leave --format out");
    }
    let (target, image, mut notes) = WalkTarget::open(&args.target, args.exe.as_deref())?;
    if !target.has_program()? {
        notes.push(
            "the program's file is not where it was, or was changed; --exe FILE says where it is, \
             and gives names"
                .to_string(),
        );
    }
    let heap = MallocHeap::walk(&image).map_err(|error| with_advice(&args.target, error))?;
    let marks = ChunkMarks::new(&image, &heap);
    let mut words = HeapDescriber {
        image: &image,
        heap: &heap,
        marks: &marks,
        kinds: BlockKinds::new(&image, &heap, |address| target.name(&image, address)),
        variable: Box::new(|address| target.variable(&image, address)),
    };
    if let Some(path) = &args.output {
        if target.is_file(path) {
            bail!(
                "{}: is the core file that is walked; name another file",
                path.display()
            );
        }
        let profile = join::profile(&target, &mut words)?;
        output::profile(args.file_mode.mode()?, Some(path), |out| {
            Ok(heapprof_profile::encode(&profile, out)?)
        })?;
        let shown = path.display();
        messages::note(&format!("{shown}: is written; next: heapprof top {shown}"));
    }
    let lacks = lacks(&image, &heap);
    output::text(
        None,
        &report(context, args, &target, &mut words, notes, lacks)?,
    )
}

fn report(
    context: &CommandContext,
    args: &HeapwalkArgs,
    target: &WalkTarget,
    words: &mut HeapDescriber<'_>,
    mut notes: Vec<String>,
    lacks: Vec<String>,
) -> Result<String> {
    let style = ReportStyle {
        format: args.format,
        color: context.is_coloured(None),
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let limit = context.rows(&args.limit, None);
    let name = name::shown(&args.target).into_owned();
    let about = match (args.who, args.bytes, args.retained) {
        (Some(at), ..) => Some(heapprof_report::heapwalk_who(
            &words.find_pointers_to(at)?,
            limit,
            &style,
        )?),
        (_, Some(at), _) => Some(words.bytes(at)?),
        (.., true) => {
            let (rows, left_out) = words.most_retained();
            if left_out > 0 {
                messages::note(&format!("{left_out} rows more are left out"));
            }
            let retained = heapprof_report::heapwalk_retained(&name, &rows, limit, &style)?;
            Some(retained)
        }
        _ => None,
    };
    if let Some(about) = about {
        // These reports have no room for the parts that could not be walked.
        lacks.iter().for_each(|note| messages::note(note));
        return Ok(about);
    }
    notes.extend(lacks);
    let summary = HeapSummary::new(words.image, words.heap, words.marks, &mut words.kinds);
    if summary.broken_bins > 0 {
        notes.push(format!(
            "{} bins of free blocks are damaged; what they lead to is not known",
            summary.broken_bins
        ));
    }
    if args.allocator
        && let Some(release) = target.release(words.image)
    {
        notes.push(format!("glibc {release}"));
    }
    let walk = HeapWalkReport {
        name,
        notes,
        summary,
    };
    Ok(match args.allocator {
        true => heapprof_report::heapwalk_allocator(&walk, limit, &style)?,
        false => heapprof_report::heapwalk(&walk, limit, &style)?,
    })
}

/// Describes the parts of the memory that could not be walked.
fn lacks(image: &ProcessImage, heap: &MallocHeap) -> Vec<String> {
    let mut notes = Vec::new();
    let unwalked = heap.unwalked_bytes();
    if unwalked > 0 {
        notes.push(format!(
            "{unwalked} bytes could not be walked, because what malloc noted there is damaged; \
             what they point to counts as reached"
        ));
    }
    if !heap.has_all_arenas {
        notes.push(
            "malloc's list of arenas is damaged or cut off; blocks of arenas that are missing in \
             it are not counted"
                .to_string(),
        );
    }
    if heap.missing_main_bytes > 0 {
        notes.push(format!(
            "about {} bytes of the main arena were not found, because it could not have them in \
             the heap (brk); blocks there are not counted, and what they point to counts as reached",
            heap.missing_main_bytes
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
