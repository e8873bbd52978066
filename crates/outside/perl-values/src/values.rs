//! The values of a program, and the edges between them.

use std::ops::Range;

use crate::kind::PerlValueKind;
use crate::step::ValueStep;
use crate::text::{PerlTextTable, TextId};

/// A value of a Perl program.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerlValue {
    /// Address of the value.
    pub address: u64,
    /// Size in bytes.
    pub size: u64,
    /// The part of the size that Perl requested. The rest is malloc's overhead.
    pub asked: u64,
    /// Address of the symbol table of the value's class; 0 if the value is not blessed.
    pub class: u64,
    /// The reference count.
    pub references: u32,
    /// Name of the symbol, sub or symbol table; empty for other values.
    pub name: TextId,
    /// The kind of the value.
    pub kind: PerlValueKind,
}

/// An edge from one value to another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueEdge {
    /// Number of the value to which the edge leads.
    pub(crate) to: u32,
    /// Whether the edge keeps its target alive.
    pub(crate) is_strong: bool,
    /// The step by which the first value leads to the target.
    pub(crate) step: ValueStep,
}

/// A phase of the search for paths, named after the roots at which its paths begin. The phases run
/// in the order of the variants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathPhase {
    /// Paths from symbol tables.
    Symbols,
    /// Paths from all other roots.
    Others,
    /// Paths from pointers in the memory of C code. They count only if no other path leads to a
    /// value.
    Mentions,
}

/// A root: a value at which paths begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueRoot {
    pub(crate) phase: PathPhase,
    /// The first name of the path; may be empty.
    pub(crate) outer: TextId,
    /// The name of the root, which comes after `outer` in the path.
    pub(crate) name: TextId,
    pub(crate) number: u32,
}

/// A graph of values: each value with its edges, and the roots. A
/// [`ValueGraphBuilder`](crate::ValueGraphBuilder) makes it.
#[derive(Debug)]
pub struct ValueGraph {
    pub(crate) all: Vec<PerlValue>,
    /// Index of each value's first edge. The last entry is the number of all edges.
    pub(crate) first: Vec<usize>,
    pub(crate) edges: Vec<ValueEdge>,
    /// The roots, in the order of their phases.
    pub(crate) roots: Vec<ValueRoot>,
    pub(crate) texts: PerlTextTable,
    /// Numbers of all values, in the order of their addresses.
    pub(crate) in_order: Vec<u32>,
}

impl ValueGraph {
    /// Returns the ID of a text. Adds the text if it is new.
    pub fn text_id(&mut self, text: &str) -> TextId {
        self.texts.id(text)
    }

    /// Returns the text with an ID.
    #[must_use]
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// Returns all values, in order of their numbers.
    #[must_use]
    pub fn all(&self) -> &[PerlValue] {
        &self.all
    }

    /// Renames the keys of all hashes that are not symbol tables.
    pub fn rename_keys(&mut self, name: impl Fn(&str) -> String) {
        for number in 0..self.all.len() {
            if self.all[number].kind.is_stash() {
                continue;
            }
            for edge in &mut self.edges[self.first[number]..self.first[number + 1]] {
                if let ValueStep::Key(key) = edge.step
                    && key != TextId::EMPTY
                {
                    let name = name(self.texts.get(key));
                    edge.step = ValueStep::Key(self.texts.id(&name));
                }
            }
        }
    }

    /// Returns the value with a number.
    #[must_use]
    pub fn get(&self, number: u32) -> &PerlValue {
        &self.all[number as usize]
    }

    /// Returns the numbers of all values.
    pub(crate) fn numbers(&self) -> Range<u32> {
        0..self.all.len() as u32
    }

    /// Returns the number of the value at an address.
    #[must_use]
    pub fn number(&self, address: u64) -> Option<u32> {
        let of = |number: &u32| self.get(*number).address;
        let found = self.in_order.binary_search_by_key(&address, of).ok()?;
        Some(self.in_order[found])
    }

    /// Returns the edges from a value to other values.
    #[must_use]
    pub(crate) fn edges(&self, number: u32) -> &[ValueEdge] {
        let number = number as usize;
        &self.edges[self.first[number]..self.first[number + 1]]
    }

    /// Returns the roots, in the order of their phases.
    pub(crate) fn roots(&self) -> &[ValueRoot] {
        &self.roots
    }

    /// Returns the number of the symbol table of a value's class.
    #[must_use]
    pub fn stash(&self, value: &PerlValue) -> Option<u32> {
        match value.class {
            0 => None,
            class => self.number(class),
        }
    }

    /// Returns the name of a value's class; empty if it has none.
    #[must_use]
    pub fn class(&self, value: &PerlValue) -> TextId {
        let stash = self.stash(value);
        stash.map_or(TextId::EMPTY, |stash| self.get(stash).name)
    }
}
