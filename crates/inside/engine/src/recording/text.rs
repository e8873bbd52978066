//! Writes gperftools' text format of a heap profile: one line for each stack, then the mappings.
//!
//! A line `# …` reports facts for which the format has no field: that values are estimates, or that
//! a stack was cut.
//!
//! The format is that of gperftools, heap-profile-table.cc: `objects: bytes [allocated objects:
//! bytes] @ addresses`. Stacks begin with the leaf, and return addresses are written unchanged.

use std::io::{self, Write};

use heapprof_abi::{FrameWord, StackNumber};

use crate::engine::Engine;
use crate::recording::snapshot::SnapshotTotals;
use crate::recording::sums::{self, StackSums};
use crate::stack::capture::CUT;
use heapprof_platform::maps;

/// Writes the profile as text.
pub(super) fn write(engine: &Engine, writer: &mut dyn Write) -> io::Result<SnapshotTotals> {
    let sums = sums::sums(engine);
    let mut order: Vec<usize> = (0..sums.len())
        .filter(|&i| sums[i].allocated != [0, 0])
        .collect();
    order.sort_by_key(|&i| std::cmp::Reverse(sums[i].in_use()[1]));
    let total = sums.iter().fold(StackSums::default(), |mut total, sum| {
        for i in 0..2 {
            total.allocated[i] += sum.allocated[i];
            total.freed[i] += sum.freed[i];
            total.peak[i] += sum.peak[i];
        }
        total
    });
    let totals = SnapshotTotals {
        in_use: total.in_use()[1],
        peak: total.peak[1],
        stacks: order.len(),
    };
    write!(writer, "heap profile: ")?;
    write_line(writer, &total)?;
    // Estimates are unsampled already, so a reader must not do it again.
    writeln!(writer, " @ heapprofile")?;
    let mut frames = Vec::new();
    for id in order {
        write_line(writer, &sums[id])?;
        write!(writer, " @")?;
        engine
            .ledger
            .stacks
            .read(StackNumber::from_index(id), &mut frames);
        let is_native = |&word: &u64| matches!(FrameWord::from_word(word), FrameWord::Address(_));
        for &pc in frames.iter().filter(|pc| **pc != CUT && is_native(pc)) {
            write!(writer, " {pc:#018x}")?;
        }
        writeln!(writer)?;
        if frames
            .iter()
            .any(|&word| matches!(FrameWord::from_word(word), FrameWord::Frame(_)))
        {
            writeln!(
                writer,
                "# the stack above has an interpreter's frames, which have no address"
            )?;
        }
        // Readers skip such a line, whereas they would take an address for a frame.
        if frames.contains(&CUT) {
            writeln!(writer, "# the stack above was cut in the middle")?;
        }
    }
    let recorded = &engine.process.recorded;
    if !recorded.is_exact() {
        let period = recorded.period();
        writeln!(
            writer,
            "# sampled, one in {period} bytes; values are estimates"
        )?;
    }
    write!(writer, "\nMAPPED_LIBRARIES:\n")?;
    let mut result = Ok(());
    maps::for_each_line::<8192>(|line| {
        if result.is_ok() {
            result = writer
                .write_all(line)
                .and_then(|()| writer.write_all(b"\n"));
        }
    });
    result.map(|()| totals)
}

fn write_line(writer: &mut dyn Write, sums: &StackSums) -> io::Result<()> {
    let (in_use, allocated) = (sums.in_use(), sums.allocated);
    write!(
        writer,
        "{:6}: {:8} [{:6}: {:8}]",
        in_use[0], in_use[1], allocated[0], allocated[1]
    )
}
