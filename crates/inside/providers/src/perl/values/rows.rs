//! The live values, counted by the stack that made them, their type and their class.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use heapprof_engine::StackNumber;
use heapprof_perl::{BoundedText, HEAD_BYTES, PerlRuntime, SvHead, class_of};

use super::heads::{RESTING_STACK, UNSEEN_STACK};
use super::mapped_list::{MappedVec, NumberMultimap, PlainNumbers};
use super::traced_interpreter::TracedInterpreter;
use crate::kernel_memory::KernelMemory;
use crate::perl::arena_values::ArenaValues;

/// Number and size of the values that have the same stack and label.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(in crate::perl) struct PerlValueRow {
    pub(in crate::perl) stack: StackNumber,
    /// Origin of the interpreter: 1 if it was copied for a thread, else 0. Rows with a known stack
    /// do not need it.
    pub(in crate::perl) origin: u32,
    /// The type, the class and the mark, packed by `make_label`.
    pub(in crate::perl) label: u64,
    pub(in crate::perl) made: u64,
    pub(in crate::perl) objects: u64,
    pub(in crate::perl) bytes: u64,
}

impl PerlValueRow {
    /// A row without values.
    pub(in crate::perl) const NOTHING: Self = Self {
        stack: StackNumber::from_u32(0),
        origin: 0,
        label: 0,
        made: 0,
        objects: 0,
        bytes: 0,
    };
}

// SAFETY: it is made of numbers.
unsafe impl PlainNumbers for PerlValueRow {}

/// Texts of labels (classes and marks), by number.
pub(in crate::perl) struct PerlLabelTexts {
    /// All texts, one after the other. The field `ends` holds the end of each text.
    texts: MappedVec<u8>,
    ends: MappedVec<u64>,
    by_hash: NumberMultimap,
}

/// Rows of values. The first `merged` rows are sorted and distinct.
pub(in crate::perl) struct PerlValueRows {
    all: MappedVec<PerlValueRow>,
    merged: usize,
}

/// Minimum number of rows at which rows are merged.
const MERGE_BATCH_LEN: usize = 64 << 10;
/// Number of bits for a class's number in a label.
const CLASS_BITS: u32 = 22;
/// Number of bits for a mark's number in a label.
const MARK_BITS: u32 = 16;
/// Flag that distinguishes labels of values from labels of stacks.
pub(in crate::perl) const IS_VALUE: u64 = 1 << 47;
/// Number of bits for a type in a label of values; 0 means no type.
const TYPE_BITS: u32 = 5;

/// Splits a label into the type plus 1, the class and the mark. A 0 means that the part is missing.
pub(in crate::perl) fn split_label(label: u64) -> (u8, u32, u32) {
    let of = |from: u32, bits: u32| (label >> from) & ((1 << bits) - 1);
    (
        of(0, TYPE_BITS) as u8,
        of(TYPE_BITS, CLASS_BITS) as u32,
        of(TYPE_BITS + CLASS_BITS, MARK_BITS) as u32,
    )
}

fn make_label(name: u8, class: u32, mark: u32) -> u64 {
    let mark = u64::from(mark.min((1 << MARK_BITS) - 1));
    IS_VALUE
        | (u64::from(name) + 1)
        | u64::from(class) << TYPE_BITS
        | mark << (TYPE_BITS + CLASS_BITS)
}

const _: () = assert!(TYPE_BITS + CLASS_BITS + MARK_BITS < 47);

impl PerlLabelTexts {
    pub(in crate::perl) const fn new() -> Self {
        Self {
            texts: MappedVec::new(),
            ends: MappedVec::new(),
            by_hash: NumberMultimap::new(),
        }
    }

    /// Returns the text with this number, from 1 on.
    pub(in crate::perl) fn text(&self, number: u32) -> Option<&[u8]> {
        let at = (number as usize).checked_sub(1)?;
        let ends = self.ends.all();
        let begin = at.checked_sub(1).map_or(0, |before| ends[before] as usize);
        self.texts.all().get(begin..*ends.get(at)? as usize)
    }

    /// Returns the number of a text. Adds the text if it is new. Returns 0 if there is no memory
    /// for it.
    pub(in crate::perl) fn number(&mut self, text: &[u8]) -> u32 {
        let hash = text.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let known = self.by_hash.get_all(hash).map(|number| number as u32);
        let mut known = known.filter(|&number| self.text(number) == Some(text));
        if let Some(number) = known.next() {
            return number;
        }
        drop(known);
        let number = self.ends.all().len() as u32 + 1;
        let before = self.texts.all().len();
        let has_room = number < 1 << CLASS_BITS && self.texts.reserve(before + text.len());
        if !has_room {
            return 0;
        }
        text.iter().for_each(|&byte| {
            self.texts.push(byte);
        });
        let is_kept = self.ends.push(self.texts.all().len() as u64);
        if !is_kept || !self.by_hash.add(hash, number.into()) {
            return 0;
        }
        number
    }
}

