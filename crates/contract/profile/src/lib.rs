//! The pprof heap profile: the model of a profile that heapprof's crates share.
//!
//! A [`Profile`] is a list of samples (a stack, values, labels) and the tables that explain them
//! (mappings, locations, functions, text). This crate decodes profiles as a stream, from gzipped or
//! plain protobuf. It also encodes, merges, negates, scales and converts them. It knows nothing
//! about SQLite, symbol files, the environment or the terminal.
//!
//! ```
//! use heapprof_profile::{ProfileBuilder, decode, encode};
//!
//! let mut builder = ProfileBuilder::new(&[("inuse_objects", "count"), ("inuse_space", "bytes")]);
//! builder.add_folded("main;parse;alloc", &[3, 96]);
//! let profile = builder.finish();
//!
//! let mut file = Vec::new();
//! encode(&profile, &mut file)?;
//! assert_eq!(decode(&file[..])?, profile);
//! # Ok::<(), heapprof_profile::Error>(())
//! ```
//!
//! # Where to begin
//!
//! * [`decode()`] reads a profile, and [`decode_with`] reads it within limits of the caller's
//!   choice.
//! * [`ProfileBuilder`] makes a profile, and [`encode()`] writes it.
//! * [`merge()`] and [`merge_all`] add profiles up. To subtract a profile, add its
//!   [negated](Profile::negate) form.
//! * [`Samples::retain`] filters samples, and [`Profile::find_sample_type`] finds a sample type.
//!
//! # For pprof's results and for collectors
//!
//! Most callers do not need these functions. The documentation of each one says whom it is for. In
//! short:
//!
//! * [`merge_as_pprof`], [`Profile::scale_as_pprof`] and [`Profile::normalize_as_pprof`] give the
//!   same results as pprof, even where pprof loses data. A tool that stands in for pprof needs
//!   them. [`Profile::name_in_use`] is for tools that add profiles up by pprof's rules.
//! * [`encode_samples_quickly`] writes samples that are made one by one, from inside the program
//!   that is profiled.
#![forbid(unsafe_code)]

mod allocators;
mod builder;
mod command_line;
mod decode;
mod early_ends;
mod encode;
mod equality;
mod error;
pub mod fork;
mod hashing;
mod history;
mod hooked_allocator;
mod id_map;
mod inflate;
mod linker_name;
mod merge;
mod model;
mod pack;
mod parts;
mod peak_parts;
#[allow(missing_docs, unreachable_pub, dead_code)]
#[cfg(test)]
mod proto;
pub mod recording;
pub mod recording_texts;
mod sample_type;
mod scale;
mod strings;
mod unit;
mod varint;
mod wire;

pub use crate::{
    allocators::{ALLOCATION_WRAPPERS, ALLOCATOR_REGEX, after_allocators},
    builder::{FrameText, ProfileBuilder},
    decode::{ReadOptions, decode, decode_with},
    early_ends::{EarlyEndCounts, EarlyEndReason, EarlyEnds},
    encode::{EncodeOptions, Gzip, QuickSample, encode, encode_samples_quickly, encode_with},
    error::{Error, GzipDefect, ProfileElement, Warning, WireDefect},
    history::{
        HeapHistory, HeapMoment, HeapPeak, ResidentMoment, SIZE_CLASS_COUNT, SizeClass,
        SizeHistogram, class_of, is_for_machines,
    },
    hooked_allocator::HookedAllocator,
    inflate::InflateReader,
    linker_name::{is_legacy_rust_name, is_rust_name},
    merge::{UnitRules, agree_addresses, agree_units, merge, merge_all, merge_as_pprof},
    model::{
        Function, FunctionIndex, Label, LabelSetIndex, LabelSets, Line, Location, LocationIndex,
        Mapping, MappingIndex, Profile, Samples, ValueType, is_place_of_code, spread::SampleSpread,
    },
    peak_parts::PeakPart,
    sample_type::{
        IN_USE, PEAK, SampleTypeError, common_default, default_of_finished_program,
        default_sample_type, find_sample_type,
    },
    strings::{StringId, StringTable},
    unit::{Unit, UnitFamily, parse_bytes},
};

/// Examples of README.md, which run as tests, too.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
