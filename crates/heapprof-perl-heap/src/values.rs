//! The values of a program, and what each leads to.

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::kind::Kind;
use crate::step::Step;
use crate::text::TextId;

/// A value.
#[derive(Clone, Copy, Debug, Default)]
pub struct Value {
    /// Where it was.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
    /// How many references to it are counted.
    pub references: u32,
    /// The address of the symbol table that it is blessed into; 0 if it is not.
    pub class: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its name, if it is a symbol, a sub or a symbol table.
    pub name: TextId,
}

/// How a value leads to another one.
#[derive(Clone, Copy, Debug)]
pub struct Edge {
    /// The address of the other one.
    pub to: u64,
    /// How.
    pub step: Step,
    /// Whether it keeps the other one alive.
    pub is_strong: bool,
}

/// Values with what each leads to, and the roots.
#[derive(Debug)]
pub struct Values {
    all: Vec<Value>,
    /// Where the edges of each value begin, and where those of the last one end.
    first: Vec<usize>,
    edges: Vec<Edge>,
    /// Edges that were found after their value was ended, by its address.
    later: Vec<(u64, Edge)>,
    /// The roots: what each is, and its address. The main symbol table comes first.
    roots: Vec<(TextId, u64)>,
    texts: Vec<Box<str>>,
    ids: HashMap<Box<str>, TextId, RandomState>,
    numbers: HashMap<u64, u32, RandomState>,
}

impl Default for Values {
    fn default() -> Self {
        let mut ids = HashMap::default();
        ids.insert("".into(), TextId::NONE);
        Self {
            all: Vec::new(),
            first: vec![0],
            edges: Vec::new(),
            later: Vec::new(),
            roots: Vec::new(),
            texts: vec!["".into()],
            ids,
            numbers: HashMap::default(),
        }
    }
}

impl Values {
    /// The id of a text.
    pub fn text_id(&mut self, text: &str) -> TextId {
        if let Some(&id) = self.ids.get(text) {
            return id;
        }
        let id = TextId::new(self.texts.len());
        self.texts.push(text.into());
        self.ids.insert(text.into(), id);
        id
    }

    /// A text.
    #[must_use]
    pub fn text(&self, id: TextId) -> &str {
        &self.texts[id.index()]
    }

    /// Adds a root.
    pub fn add_root(&mut self, name: &str, address: u64) {
        let name = self.text_id(name);
        self.roots.push((name, address));
    }

    /// Adds a way from the value that is not ended yet.
    pub fn lead_to(&mut self, to: u64, step: Step, is_strong: bool) {
        if to != 0 {
            self.edges.push(Edge {
                to,
                step,
                is_strong,
            });
        }
    }

    /// Adds a way from a value that was ended already.
    pub fn lead_later(&mut self, from: u64, to: u64, step: Step, is_strong: bool) {
        if to != 0 {
            let edge = Edge {
                to,
                step,
                is_strong,
            };
            self.later.push((from, edge));
        }
    }

    /// Says anew how a value leads to its elements, by their numbers.
    pub fn rename_elements(&mut self, from: u64, step: impl Fn(u32) -> Step) {
        let Some(from) = self.number(from) else {
            return;
        };
        let range = self.first[from as usize]..self.first[from as usize + 1];
        for edge in &mut self.edges[range] {
            if let Step::Element(number) = edge.step {
                edge.step = step(number);
            }
        }
    }

    /// Ends a value: the ways that were added are its own. One whose address another value has is
    /// left out.
    pub fn end(&mut self, value: Value) {
        let number = self.all.len() as u32;
        if self.numbers.try_insert(value.address, number).is_err() {
            self.edges.truncate(self.first[self.first.len() - 1]);
            return;
        }
        self.all.push(value);
        self.first.push(self.edges.len());
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> &[Value] {
        &self.all
    }

    /// The number of the value at an address.
    #[must_use]
    pub fn number(&self, address: u64) -> Option<u32> {
        self.numbers.get(&address).copied()
    }

    /// What a value leads to.
    #[must_use]
    pub fn edges(&self, number: u32) -> &[Edge] {
        let number = number as usize;
        &self.edges[self.first[number]..self.first[number + 1]]
    }

    /// The roots, each with its name and address.
    pub(crate) fn roots(&self) -> &[(TextId, u64)] {
        &self.roots
    }

    /// Puts ways that were added later among those of their values.
    pub fn finish(&mut self) {
        let mut later: Vec<(u32, Edge)> = std::mem::take(&mut self.later)
            .into_iter()
            .filter_map(|(from, edge)| Some((self.number(from)?, edge)))
            .collect();
        if later.is_empty() {
            return;
        }
        later.sort_by_key(|(from, _)| *from);
        let mut later = later.into_iter().peekable();
        let (mut edges, mut first) = (Vec::new(), vec![0]);
        for number in 0..self.all.len() as u32 {
            edges.extend_from_slice(self.edges(number));
            while let Some((_, edge)) = later.next_if(|(from, _)| *from == number) {
                edges.push(edge);
            }
            first.push(edges.len());
        }
        self.edges = edges;
        self.first = first;
    }

    /// The name of the class of a value.
    #[must_use]
    pub fn class(&self, value: &Value) -> Option<&str> {
        let stash = &self.all[self.number(value.class)? as usize];
        Some(self.text(stash.name)).filter(|name| !name.is_empty())
    }
}
