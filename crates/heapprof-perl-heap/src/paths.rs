//! A path of names to each value: the shortest one, by phases.
//!
//! First come the symbol tables, then other roots, then what nothing leads to. Values with the same
//! path are one place. An array's elements have one path, and so have the values of a hash with
//! many keys, because names that differ for each value would say nothing of where memory is.

use std::collections::VecDeque;

use foldhash::fast::RandomState;
use hashbrown::HashMap;

use crate::kind::Kind;
use crate::leaked::firsts;
use crate::step::Step;
use crate::text::TextId;
use crate::values::{Edge, Values};

/// A hash with more keys has one path for all of its values.
const MOST_KEYS: usize = 32;
/// A path of more names ends here: a list whose values lead to each other can be as long as memory
/// is.
const DEEPEST: u32 = 120;
/// What is deeper.
const DEEPER: &str = "(deeper)";
/// No place.
const NONE: u32 = u32::MAX;

/// The path of each value.
#[derive(Debug)]
pub struct Paths {
    /// Each place: the place before it, and its name.
    places: Vec<(u32, TextId)>,
    /// The place of each value.
    of: Vec<u32>,
    /// The first values of what nothing leads to.
    leaked: Vec<u32>,
}

impl Paths {
    /// Finds a path to each value.
    #[must_use]
    pub fn new(values: &mut Values) -> Self {
        let mut finder = Finder {
            places: Vec::new(),
            depths: Vec::new(),
            ids: HashMap::default(),
            of: vec![NONE; values.all().len()],
            queue: VecDeque::new(),
        };
        for (number, (name, address)) in values.roots().to_vec().into_iter().enumerate() {
            if let Some(root) = values.number(address) {
                let place = finder.place(values, NONE, name);
                finder.reach(values, root, place);
            }
            // The symbol tables come first as a whole, and then the other roots side by side.
            if number == 0 {
                finder.follow(values);
            }
        }
        finder.follow(values);
        let is_reached: Vec<bool> = finder.of.iter().map(|&place| place != NONE).collect();
        let mut leaked = Vec::new();
        for (first, is_ring) in firsts(values, &is_reached) {
            leaked.push(first);
            let kind = values.all()[first as usize].kind.name();
            let words = match is_ring {
                true => "(in a ring)",
                false => "(nothing refers to it)",
            };
            let (words, kind) = (values.text_id(words), values.text_id(kind));
            let name = values.text_id("(leaked)");
            let mut place = finder.place(values, NONE, name);
            place = finder.place(values, place, words);
            // The class says more than the kind, if there is one.
            if values.class(&values.all()[first as usize]).is_none() {
                place = finder.place(values, place, kind);
            }
            finder.reach(values, first, place);
            finder.follow(values);
        }
        Self {
            places: finder.places,
            of: finder.of,
            leaked,
        }
    }

    /// The first values of what nothing leads to.
    #[must_use]
    pub fn leaked(&self) -> &[u32] {
        &self.leaked
    }

    /// The place of a value.
    #[must_use]
    pub fn place(&self, value: u32) -> u32 {
        self.of[value as usize]
    }

    /// The names of a place, the last one first.
    pub fn names(&self, place: u32) -> impl Iterator<Item = TextId> + '_ {
        let mut at = place;
        std::iter::from_fn(move || {
            let &(before, name) = self.places.get(at as usize)?;
            at = before;
            Some(name)
        })
    }
}

/// Finds paths.
struct Finder {
    places: Vec<(u32, TextId)>,
    /// How many names each place has.
    depths: Vec<u32>,
    ids: HashMap<(u32, TextId), u32, RandomState>,
    of: Vec<u32>,
    /// Values whose ways were not followed yet.
    queue: VecDeque<u32>,
}

