//! The values of a program, and what each leads to.

use std::ops::Range;

use crate::kind::PerlValueKind;
use crate::step::ValueStep;
use crate::text::{PerlTextTable, TextId};

/// A value.
#[derive(Clone, Copy, Debug, Default)]
pub struct PerlValue {
    /// Where it was.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// How many of these Perl asked for. The rest is what malloc adds to its blocks.
    pub asked: u64,
    /// The address of the symbol table that it is blessed into; 0 if it is not.
    pub class: u64,
    /// How many references to it are counted.
    pub references: u32,
    /// Its name, if it is a symbol, a sub or a symbol table.
    pub name: TextId,
    /// Its kind.
    pub kind: PerlValueKind,
}

/// How a value leads to another one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueEdge {
    /// The number of the other one.
    pub(crate) to: u32,
    /// Whether it keeps the other one alive.
    pub(crate) is_strong: bool,
    /// How.
    pub(crate) step: ValueStep,
}

/// Which paths are looked for first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathPhase {
    /// Symbol tables.
    Symbols,
    /// All other roots, side by side.
    Others,
    /// Pointers in memory of C code, which count only for what nothing else leads to.
    Mentions,
}

/// Where paths begin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ValueRoot {
    pub(crate) phase: PathPhase,
    /// The first names of the path; the outer one may be empty.
    pub(crate) outer: TextId,
    pub(crate) name: TextId,
    pub(crate) number: u32,
}

/// Values with what each leads to, and the roots. A [`ValueGraphBuilder`](crate::ValueGraphBuilder)
/// makes them.
#[derive(Debug)]
pub struct ValueGraph {
    pub(crate) all: Vec<PerlValue>,
    /// Where the edges of each value begin, and where those of the last one end.
    pub(crate) first: Vec<usize>,
    pub(crate) edges: Vec<ValueEdge>,
    /// In the order of their phases.
    pub(crate) roots: Vec<ValueRoot>,
    pub(crate) texts: PerlTextTable,
    /// All values in the order of their addresses.
    pub(crate) in_order: Vec<u32>,
}

impl ValueGraph {
    /// The id of a text.
    pub fn text_id(&mut self, text: &str) -> TextId {
        self.texts.id(text)
    }

    /// A text.
    #[must_use]
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[PerlValue] {
        &self.all
    }

    /// Gives the keys of hashes other names. Symbols keep theirs.
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

    /// A value by its number.
    #[must_use]
    pub fn get(&self, number: u32) -> &PerlValue {
        &self.all[number as usize]
    }

    /// The numbers of all of them.
    pub(crate) fn numbers(&self) -> Range<u32> {
        0..self.all.len() as u32
    }

    /// The number of the value at an address.
    #[must_use]
    pub fn number(&self, address: u64) -> Option<u32> {
        let of = |number: &u32| self.get(*number).address;
        let found = self.in_order.binary_search_by_key(&address, of).ok()?;
        Some(self.in_order[found])
    }

    /// What a value leads to.
    #[must_use]
    pub(crate) fn edges(&self, number: u32) -> &[ValueEdge] {
        let number = number as usize;
        &self.edges[self.first[number]..self.first[number + 1]]
    }

    /// The roots, in the order of their phases.
    pub(crate) fn roots(&self) -> &[ValueRoot] {
        &self.roots
    }

    /// The symbol table of the class of a value.
    #[must_use]
    pub fn stash(&self, value: &PerlValue) -> Option<u32> {
        match value.class {
            0 => None,
            class => self.number(class),
        }
    }

    /// The name of the class of a value; empty if it has none.
    #[must_use]
    pub fn class(&self, value: &PerlValue) -> TextId {
        let stash = self.stash(value);
        stash.map_or(TextId::EMPTY, |stash| self.get(stash).name)
    }
}
