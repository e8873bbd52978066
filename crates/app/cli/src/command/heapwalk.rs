//! `heapprof heap blocks`: reports which blocks of a heap have leaked, from outside.

use anyhow::{Context, Result, bail};
use heapprof_heap::{BlockKinds, ChunkMarks, HeapSummary, MallocHeap};
use heapprof_inspect::{MissingStacks, WalkTarget, blocks_profile};
use heapprof_recorder::outside::OutsideProcess;
use heapprof_report::{
    HeapDescriber, HeapWalkReport, ReportFormat, ReportStyle, UnitFormatter, unwalked_parts,
};

use super::target::{self, with_advice};
use crate::args::HeapwalkArgs;
use crate::context::{CommandContext, row_limit, screen_width};
use crate::{messages, name, output, process_choice};

pub(super) fn run(context: &CommandContext, args: &HeapwalkArgs) -> Result<()> {
    // Errors that can be found early are reported before a process is stopped.
    UnitFormatter::new("bytes", args.unit.as_deref())?;
    if args.bytes.is_some() && args.format != ReportFormat::Text {
        bail!("--bytes: is text only; leave --format out");
    }
    let (target, image, mut notes) = target::open(&args.target, args.exe.as_deref())?;
    if !target.has_program()? {
        notes.push(
            "the program's file was moved or changed; give it with --exe FILE to see names"
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
                "{}: is the core file being read; give another file",
                path.display()
            );
        }
        let made = blocks_profile(&target, &mut words)?;
        match &made.missing {
            Some(MissingStacks::Unread(error)) => messages::note(&format!("no stacks: {error}")),
            Some(MissingStacks::Unknown { with_stack, leaked }) => messages::note(&format!(
                "{with_stack} of {leaked} leaked blocks have the stack that allocated them; record \
                 --exact records it for all"
            )),
            None => {}
        }
        output::profile(args.file_mode.mode()?, Some(path), |out| {
            Ok(heapprof_profile::encode(&made.profile, out)?)
        })?;
        let shown = path.display();
        messages::note(&format!("{shown}: written; next: heapprof top {shown}"));
    }
    let lacks = unwalked_parts(&image, &heap);
    let text = report(context, args, &target, &mut words, notes, lacks)?;
    output::text(None, &text)?;
    note_next(args);
    Ok(())
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
        width: screen_width(None),
        unit: args.unit.clone(),
        ..ReportStyle::default()
    };
    let limit = row_limit(&args.limit, None);
    let name = name::shown(&args.target).into_owned();
    let in_no_block = |at: u64| format!("{at:#x}: is not in any block of this heap");
    let about = match (args.who, args.bytes, args.retained) {
        (Some(at), ..) => Some(heapprof_report::heapwalk_who(
            &words
                .find_pointers_to(at)
                .with_context(|| in_no_block(at))?,
            limit,
            &style,
        )?),
        (_, Some(at), _) => Some(words.bytes(at).with_context(|| in_no_block(at))?),
        (.., true) => {
            let (rows, left_out) = words.most_retained();
            if left_out > 0 {
                messages::note(&format!("{left_out} more rows are left out"));
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
    if args.allocator {
        return Ok(heapprof_report::heapwalk_allocator(&walk, limit, &style)?);
    }
    Ok(heapprof_report::heapwalk(&walk, limit, &style)?)
}

/// Notes the command that answers the next question about a process that nobody records.
fn note_next(args: &HeapwalkArgs) {
    let is_all = args.who.is_none() && args.bytes.is_none() && !args.retained && !args.allocator;
    let is_process = !args.target.starts_with("core:");
    let is_recorded = || OutsideProcess::find(&args.target).is_ok();
    let is_refused = || process_choice::find(&args.target).is_ok_and(heapprof_attach::is_refused);
    if is_all
        && is_process
        && args.format == ReportFormat::Text
        && args.output.is_none()
        && !is_recorded()
        && !is_refused()
    {
        let target = name::quoted(name::path(&args.target).as_os_str());
        messages::note(&format!(
            "next: heapprof attach {target} --for 1m: which functions allocate, from now on"
        ));
    }
}