impl Finder {
    /// The place with a name behind another place.
    fn place(&mut self, values: &mut Values, before: u32, mut name: TextId) -> u32 {
        let depth = self
            .depths
            .get(before as usize)
            .map_or(0, |depth| depth + 1);
        if depth > DEEPEST {
            return before;
        }
        if depth == DEEPEST {
            name = values.text_id(DEEPER);
        }
        *self.ids.entry((before, name)).or_insert_with(|| {
            self.places.push((before, name));
            self.depths.push(depth);
            self.places.len() as u32 - 1
        })
    }

    /// Notes that a value is reached at a place, below which its class is.
    fn reach(&mut self, values: &mut Values, value: u32, mut place: u32) {
        if self.of[value as usize] != NONE {
            return;
        }
        if let Some(class) = values.class(&values.all()[value as usize]) {
            let class = class.to_string();
            let class = values.text_id(&class);
            place = self.place(values, place, class);
        }
        self.of[value as usize] = place;
        self.queue.push_back(value);
    }

    fn follow(&mut self, values: &mut Values) {
        while let Some(from) = self.queue.pop_front() {
            for i in 0..values.edges(from).len() {
                let edge = values.edges(from)[i];
                let to = values.number(edge.to).filter(|_| edge.is_strong);
                let Some(to) = to.filter(|&to| self.of[to as usize] == NONE) else {
                    continue;
                };
                let before = self.of[from as usize];
                let place = self.step(values, from, before, &edge, to);
                self.reach(values, to, place);
            }
        }
    }

    /// Whether a place is a sub's, which its name says.
    fn is_sub(&self, values: &Values, place: u32) -> bool {
        let (_, name) = self.places[place as usize];
        values.text(name).starts_with('&')
    }

    /// The place to which a step leads.
    fn step(&mut self, values: &mut Values, from: u32, before: u32, edge: &Edge, to: u32) -> u32 {
        let own = values.all()[from as usize];
        let name = match edge.step {
            // `main::` has `%CACHE`, and not the symbol `*CACHE` with a hash.
            Step::Slot(sigil) if own.kind == Kind::Glob => {
                let symbol = values.text(own.name);
                // A symbol table has a name of its own.
                let name = match (sigil, symbol.ends_with("::")) {
                    (b'%', true) => symbol.to_string(),
                    _ => format!("{}{symbol}", char::from(sigil)),
                };
                let name = values.text_id(&name);
                let outer = self.places[before as usize].0;
                return self.place(values, outer, name);
            }
            Step::Slot(sigil) => values.text_id(&char::from(sigil).to_string()),
            Step::Referent if self.is_sub(values, before) => return before,
            Step::Referent => values.text_id("->"),
            Step::Element(_) => values.text_id("[*]"),
            Step::Field(number) => values.text_id(&format!("field {number}")),
            Step::Key(key) if own.kind.is_stash() => match values.text(key) {
                table if table.ends_with("::") => key,
                symbol => {
                    // A sub may stand there without a symbol, as a reference.
                    let is_symbol = values.all()[to as usize].kind == Kind::Glob;
                    let symbol = format!("{}{symbol}", if is_symbol { '*' } else { '&' });
                    values.text_id(&symbol)
                }
            },
            Step::Key(_) if values.edges(from).len() > MOST_KEYS => values.text_id("{*}"),
            Step::Key(key) => {
                let key = format!("{{{}}}", values.text(key));
                values.text_id(&key)
            }
            Step::Pad(depth) => values.text_id(&format!("<pad depth {depth}>")),
            Step::Variable(name) => {
                let name = format!("my {}", values.text(name));
                values.text_id(&name)
            }
            Step::Temporary => values.text_id("<temporary>"),
            Step::Constant => values.text_id("<constant>"),
            Step::Outside => values.text_id("<outside>"),
            Step::Magic(letter) => {
                let letter = [letter].escape_ascii().to_string();
                values.text_id(&format!("<magic {letter}>"))
            }
            Step::Target => values.text_id("<target>"),
            Step::Own(word) => values.text_id(&format!("<{word}>")),
            Step::Named(name) => {
                let name = format!("<{}>", values.text(name));
                values.text_id(&name)
            }
        };
        self.place(values, before, name)
    }
}
