//! Makes a value graph: values are added one by one, each with its edges to the addresses of other
//! values.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::step::ValueStep;
use crate::text::{PerlTextTable, TextId};
use crate::values::{PathPhase, PerlValue, ValueEdge, ValueGraph, ValueRoot};

/// An edge to the value at an address.
#[derive(Clone, Copy, Debug)]
struct AddressEdge {
    to: u64,
    is_strong: bool,
    step: ValueStep,
}

/// Makes a [`ValueGraph`].
#[derive(Debug)]
pub struct ValueGraphBuilder {
    all: Vec<PerlValue>,
    first: Vec<usize>,
    ways: Vec<AddressEdge>,
    /// Edges from values that were already finished, each with the address of the value at its
    /// beginning.
    later: Vec<(u64, AddressEdge)>,
    roots: Vec<(PathPhase, TextId, TextId, u64)>,
    texts: PerlTextTable,
    numbers: HashMap<u64, u32, RandomState>,
}

impl Default for ValueGraphBuilder {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            first: vec![0],
            ways: Vec::new(),
            later: Vec::new(),
            roots: Vec::new(),
            texts: PerlTextTable::default(),
            numbers: HashMap::default(),
        }
    }
}

impl ValueGraphBuilder {
    /// Reserves memory for `values` more values.
    pub fn reserve(&mut self, values: usize) {
        self.all.reserve(values);
        self.first.reserve(values);
        self.ways.reserve(values);
        self.numbers.reserve(values);
    }

    /// Returns the ID of a text. Adds the text if it is new.
    pub fn text_id(&mut self, text: &str) -> TextId {
        self.texts.id(text)
    }

    /// Returns the text with an ID.
    #[must_use]
    pub fn text(&self, id: TextId) -> &str {
        self.texts.get(id)
    }

    /// Returns a [`ValueStep::Named`] with this name.
    pub fn named_step(&mut self, name: &str) -> ValueStep {
        ValueStep::Named(self.text_id(name))
    }

    /// Adds the value at an address as a root. Paths from it begin with `outer`, which may be
    /// empty, and `name`.
    pub fn add_root(&mut self, phase: PathPhase, outer: &str, name: &str, address: u64) {
        let (outer, name) = (self.text_id(outer), self.text_id(name));
        self.roots.push((phase, outer, name, address));
    }

    /// Adds an edge from the value that the next [`end`](Self::end) finishes.
    pub fn lead_to(&mut self, to: u64, step: ValueStep, is_strong: bool) {
        if to != 0 {
            self.ways.push(AddressEdge {
                to,
                is_strong,
                step,
            });
        }
    }

    /// Adds an edge from a value that was finished already.
    pub fn lead_later(&mut self, from: u64, to: u64, step: ValueStep, is_strong: bool) {
        if to != 0 {
            let way = AddressEdge {
                to,
                is_strong,
                step,
            };
            self.later.push((from, way));
        }
    }

    /// Replaces the steps from a finished value to its elements. `step` takes the number of an
    /// element, and returns the new step to it.
    pub fn rename_elements(&mut self, from: u64, step: impl Fn(u32) -> ValueStep) {
        let Some(from) = self.number(from) else {
            return;
        };
        let range = self.first[from as usize]..self.first[from as usize + 1];
        for way in &mut self.ways[range] {
            if let ValueStep::Element(number) = way.step {
                way.step = step(number);
            }
        }
    }

    /// Finishes a value, with the edges that were added since the previous one. A second value with
    /// the same address is left out.
    pub fn end(&mut self, value: PerlValue) {
        let number = self.all.len() as u32;
        if self.numbers.try_insert(value.address, number).is_err() {
            self.ways.truncate(self.first[self.first.len() - 1]);
            return;
        }
        self.all.push(value);
        self.first.push(self.ways.len());
    }

    /// Returns the number of finished values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether no value was finished.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the number of the finished value at an address.
    #[must_use]
    pub fn number(&self, address: u64) -> Option<u32> {
        self.numbers.get(&address).copied()
    }

    /// Returns the finished value with a number.
    #[must_use]
    pub fn value(&self, number: u32) -> &PerlValue {
        &self.all[number as usize]
    }

    /// Returns the finished value with a number, so that it can be changed.
    pub fn value_mut(&mut self, number: u32) -> &mut PerlValue {
        &mut self.all[number as usize]
    }

    /// Makes the graph. Edges to addresses without a value are left out.
    #[must_use]
    pub fn finish(mut self) -> ValueGraph {
        let later = std::mem::take(&mut self.later).into_iter();
        let later = later.filter_map(|(from, way)| Some((self.number(from)?, way)));
        let mut later: Vec<(u32, AddressEdge)> = later.collect();
        later.sort_by_key(|(from, _)| *from);
        let mut later = later.into_iter().peekable();
        let mut edges = Vec::with_capacity(self.ways.len() + later.len());
        let mut first = Vec::with_capacity(self.first.len());
        first.push(0);
        let add = |edges: &mut Vec<ValueEdge>, way: &AddressEdge| {
            if let Some(&to) = self.numbers.get(&way.to) {
                edges.push(ValueEdge {
                    to,
                    is_strong: way.is_strong,
                    step: way.step,
                });
            }
        };
        for (number, range) in (0..).zip(self.first.windows(2)) {
            for way in &self.ways[range[0]..range[1]] {
                add(&mut edges, way);
            }
            while let Some((_, way)) = later.next_if(|(from, _)| *from == number) {
                add(&mut edges, &way);
            }
            first.push(edges.len());
        }
        drop(self.ways);
        self.roots.sort_by_key(|root| root.0);
        let roots = self.roots.into_iter();
        let roots = roots.filter_map(|(phase, outer, name, address)| {
            let number = *self.numbers.get(&address)?;
            Some(ValueRoot {
                phase,
                outer,
                name,
                number,
            })
        });
        let roots = roots.collect();
        drop(self.numbers);
        let mut in_order: Vec<u32> = (0..self.all.len() as u32).collect();
        in_order.sort_unstable_by_key(|&number| self.all[number as usize].address);
        ValueGraph {
            all: self.all,
            first,
            edges,
            roots,
            texts: self.texts,
            in_order,
        }
    }
}
