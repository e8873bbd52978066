//! Reports in the forms that people and programs read: text, JSON, CSV, Markdown, folded stacks,
//! flame graphs.
//!
//! Each report has a file of its own that turns the rows of `heapprof-analysis` into a table or a
//! JSON value. The look of tables is decided in one place. Nothing in this crate uses SQL, HTTP or
//! the command line.
#![forbid(unsafe_code)]

mod advice;
mod assembly;
mod bench;
mod chart;
mod compare_allocators;
mod convert;
mod coverage;
mod diff;
mod difference;
mod error;
mod flame;
mod fold;
mod fork_audit;
mod glyphs;
mod growth;
mod head;
mod heapwalk;
mod info;
mod json;
mod leaks;
mod line_growth;
mod list;
mod measure;
mod names;
mod next;
mod page_colours;
mod peek;
mod perl_heap;
mod process;
mod process_list;
mod profile_list;
mod range;
mod schema;
mod series;
mod sql;
mod stats;
mod style;
mod table;
mod tags;
mod timeline;
mod top;
mod traces;
mod tree;
mod watch;
mod why;
mod wiretap;

pub use crate::why::{
    AnswerPart, AnswerRecording, AnswerTotal, MemoryAnswer, NextCommand, PartHolder, PartKind, why,
};
pub use crate::{
    advice::{AdviceWords, ReportAdvice},
    assembly::{ListAssembly, list_assembly, write_list_assembly},
    bench::{CandidatePeaks, PeakComparison, peaks},
    compare_allocators::{AllocatorCandidate, AllocatorComparison, HeapInUse, comparison},
    convert::{FoldedWriter, profile_csv, profile_json},
    coverage::{beside_heap, coverage, early_ends, unseen_frees},
    diff::{diff, passed_line, violation_line},
    error::ReportError,
    flame::{FlameOptions, FlameRootPosition, flame_folded, flame_svg},
    fork_audit::{fork_audit, fork_document, fork_violation_line},
    glyphs::{DotGrid, bar, sparkline},
    growth::growth,
    heapwalk::{
        HeapWalkReport,
        allocator::heapwalk_allocator,
        heapwalk,
        points::{BlockReferrers, RetainedBlock, heapwalk_retained, heapwalk_who},
        words::{HeapDescriber, unwalked_parts},
    },
    info::info,
    leaks::{leaks, value_line},
    line_growth::LineGrowth,
    list::{SourceText, list},
    measure::{UnitFormatter, percent, plural, time_utc},
    peek::peek,
    perl_heap::{
        PerlHeap, perl_cycles, perl_heap, perl_leaked, perl_pads,
        value_facts::{perl_identify, perl_size, perl_who},
    },
    process::{
        ListedProcess, ProcessOptions, ProcessParts, ProcessRow, ProcessSnapshot, process,
        process_difference, processes,
    },
    process_list::{RecordedProcess, recorded_processes},
    profile_list::stored_profiles,
    range::{give_or_take, share as estimate_share},
    schema::schema,
    series::series,
    sql::{result_table, write_result_table},
    stats::stats,
    style::{ReportFormat, ReportStyle},
    tags::tags,
    timeline::timeline,
    top::{SourceLine, top},
    traces::{TraceOrder, traces},
    tree::tree,
    watch::watch,
    wiretap::wiretap,
};