/// Selects values by the moment at which they were made, and by whether they are stale.
#[derive(Clone, Copy)]
pub(in crate::perl) struct PerlValueFilter {
    /// Earliest moment: values that were made before it are not selected.
    pub(in crate::perl) since: u32,
    /// Whether stale values are selected, too: variables that wait in their pads until their `my`
    /// runs again.
    pub(in crate::perl) stale: bool,
}

impl PerlValueRows {
    pub(in crate::perl) const fn new() -> Self {
        Self {
            all: MappedVec::new(),
            merged: 0,
        }
    }

    /// Returns the rows. After [`merge`](Self::merge) they are sorted by stack and label.
    pub(in crate::perl) fn all(&self) -> &[PerlValueRow] {
        self.all.all()
    }

    /// Adds a row. Returns false if there is no memory.
    pub(in crate::perl) fn add(&mut self, row: PerlValueRow) -> bool {
        if self.all.all().len() >= (2 * self.merged).max(MERGE_BATCH_LEN) {
            self.merge();
        }
        self.all.push(row)
    }

    /// Merges rows that have equal stacks, origins and labels.
    pub(in crate::perl) fn merge(&mut self) {
        let rows = self.all.all_mut();
        rows.sort_unstable_by_key(|row| (row.stack, row.origin, row.label));
        let mut len = 0;
        for i in 0..rows.len() {
            let row = rows[i];
            let like = |last: &PerlValueRow| {
                (last.stack, last.origin, last.label) == (row.stack, row.origin, row.label)
            };
            match rows[..len].last_mut().filter(|last| like(last)) {
                Some(last) => {
                    last.made += row.made;
                    last.objects += row.objects;
                    last.bytes = last.bytes.saturating_add(row.bytes);
                }
                None => {
                    rows[len] = row;
                    len += 1;
                }
            }
        }
        self.all.truncate(len);
        self.merged = len;
    }

    /// Adds the values of an interpreter. `mark` returns the number of the last mark at or before a
    /// moment. Returns false if some values could not be read.
    pub(in crate::perl) fn add_values(
        &mut self,
        perl: &PerlRuntime,
        traced: &TracedInterpreter,
        names: &mut PerlLabelTexts,
        wanted: PerlValueFilter,
        mark: impl Fn(u32) -> u32,
    ) -> bool {
        let origin = traced.origin.load(Ordering::Relaxed).into();
        let mut classes = NumberMultimap::new();
        let added = traced.with(|heads| {
            let mut is_whole = true;
            for (number, at, count) in heads.arenas() {
                let is_wanted = |i: usize, head: &SvHead| {
                    let (_, moment) = heads.maker(number, i);
                    moment >= wanted.since && (wanted.stale || !head.has(traced.stale_flag))
                };
                let first = at + HEAD_BYTES as u64;
                let Some(arena) = ArenaValues::read(first, count as usize, is_wanted) else {
                    is_whole = false;
                    continue;
                };
                for value in arena.values() {
                    let (stack, moment) = heads.maker(number, value.place);
                    let is_resting = value.head.has(traced.stale_flag);
                    let stack = if is_resting { RESTING_STACK } else { stack };
                    let class = class_of(&value.head, &value.body)
                        .map_or(0, |stash| number_of_class(perl, names, &mut classes, stash));
                    let bytes = perl.bytes_of(&value.head, &value.body, value.others);
                    is_whole &= self.add(PerlValueRow {
                        stack,
                        origin,
                        label: make_label(value.head.name(), class, mark(moment)),
                        made: 0,
                        objects: 1,
                        bytes,
                    });
                }
            }
            for (stack, &made) in heads.counts().iter().enumerate() {
                if made != 0 && wanted.since == 0 {
                    is_whole &= self.add(PerlValueRow {
                        stack: StackNumber::from_index(stack),
                        origin,
                        label: 0,
                        made,
                        ..PerlValueRow::NOTHING
                    });
                }
            }
            if heads.unseen != 0 && wanted.since == 0 {
                is_whole &= self.add(PerlValueRow {
                    stack: UNSEEN_STACK,
                    origin,
                    label: 0,
                    made: heads.unseen,
                    ..PerlValueRow::NOTHING
                });
            }
            is_whole
        });
        self.merge();
        added == Some(true)
    }
}

/// Returns the number of a class's name.
fn number_of_class(
    perl: &PerlRuntime,
    names: &mut PerlLabelTexts,
    known: &mut NumberMultimap,
    stash: u64,
) -> u32 {
    if let Some(number) = known.get_all(stash).next() {
        return number as u32;
    }
    let (mut room, failed) = ([0; 256], Cell::new(false));
    let mut name = BoundedText::new(&mut room);
    let memory = KernelMemory { failed: &failed };
    let number = match perl.class_name(memory, stash, &mut name) {
        true => names.number(name.bytes()),
        false => 0,
    };
    known.add(stash, number.into());
    number
}
